"""What a node of a training job runs: torchrun over all machines, and checkpoints that outlive it.

The job is train.py in the stack's bucket. It is told its layout in the words of Megatron, saves to
/models/checkpoints and starts again from the newest checkpoint there. A notice that the machine is
taken back, and the end of the service, reach it as SIGTERM.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stacks.runtime.vm.megatron import job_arguments
from stacks.shell import fill_script, read_script, without_header
from stacks.stack_spec import lookup_table

if TYPE_CHECKING:
    from stacks.cloud import NodeCommands
    from stacks.stack_spec import StackSpec

MASTER_PORT: Final = 29500
RDMA_FABRICS: Final = ("efa", "infiniband", "roce")


def train_script(stack_spec: StackSpec, commands: NodeCommands) -> str:
    """Return the script of a node that trains."""
    shares_files = stack_spec.file_system is not None
    docker_options = [
        *rdma_devices(stack_spec),
        *(["-v", "/data:/data"] if shares_files else []),
    ]
    for variable_name, variable_value in nccl_environment(stack_spec).items():
        docker_options += ["-e", f"{variable_name}={variable_value}"]
    return fill_script(
        "stacks.runtime.vm",
        "scripts/train.sh",
        {
            "nodes": stack_spec.working_nodes,
            "ranks_per_node": stack_spec.instance.accelerators,
            "master_port": MASTER_PORT,
            "grace_s": notice_seconds(stack_spec),
            "image": lookup_table("images.csv", "image", "reference")["train"],
            "checkpoints": stack_spec.checkpoint_dir,
            "is_spot": "yes" if stack_spec.is_spot else "no",
            "shares_files": "yes" if shares_files else "no",
            "options": docker_options,
            "arguments": argument_words(stack_spec),
        },
        code={
            "rendezvous": without_header(
                read_script("stacks.runtime.vm", "scripts/rendezvous.sh")
            ),
            "fetch_models": commands.fetch_models,
            "list_peers": commands.list_peers,
            "save_checkpoints": commands.save_checkpoints,
            "notice": commands.notice,
            "mount_files": commands.mount_files if shares_files else "true",
            "fill_files": commands.fill_files
            if stack_spec.dataset_linked
            else "true",
        },
    )


def rdma_devices(stack_spec: StackSpec) -> list[str]:
    """The option of docker that gives a container the fabric; none without one."""
    uses_rdma = (
        stack_spec.fabric_attached
        and stack_spec.instance.fabric in RDMA_FABRICS
    )
    return ["--device=/dev/infiniband"] if uses_rdma else []


def argument_words(stack_spec: StackSpec) -> list[str]:
    """The arguments of the job, one word each."""
    return [
        word
        for argument in job_arguments(stack_spec)
        for word in argument.split(" ")
    ]


def notice_seconds(stack_spec: StackSpec) -> str:
    """Seconds from the cloud's notice to the end of a spot machine."""
    return lookup_table("notices.csv", "provider", "seconds")[
        stack_spec.provider
    ]


def nccl_environment(stack_spec: StackSpec) -> dict[str, str]:
    """The variables of NCCL on the fabric of the site, and what makes a hang an error."""
    column_names = ["any"] + (
        [stack_spec.instance.fabric]
        if stack_spec.working_nodes > 1 and stack_spec.fabric_attached
        else []
    )
    variable_pairs = [
        variable_pair
        for column_name in column_names
        for variable_pair in lookup_table(
            "nccl.csv", "variable", column_name
        ).items()
    ]
    return {
        column_name: variable_value
        for column_name, variable_value in sorted(variable_pairs)
        if variable_value
    }

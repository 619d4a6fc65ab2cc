"""What a node of a training job runs: torchrun over all machines, and checkpoints that outlive it.

The job is train.py in the stack's bucket. It is told its layout in the words of Megatron, saves to
/models/checkpoints and starts again from the newest checkpoint there. A notice that the machine is
taken back, and the end of the service, reach it as SIGTERM.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stacks.runtime.vm.megatron import job_arguments
from stacks.shell import fill_script, read_script, without_header
from stacks.spec.table import lookup_table

if TYPE_CHECKING:
    from stacks.cloud import NodeCommands
    from stacks.spec.fleet import FleetSpec, ScalingGroup
    from stacks.spec.stack import StackSpec

MASTER_PORT: Final = 29500
RDMA_FABRICS: Final = ("efa", "infiniband", "roce")


def train_script(
    stack: StackSpec,
    fleet: FleetSpec,
    group: ScalingGroup,
    commands: NodeCommands,
) -> str:
    """Return the script of a node that trains."""
    shares_files = stack.file_system is not None
    docker_options = [
        *rdma_devices(fleet),
        *(["-v", "/data:/data"] if shares_files else []),
    ]
    for variable_name, variable_value in nccl_environment(fleet).items():
        docker_options += ["-e", f"{variable_name}={variable_value}"]
    return fill_script(
        "stacks.runtime.vm",
        "scripts/train.sh",
        {
            "nodes": fleet.working_nodes,
            "ranks_per_node": fleet.instance.accelerators,
            "master_port": MASTER_PORT,
            "grace_s": notice_seconds(stack),
            "image": lookup_table("images.csv", "image", "reference")["train"],
            "checkpoints": stack.checkpoint_dir,
            "is_spot": "yes" if group.is_spot else "no",
            "shares_files": "yes" if shares_files else "no",
            "options": docker_options,
            "arguments": argument_words(stack),
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
            if stack.dataset_linked
            else "true",
        },
    )


def rdma_devices(fleet: FleetSpec) -> list[str]:
    """The option of docker that gives a container the fabric; none without one."""
    uses_rdma = fleet.fabric_attached and fleet.instance.fabric in RDMA_FABRICS
    return ["--device=/dev/infiniband"] if uses_rdma else []


def argument_words(stack: StackSpec) -> list[str]:
    """The arguments of the job, one word each."""
    return [
        word
        for argument in job_arguments(stack)
        for word in argument.split(" ")
    ]


def notice_seconds(stack: StackSpec) -> str:
    """Seconds from the cloud's notice to the end of a spot machine."""
    return lookup_table("notices.csv", "provider", "seconds")[stack.provider]


def nccl_environment(fleet: FleetSpec) -> dict[str, str]:
    """The variables of NCCL on the fabric of a fleet, and what makes a hang an error."""
    column_names = ["any"] + (
        [fleet.instance.fabric]
        if fleet.working_nodes > 1 and fleet.fabric_attached
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

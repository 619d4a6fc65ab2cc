"""What a node of a training job runs: torchrun over all machines, and checkpoints that outlive it.

The job is train.py in the stack's bucket. It is told its layout in the words of Megatron, saves to
/models/checkpoints and starts again from the newest checkpoint there. A notice that the machine is
taken back, and the end of the service, reach it as SIGTERM. It is done when it ends well after the
checkpoint of its last step, or after it made the file that TONNAGE_DONE names.
"""

from __future__ import annotations

import hashlib
import math
from typing import TYPE_CHECKING, Final

from stacks.runtime.vm.megatron import job_arguments
from stacks.shell import (
    fill_script,
    read_script,
    without_comments,
    without_header,
)
from stacks.spec.table import lookup_table

if TYPE_CHECKING:
    from planner.solve.solution import TrainingRun
    from stacks.cloud import NodeCommands
    from stacks.spec.fleet import FleetSpec, ScalingGroup
    from stacks.spec.stack import StackSpec

MASTER_PORT: Final = 29500
# Its age tells the agent that a node loads or stands by, although its accelerators rest.
BUSY_FILE: Final = "/run/tonnage-busy"
RDMA_FABRICS: Final = ("efa", "infiniband", "roce")


def train_script(
    stack: StackSpec,
    fleet: FleetSpec,
    group: ScalingGroup,
    commands: NodeCommands,
) -> str:
    """Return the script of a node that trains. Raises ValueError without a training run."""
    training_run = stack.training_run
    if training_run is None:
        message = f"{stack.name} trains nothing"
        raise ValueError(message)
    kept = training_run.checkpoints_kept
    shares_files = stack.file_system is not None
    docker_options = [
        *rdma_devices(fleet),
        *(["-v", "/data:/data"] if shares_files else []),
    ]
    for variable_name, variable_value in nccl_environment(fleet).items():
        docker_options += ["-e", f"{variable_name}={variable_value}"]
    script = fill_script(
        "stacks.runtime.vm",
        "scripts/train.sh",
        {
            "nodes": fleet.working_nodes,
            "ranks_per_node": fleet.instance.accelerators,
            "master_port": MASTER_PORT,
            "grace_s": notice_seconds(stack),
            "image": lookup_table("images.csv", "image", "reference")["train"],
            "checkpoints": stack.checkpoint_dir,
            "job": job_digest(stack),
            "last_step": training_run.optimizer_steps,
            "keep_last": kept.keep_last,
            "span_steps": kept.span_steps,
            "busy_file": BUSY_FILE,
            "loading_min": loading_minutes(training_run),
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
            "list_checkpoints": commands.list_checkpoints,
            "fetch_checkpoint": commands.fetch_checkpoint,
            "drop_checkpoint": commands.drop_checkpoint,
            "is_done": commands.is_done,
            "give_back": commands.give_back,
            "notice": commands.notice,
            "mount_files": commands.mount_files if shares_files else "true",
            "fill_files": commands.fill_files
            if stack.dataset_linked
            else "true",
        },
    )
    return without_comments(script)


def loading_minutes(training_run: TrainingRun) -> int:
    """Minutes in which a node may load without being idle: twice what is planned, and an hour."""
    return math.ceil(2 * training_run.machine_life.start_s / 60) + 60


def job_digest(stack: StackSpec) -> str:
    """Twelve hexadecimal digits that name a job by what it is told: another job is not done."""
    job_text = "\n".join(argument_words(stack))
    return hashlib.sha256(job_text.encode()).hexdigest()[:12]


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

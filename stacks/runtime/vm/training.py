"""What a node of a training job runs: torchrun over all machines, and checkpoints that outlive it.

The job is job/train.py in the stack's bucket. It is told its layout in the words of its framework,
saves to its folder of checkpoints, and starts again from the newest complete one. A notice that
the machine is taken back, and the end of the service, reach it as SIGTERM. It is done when it ends
well after the checkpoint of its last step, or after it made the file that TONNAGE_DONE names.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from stacks.runtime.vm.container import (
    TRAIN_IMAGE,
    container_settings,
    fabric_settings,
)
from stacks.runtime.vm.trainer import (
    job_arguments,
    job_prelude,
    job_variables,
    trainer_options,
)
from stacks.spec.table import lookup_table
from stacks.spec.upload import job_upload

if TYPE_CHECKING:
    from planner.solve.solution import RunBase, TrainingRun
    from stacks.spec.fleet import FleetSpec, ScalingGroup
    from stacks.spec.stack import StackSpec

MASTER_PORT: Final = 29500
JOB_FOLDER: Final = "/models/job"
# A job that says nothing for so many of its steps, and for so many seconds, hangs.
HUNG_STEPS: Final = 20
HUNG_S: Final = 600


def training_work(
    stack: StackSpec,
    fleet: FleetSpec,
    group: ScalingGroup,
    training_run: TrainingRun,
) -> dict[str, Any]:
    """Return the settings of the work of a node that trains."""
    shares_files = stack.file_system is not None
    retention = training_run.checkpoints_kept
    container = container_settings(
        fleet,
        TRAIN_IMAGE,
        ["torchrun"],
        f"--stop-timeout={notice_seconds(stack)}",
        *(["--volume=/data:/data"] if shares_files else []),
        prelude=job_prelude(training_run),
    )
    container["environment"] |= job_variables(training_run)
    work = {
        "container": container,
        **fabric_settings(fleet),
        "words": _job_words(stack, training_run),
        "pool": fleet.name,
        "nodes": fleet.working_nodes,
        "ranks_per_node": fleet.instance.accelerators,
        "master_port": MASTER_PORT,
        # The rest of a notice is for bringing the checkpoint to the bucket.
        "grace_s": int(notice_seconds(stack)) // 3,
        "hung_s": _hung_s(training_run),
        "checkpoints": stack.checkpoint_dir,
        "shares_files": shares_files,
        "fills_files": stack.dataset_linked,
        "job": job_digest(stack),
        "last_step": training_run.optimizer_steps,
        "keep_last": retention.keep_last,
        "span_steps": retention.span_steps,
        "is_spot": group.is_spot,
        "upload": {
            "prefix": job_upload().prefix,
            "is_elsewhere": False,
            "folder": JOB_FOLDER,
            "required": list(job_upload().required),
        },
    }
    if training_run.base is not None:
        base_run = run_on_base(training_run, training_run.base)
        work["base"] = {
            "nodes": training_run.base.nodes,
            "words": _job_words(stack, base_run),
            "hung_s": _hung_s(base_run),
        }
    if shares_files:
        work["file_system"] = {
            "name": "lustre",
            "key_url": _lustre(stack, "key_url"),
            "line": _lustre(stack, "repository"),
            "packages": _lustre(stack, "packages").split(";"),
        }
    return work


def run_on_base(training_run: TrainingRun, base: RunBase) -> TrainingRun:
    """Return a run while its machines on spot are away: another layout, and slower steps."""
    return replace(
        training_run,
        layouts=(base.layout,),
        step_pace_s=training_run.step_pace_s / base.speed,
    )


def _hung_s(training_run: TrainingRun) -> int:
    return max(HUNG_S, round(HUNG_STEPS * training_run.step_pace_s))


def _job_words(stack: StackSpec, training_run: TrainingRun) -> list[str]:
    arguments = trainer_options(
        training_run, stack.dataset_path, stack.checkpoint_dir
    )
    return [f"{JOB_FOLDER}/train.py", *_words(arguments)]


def _lustre(stack: StackSpec, column: str) -> str:
    return lookup_table("lustre.csv", "provider", column)[stack.provider]


def job_digest(stack: StackSpec) -> str:
    """Twelve hexadecimal digits that name a job by what it is told: another job is not done."""
    job_text = "\n".join(argument_words(stack))
    return hashlib.sha256(job_text.encode()).hexdigest()[:12]


def argument_words(stack: StackSpec) -> list[str]:
    """The arguments of the job, one word each."""
    return _words(job_arguments(stack))


def _words(arguments: tuple[str, ...]) -> list[str]:
    return [word for argument in arguments for word in argument.split(" ")]


def notice_seconds(stack: StackSpec) -> str:
    """Seconds from the cloud's notice to the end of a spot machine."""
    return lookup_table("notices.csv", "provider", "seconds")[stack.provider]

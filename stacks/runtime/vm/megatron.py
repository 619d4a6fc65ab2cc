"""What a training job is told: its layout, in the words of Megatron."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from planner.facts.accelerator import SIXTEEN_BIT

if TYPE_CHECKING:
    from planner.perf.training.job import ParallelLayout
    from planner.solve.solution import TrainingRun
    from stacks.spec.stack import StackSpec

FSDP_STRATEGIES: Final = {"zero2": "optim_grads", "zero3": "optim_grads_params"}


def job_arguments(stack: StackSpec) -> tuple[str, ...]:
    """What the job of a stack is told; nothing when it trains nothing."""
    if stack.training_run is None:
        return ()
    return megatron_options(
        stack.training_run, stack.dataset_path, stack.checkpoint_dir
    )


def megatron_options(
    training_run: TrainingRun, data_path: str, checkpoint_path: str
) -> tuple[str, ...]:
    """The arguments of a job whose data and checkpoints lie there."""
    training_job = training_run.layouts[0].job
    layout = training_job.layout
    options = {
        "tensor-model-parallel-size": layout.tp,
        "pipeline-model-parallel-size": layout.pp,
        "context-parallel-size": layout.cp,
        "micro-batch-size": int(layout.micro),
        "global-batch-size": training_run.global_batch,
        "seq-length": training_run.sequence_tokens,
        "train-iters": training_run.optimizer_steps,
        "save-interval": max(
            1,
            round(
                training_run.checkpoint_interval_s / training_run.step_pace_s
            ),
        ),
        "save": checkpoint_path,
        "load": checkpoint_path,
        "data-path": data_path,
        "optimizer": training_job.optimizer,
        "method": training_run.method,
    }
    if layout.vpp > 1:
        options["num-virtual-stages-per-pipeline-rank"] = layout.vpp
    if layout.ep > 1:
        options["expert-model-parallel-size"] = layout.ep
    precision = training_job.software.precision
    flags = [precision] if precision in SIXTEEN_BIT else [f"{precision}-format"]
    flags += _sharding_flags(layout)
    flags += ["sequence-parallel"] if layout.tp > 1 else []
    recompute_every = {"full": 1, "layer": 2}.get(
        layout.recompute
    )  # layers of which one is recomputed
    flags += (
        [f"recompute-granularity full --recompute-every {recompute_every}"]
        if recompute_every
        else []
    )
    return (
        *(
            f"--{option_name} {option_value}"
            for option_name, option_value in options.items()
        ),
        *(f"--{flag_text}" for flag_text in flags),
    )


def _sharding_flags(layout: ParallelLayout) -> list[str]:
    """How states are sharded: Megatron's FSDP in the stages beyond the first."""
    flags = ["use-distributed-optimizer"]
    strategy = FSDP_STRATEGIES.get(layout.sharding)
    if strategy:
        flags += [
            "use-megatron-fsdp",
            f"data-parallel-sharding-strategy {strategy}",
            "no-gradient-accumulation-fusion",
            "ckpt-format fsdp_dtensor",
        ]
    if layout.shard_size:
        flags.append(
            "num-distributed-optimizer-instances "
            f"{layout.data_parallel_ranks // layout.shard_size}"
        )
    return flags

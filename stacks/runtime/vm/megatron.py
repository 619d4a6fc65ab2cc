"""What a training job is told: its layout, in the words of Megatron."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from planner.perf.training.enumeration import recomputed_layers
from planner.perf.training.memory import microbatch_group

if TYPE_CHECKING:
    from planner.perf.training.job import ParallelLayout
    from planner.solve.solution import TrainingRun

# What Megatron calls optimizers and formats; a job learns of others from its variables.
OPTIMIZERS: Final = {"adamw": "adam", "sgd": "sgd"}
PRECISIONS: Final = {
    "bf16": ("bf16",),
    "fp16": ("fp16",),
    "fp8": ("bf16", "fp8-format hybrid"),
    "fp8row": ("bf16", "fp8-format hybrid", "fp8-recipe tensorwise"),
    "mxfp8": ("bf16", "fp8-format e4m3", "fp8-recipe mxfp8"),
    # The training image has no argument for it yet.
    "nvfp4": ("bf16",),
}
FSDP_STRATEGIES: Final = {"zero2": "optim_grads", "zero3": "optim_grads_params"}


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
        "save-interval": save_interval(training_run),
        "save": checkpoint_path,
        "load": checkpoint_path,
        "data-path": data_path,
    }
    if training_run.loader is not None:
        options["num-workers"] = training_run.loader.workers
    if training_job.optimizer in OPTIMIZERS:
        options["optimizer"] = OPTIMIZERS[training_job.optimizer]
    if layout.vpp > 1:
        options["num-virtual-stages-per-pipeline-rank"] = layout.vpp
        group_size = microbatch_group(training_job)
        if group_size != layout.pp:
            # Micro-batches that the stages do not divide pass chunks in larger groups.
            options["microbatch-group-size-per-virtual-pipeline-stage"] = (
                group_size
            )
    if layout.ep > 1:
        options["expert-model-parallel-size"] = layout.ep
        options["moe-token-dispatcher-type"] = (
            "alltoall" if training_job.software.sends_per_expert else "flex"
        )
    flags = [
        *PRECISIONS.get(training_job.software.precision, ()),
        *_sharding_flags(layout),
        *(["sequence-parallel"] if layout.tp > 1 else []),
        *_stage_flags(layout, training_job.llm.layers),
        *_recompute_flags(layout, training_job.llm.layers),
    ]
    return (
        *(
            f"--{option_name} {option_value}"
            for option_name, option_value in options.items()
        ),
        *(f"--{flag_text}" for flag_text in flags),
    )


def save_interval(training_run: TrainingRun) -> int:
    """Steps from one checkpoint to the next."""
    return max(
        1,
        round(training_run.checkpoint_interval_s / training_run.step_pace_s),
    )


def _stage_flags(layout: ParallelLayout, layers: int) -> list[str]:
    """How layers are divided: embedding and head take places where layers alone do not divide."""
    if layers % layout.pp == 0:
        return []
    return [
        "account-for-embedding-in-pipeline-split",
        "account-for-loss-in-pipeline-split",
    ]


def _recompute_flags(layout: ParallelLayout, layers: int) -> list[str]:
    """Which activations are recomputed: those of attention, of some of the layers, or all."""
    if layout.recompute == "attention":
        return ["recompute-granularity selective"]
    if layout.recompute == "full":
        return [
            "recompute-granularity full",
            "recompute-method uniform",
            "recompute-num-layers 1",
        ]
    if layout.recompute == "layer":
        return [
            "recompute-granularity full",
            "recompute-method block",
            f"recompute-num-layers {recomputed_layers(layout, layers)}",
        ]
    return []


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

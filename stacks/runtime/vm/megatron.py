"""What a training job is told: its layout, in the words of Megatron."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from planner.facts.accelerator import SIXTEEN_BIT
from planner.perf.training.enumeration import recomputed_layers
from planner.perf.training.memory import microbatch_group

if TYPE_CHECKING:
    from planner.perf.training.job import Job, ParallelLayout, Software
    from planner.solve.solution import TrainingRun

# What Megatron calls optimizers and formats; a job learns of others from its variables.
OPTIMIZERS: Final = {"adamw": "adam", "sgd": "sgd"}
PRECISIONS: Final = {
    "bf16": ("bf16",),
    "fp16": ("fp16",),
    "fp8": ("bf16", "fp8-format hybrid"),
    "fp8row": ("bf16", "fp8-format hybrid", "fp8-recipe tensorwise"),
    "mxfp8": ("bf16", "fp8-format e4m3", "fp8-recipe mxfp8"),
    "nvfp4": ("bf16", "fp4-format e2m1", "fp4-recipe nvfp4"),
}
# The same for modules whose precision is their own: not of scales that are delayed.
MODULE_PRECISIONS: Final = {
    "bf16": {},
    "fp16": {},
    "fp8": {"fp8_quantization_recipe": "tensorwise", "fp8_format": "hybrid"},
    "mxfp8": {"fp8_quantization_recipe": "mxfp8"},
    "nvfp4": {"fp4_quantization_recipe": "nvfp4"},
}
# Modules of experts by name: decoder.layers.3.mlp.experts.linear_fc1, not those of shared ones.
EXPERT_MODULES: Final = "*.experts.*"
MODULES_FILE: Final = "tonnage-precisions.yaml"  # where the job runs
MODULES_VARIABLE: Final = "TONNAGE_MODULE_PRECISIONS"
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
        *_precision_flags(training_job.software),
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


def _precision_flags(software: Software) -> list[str]:
    """In which precision products are: one of all, and a file where experts have their own."""
    if not software.expert_precision:
        return list(PRECISIONS.get(software.precision, ()))
    # Tokens of experts are padded for the precision of the whole model, not of a module.
    leading = (
        software.precision
        if software.expert_precision in SIXTEEN_BIT
        else software.expert_precision
    )
    # What is not quantized keeps its kind of 16 bit.
    wide = "fp16" if software.precision == "fp16" else "bf16"
    flags = [
        wide,
        *PRECISIONS[leading][1:],
        f"te-precision-config-file {MODULES_FILE}",
    ]
    return [*flags, "fp8-recipe tensorwise"] if leading == "fp8" else flags


def megatron_variables(training_job: Job) -> dict[str, str]:
    """Variables that a job of Megatron wants beside its arguments.

    With tensor or context parallelism kernels before Blackwell need one queue to the
    accelerator, which its FSDP forbids (validate_args of megatron/training/arguments.py).
    """
    layout = training_job.layout
    software = training_job.software
    variables = {}
    if (
        layout.tp * layout.cp > 1
        and layout.sharding not in FSDP_STRATEGIES
        and "Blackwell" not in training_job.chip.architecture
    ):
        variables["CUDA_DEVICE_MAX_CONNECTIONS"] = "1"
    if software.expert_precision:
        variables[MODULES_VARIABLE] = _module_precisions(software)
    return variables


def megatron_prelude(training_job: Job) -> tuple[str, ...]:
    """Commands of the shell before the job: the file that its arguments name."""
    if not training_job.software.expert_precision:
        return ()
    return (f'printf %s "${MODULES_VARIABLE}" > {MODULES_FILE}',)


def _module_precisions(software: Software) -> str:
    """The precision of experts and that of all else, as Megatron's file of modules has them.

    The first pattern that matches the name of a module decides. JSON is YAML too.
    """
    precisions = {
        "experts": (EXPERT_MODULES, software.precision_of_experts),
        "others": ("*", software.precision),
    }
    document = {
        "configs": {
            name: {
                "transformer_engine_config_type": "TEQuantizationParams",
                "training_recipe": MODULE_PRECISIONS[precision],
            }
            for name, (_, precision) in precisions.items()
        },
        "matchers": {
            name: {
                "type": "glob",
                "pattern": pattern,
                "config": name,
                "enabled": True,
            }
            for name, (pattern, _) in precisions.items()
        },
    }
    return json.dumps(document)


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

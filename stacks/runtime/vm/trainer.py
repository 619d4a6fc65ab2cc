"""What a training job is told: its layout, in the words of its framework."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Final

from stacks.runtime.vm.megatron import (
    megatron_options,
    megatron_prelude,
    megatron_variables,
    save_interval,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from planner.perf.training.job import Job, ParallelLayout
    from planner.solve.solution import TrainingRun
    from stacks.spec.stack import StackSpec

PAIR: Final = 2  # sequences of a preference
# What Transformers calls optimizers; a job learns of others from its variables.
HF_OPTIMIZERS: Final = {
    "adamw-fp32": "adamw_torch",
    "adam8bit": "adamw_bnb_8bit",
    "adafactor": "adafactor",
    "sgd": "sgd",
}
TITAN_CONVERTERS: Final = {
    "fp8": "quantize.linear.float8",
    "mxfp8": "quantize.linear.mx",
}


def job_arguments(stack: StackSpec) -> tuple[str, ...]:
    """What the job of a stack is told; nothing when it trains nothing."""
    if stack.training_run is None:
        return ()
    return trainer_options(
        stack.training_run, stack.dataset_path, stack.checkpoint_dir
    )


def job_variables(training_run: TrainingRun) -> dict[str, str]:
    """Variables that tell a job what its framework has no argument for."""
    training_job = training_run.layouts[0].job
    framework = training_job.software.framework
    return {
        "TONNAGE_FRAMEWORK": framework,
        "TONNAGE_METHOD": training_run.method,
        "TONNAGE_OPTIMIZER": training_job.optimizer,
        "TONNAGE_PRECISION": training_job.software.precision,
        **(megatron_variables(training_job) if framework == "megatron" else {}),
    }


def job_prelude(training_run: TrainingRun) -> tuple[str, ...]:
    """Commands of the shell that a container runs before the job."""
    return megatron_prelude(training_run.layouts[0].job)


def job_commands(training_run: TrainingRun) -> tuple[str, ...]:
    """Commands of a shell in which a job is then started by hand, on each machine."""
    return (
        *exports(job_variables(training_run)),
        *job_prelude(training_run),
    )


def exports(variables: Mapping[str, str]) -> tuple[str, ...]:
    """Commands of a shell that set variables."""
    return tuple(
        f"export {name}={shlex.quote(value)}"
        for name, value in variables.items()
    )


def trainer_options(
    training_run: TrainingRun, data_path: str, checkpoint_path: str
) -> tuple[str, ...]:
    """The arguments of a job whose data and checkpoints lie there."""
    framework = training_run.layouts[0].job.software.framework
    return TRAINERS[framework](training_run, data_path, checkpoint_path)


def torchtitan_options(
    training_run: TrainingRun, data_path: str, checkpoint_path: str
) -> tuple[str, ...]:
    """The arguments of torchtitan 0.2 (torchtitan/config/job_config.py)."""
    training_job = training_run.layouts[0].job
    layout = training_job.layout
    shard_degree = max(1, layout.shard_group // layout.cp)
    options = {
        "training.dataset_path": data_path,
        "training.seq_len": training_run.sequence_tokens,
        "training.global_batch_size": training_run.global_batch,
        "training.local_batch_size": _local_batch(training_job),
        "training.steps": training_run.optimizer_steps,
        "parallelism.data_parallel_shard_degree": shard_degree,
        "parallelism.data_parallel_replicate_degree": layout.dp // shard_degree,
        "parallelism.tensor_parallel_degree": layout.tp,
        "parallelism.context_parallel_degree": layout.cp,
        "checkpoint.folder": checkpoint_path,
        "checkpoint.interval": save_interval(training_run),
        **_titan_experts(layout),
        **_titan_pipeline(training_job),
        **_titan_recomputation(layout),
    }
    if training_run.loader is not None:
        options["training.dataloader.num_workers"] = training_run.loader.workers
    flags = ["checkpoint.enable", "compile.enable"]
    converter = TITAN_CONVERTERS.get(training_job.software.precision)
    if converter:
        options["model.converters"] = converter
    return _words(options, flags)


def _local_batch(training_job: Job) -> int:
    """Sequences of a rank: a pipeline cuts those of a whole step into micro-batches."""
    layout = training_job.layout
    micro_batches = training_job.micro_batches if layout.pp > 1 else 1
    return int(layout.micro * micro_batches)


def _titan_experts(layout: ParallelLayout) -> dict[str, object]:
    """Experts over data parallel ranks and all of a tensor group, whole on each of them."""
    if layout.ep == 1:
        return {}
    return {
        "parallelism.expert_parallel_degree": layout.ep,
        "parallelism.expert_tensor_parallel_degree": 1,
        "parallelism.expert_parallel_comm_backend": "standard",
    }


def _titan_pipeline(training_job: Job) -> dict[str, object]:
    layout = training_job.layout
    if layout.pp == 1:
        return {}
    stage_layers = int(training_job.stage_layers(min(1, layout.pp - 1)))
    return {
        "parallelism.pipeline_parallel_degree": layout.pp,
        "parallelism.pipeline_parallel_schedule": "Interleaved1F1B"
        if layout.vpp > 1
        else "1F1B",
        "parallelism.pipeline_parallel_layers_per_stage": stage_layers
        // layout.vpp,
        "parallelism.pipeline_parallel_microbatch_size": int(layout.micro),
    }


def _titan_recomputation(layout: ParallelLayout) -> dict[str, object]:
    if layout.recompute != "layer":
        return {"activation_checkpoint.mode": layout.recompute}
    return {
        "activation_checkpoint.mode": "selective",
        # One layer of so many is recomputed.
        "activation_checkpoint.selective_ac_option": round(
            1 / layout.layer_share
        ),
    }


def hf_options(
    training_run: TrainingRun, data_path: str, checkpoint_path: str
) -> tuple[str, ...]:
    """The arguments of Transformers and TRL (TrainingArguments, SFTConfig, ModelConfig)."""
    training_job = training_run.layouts[0].job
    layout = training_job.layout
    options = {
        "dataset_name": data_path,
        "output_dir": checkpoint_path,
        "max_length": training_run.sequence_tokens,
        "max_steps": training_run.optimizer_steps,
        "save_steps": save_interval(training_run),
        "per_device_train_batch_size": _samples(training_job),
        "gradient_accumulation_steps": int(training_job.micro_batches),
        "gradient_checkpointing": layout.recompute != "none",
    }
    optimizer = HF_OPTIMIZERS.get(training_job.optimizer)
    if optimizer:
        options["optim"] = optimizer
    if layout.sharding == "zero3":
        options["fsdp"] = "hybrid_shard" if layout.shard_size else "full_shard"
    if training_job.frozen_bytes:
        options["lora_r"] = training_job.lora_rank
    if training_run.loader is not None:
        options["dataloader_num_workers"] = training_run.loader.workers
    flags = [_sixteen_bit(training_job)]
    flags += ["use_peft"] if training_job.frozen_bytes else []
    flags += ["load_in_4bit"] if _is_packed(training_job) else []
    return _words(options, flags)


def axolotl_options(
    training_run: TrainingRun, data_path: str, checkpoint_path: str
) -> tuple[str, ...]:
    """The options of Axolotl (axolotl/utils/schemas), which go over those of its file."""
    training_job = training_run.layouts[0].job
    layout = training_job.layout
    options = {
        "dataset-prepared-path": data_path,
        "output-dir": checkpoint_path,
        "sequence-len": training_run.sequence_tokens,
        "max-steps": training_run.optimizer_steps,
        "save-steps": save_interval(training_run),
        "micro-batch-size": _samples(training_job),
        "gradient-accumulation-steps": int(training_job.micro_batches),
        "gradient-checkpointing": str(layout.recompute != "none").lower(),
    }
    if _sixteen_bit(training_job) == "bf16":
        options["bf16"] = "true"
    optimizer = HF_OPTIMIZERS.get(training_job.optimizer)
    if optimizer:
        options["optimizer"] = optimizer
    if layout.sharding == "zero3":
        shard_degree = layout.shard_group
        options |= {
            "fsdp-version": 2,
            "dp-shard-size": shard_degree,
            "dp-replicate-size": layout.data_parallel_ranks // shard_degree,
        }
    if training_job.frozen_bytes:
        adapter = "qlora" if _is_packed(training_job) else "lora"
        options |= {"adapter": adapter, "lora-r": training_job.lora_rank}
    if training_job.reference != "none":
        options["rl"] = "dpo"
    if training_run.loader is not None:
        options["dataloader-num-workers"] = training_run.loader.workers
    flags = ["auto-resume-from-checkpoints"]
    flags += ["load-in-4bit"] if _is_packed(training_job) else []
    flags += ["fp16"] if _sixteen_bit(training_job) == "fp16" else []
    return _words(options, flags)


def _samples(training_job: Job) -> int:
    """Samples of a micro-batch: a preference is one, of two sequences."""
    sequences = int(training_job.layout.micro)
    return sequences if training_job.reference == "none" else sequences // PAIR


def _is_packed(training_job: Job) -> bool:
    """Whether the frozen weights are in 4 bit."""
    return 0 < training_job.frozen_bytes < 1


def _sixteen_bit(training_job: Job) -> str:
    return "fp16" if training_job.software.precision == "fp16" else "bf16"


def _words(options: dict[str, object], flags: list[str]) -> tuple[str, ...]:
    return (
        *(f"--{name} {value}" for name, value in options.items()),
        *(f"--{flag}" for flag in flags),
    )


TRAINERS: Final[
    dict[str, Callable[[TrainingRun, str, str], tuple[str, ...]]]
] = {
    "megatron": megatron_options,
    "torchtitan": torchtitan_options,
    "hf": hf_options,
    "axolotl": axolotl_options,
}

"""Reads one row of a table of training runs; columns that hold measurements are never read."""

from __future__ import annotations

import math
from functools import cache
from typing import TYPE_CHECKING, Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from planner.estimate import names
from planner.estimate.cell import (
    Row,
    read_cell,
    read_choice,
    read_count,
    read_flag,
    read_number,
)
from planner.estimate.inference_row import HOST_GPUS, chip_cores
from planner.estimate.model_row import row_model
from planner.estimate.names import RefusedError
from planner.estimate.software import row_software, training_framework
from planner.facts import table
from planner.facts.accelerator import SIXTEEN_BIT
from planner.facts.further_prediction import with_further_predictions
from planner.perf.training.job import Job, ParallelLayout
from planner.perf.training.model_states import (
    frozen_bytes,
    optimizers,
    reference_model,
)

if TYPE_CHECKING:
    from planner.facts.accelerator import Accelerator
    from planner.facts.llm import Llm
    from planner.perf.training.job import (
        Recompute,
        Schedule,
        Sharding,
        Software,
    )

METHODS: Final = (
    "full",
    "lora",
    "qlora",
    # The words of a spec.
    "pretrain",
    "continued",
    "finetune",
    "dpo",
    "dpo-lora",
)
SHARDINGS: Final[tuple[Sharding, ...]] = ("none", "zero1", "zero2", "zero3")
RECOMPUTE_KINDS: Final[
    tuple[Literal["none", "selective", "experts", "layer", "full"], ...]
] = ("none", "selective", "experts", "layer", "full")
SCHEDULES: Final[tuple[Schedule, ...]] = ("1f1b", "dualpipe")
DEFAULT_NETWORK_GB_S: Final = 25.0  # of an architecture that nobody stated
DEFAULT_LATENCY_S: Final = 30e-6
US_PER_SECOND: Final = 1e6
DEFAULT_GPUS: Final = 1024  # accelerators of a run that does not say how many
# Elements of one activation at the micro-batch that is taken when none is stated.
ACTIVATION_SIZE: Final = 80e6
MAX_BUBBLE: Final = 0.1  # share of a step that idles, above which a pipeline is interleaved more
# Of a stage, in papers whose tables of memory state none.
PAPER_CHUNKS: Final = 3
CHUNK_LAYERS: Final = 4  # layers of an interleaved chunk where none is stated
ADAPTER_RANK: Final = 8  # of adapters
# Memory from which tensor parallelism is not assumed for adapters.
LARGE_GPU_GIB: Final = 100.0
FROZEN_8BIT_BYTES: Final = 1.1  # with scales and what stays in 16 bit
DEFAULT_TP: Final = 4


class ParsedJob(Struct, frozen=True):
    """The job of a row, and whether its layout or size had to be assumed."""

    job: Job
    is_assumed: bool


def parse_job(table_row: Row) -> ParsedJob:
    """Return the job of a row; raises RefusedError with what is wrong."""
    language_model = with_further_predictions(
        row_model(table_row), read_count(table_row, "mtp_layers", 0)
    )
    accelerator = names.resolve_gpu(table_row["gpu"])
    if not (accelerator.bandwidth_gb_s and accelerator.bf16_tflops):
        raise RefusedError(
            f"the data sheet of {accelerator.accelerator} is not known"
        )
    if accelerator.link == "none":
        accelerator = replace(accelerator, link_domain=HOST_GPUS)
    software_facts = row_software(table_row, language_model, accelerator)
    gpu_count = read_count(table_row, "n_gpus", 0) or _stated_gpus(
        table_row, accelerator
    )
    sequence_tokens = int(read_number(table_row, "seq_len"))
    is_assumed = (
        not gpu_count or not sequence_tokens or language_model.is_assumed
    )
    sequence_tokens = sequence_tokens or (
        2048
        if software_facts.kernels == "xla" or language_model.family == "gpt"
        else 8192
    )
    parallel_layout, global_batch, is_guessed = _row_layout(
        table_row,
        language_model,
        accelerator,
        (software_facts, gpu_count or DEFAULT_GPUS, sequence_tokens),
    )
    frozen_bytes_each = _frozen_param_bytes(table_row, software_facts)
    network = _row_network(table_row, accelerator)
    training_job = Job(
        llm=language_model,
        chip=accelerator,
        layout=parallel_layout,
        software=software_facts,
        sequence_tokens=sequence_tokens,
        global_batch=global_batch,
        network_bytes_s=network.gb_s * 1e9,
        network_latency_s=network.latency_s,
        optimizer=_row_optimizer(table_row, software_facts, gpu_count),
        frozen_bytes=frozen_bytes_each,
        lora_rank=ADAPTER_RANK if frozen_bytes_each else 0,
        offload_states=read_flag(table_row, "offload_states"),
        fused_backward=read_flag(table_row, "optimizer_in_backward"),
        reference=reference_model(_row_method(table_row)),
    )
    return ParsedJob(_with_pairs(training_job), is_assumed or is_guessed)


def _with_pairs(training_job: Job) -> Job:
    """Return a job whose micro-batches have at least a pair, where it rates preferences."""
    parallel_layout = training_job.layout
    sequences = float(training_job.min_sequences)
    if training_job.reference == "none" or parallel_layout.micro >= sequences:
        return training_job
    return training_job._replace(
        layout=parallel_layout._replace(micro=sequences),
        global_batch=max(
            training_job.global_batch, sequences * parallel_layout.dp
        ),
    )


def _stated_gpus(table_row: Row, accelerator: Accelerator) -> int:
    tp_degree, pp_degree, cp_degree = _stated_degrees(table_row, accelerator)
    dp_degree = read_count(table_row, "dp", 0)
    return tp_degree * math.prod(
        max(1, degree) for degree in (pp_degree, cp_degree, dp_degree)
    )


def _stated_degrees(
    table_row: Row, accelerator: Accelerator
) -> tuple[int, int, int]:
    """Return tensor, pipeline and context parallelism in accelerators, 0 where not stated."""
    tp_degree, pp_degree, cp_degree = (
        read_count(table_row, column, 0) for column in ("tp", "pp", "cp")
    )
    dp_degree = read_count(table_row, "dp", 0)
    gpu_count = read_count(table_row, "n_gpus", 0)
    stated_ranks = tp_degree * max(1, pp_degree) * max(1, cp_degree) * dp_degree
    # Chips with several cores count these, unless all degrees make up the chips.
    counts_chips = stated_ranks > 0 and stated_ranks == gpu_count
    cores = 1 if counts_chips else chip_cores(accelerator)
    return math.ceil(tp_degree / cores), pp_degree, cp_degree


def _row_layout(
    table_row: Row,
    language_model: Llm,
    accelerator: Accelerator,
    run_facts: tuple[Software, int, int],
) -> tuple[ParallelLayout, float, bool]:
    """Return the layout, the global batch in sequences, and whether the layout was assumed."""
    software_facts, gpu_count, sequence_tokens = run_facts
    tp_degree, pp_degree, cp_degree = _stated_degrees(table_row, accelerator)
    global_batch, micro_batch = (
        float(read_count(table_row, column, 0))
        for column in ("global_batch", "micro_batch")
    )
    accumulation_steps = read_count(table_row, "grad_accum", 0)
    sharding_kind = _row_sharding(table_row, software_facts)
    is_guessed = not tp_degree
    if is_guessed:
        tp_degree, pp_degree, cp_degree, sharding_kind = _default_layout(
            table_row,
            software_facts,
            accelerator,
            (gpu_count, global_batch, micro_batch or 1.0, accumulation_steps),
        )
        global_batch, micro_batch = _default_batch(
            accelerator, gpu_count, global_batch, micro_batch
        )
    pp_degree = max(1, pp_degree)
    cp_degree = max(1, cp_degree)
    model_ranks = tp_degree * pp_degree * cp_degree
    if not is_guessed:
        _check_multiple(gpu_count, tp_degree, pp_degree, cp_degree)
    stated_dp = 0 if is_guessed else read_count(table_row, "dp", 0)
    dp_degree = stated_dp or max(1, gpu_count // model_ranks)
    global_batch, micro_batch = _batch_sizes(
        _StatedBatch(global_batch, micro_batch, accumulation_steps),
        software_facts,
        language_model,
        sequence_tokens,
        dp_degree=dp_degree,
        pp_degree=pp_degree,
    )
    rank_micro_batches = global_batch / dp_degree / micro_batch
    parallel_layout = ParallelLayout(
        tp=tp_degree,
        pp=pp_degree,
        vpp=_pipeline_chunks(
            table_row,
            language_model,
            software_facts,
            (pp_degree, rank_micro_batches),
        ),
        cp=cp_degree,
        dp=dp_degree,
        ep=read_count(table_row, "ep", 1) if language_model.experts else 1,
        sharding=sharding_kind,
        micro=micro_batch,
        shard_size=read_count(table_row, "shard_size", 0),
        recompute=_row_recompute(table_row, software_facts),
        schedule=read_choice(table_row, "schedule", SCHEDULES) or "1f1b",
    )
    return parallel_layout, global_batch, is_guessed


def _check_multiple(
    gpu_count: int, tp_degree: int, pp_degree: int, cp_degree: int
) -> None:
    """Raise RefusedError when a layout does not divide the accelerators."""
    if gpu_count % (tp_degree * pp_degree * cp_degree):
        degrees = f"tp {tp_degree} x pp {pp_degree} x cp {cp_degree}"
        raise RefusedError(f"n_gpus {gpu_count} is not a multiple of {degrees}")


def _default_batch(
    accelerator: Accelerator,
    gpu_count: int,
    global_batch: float,
    micro_batch: float,
) -> tuple[float, float]:
    """Return the batches of a run that states no layout; TPU runs take one sequence a chip."""
    is_tpu = accelerator.vendor == "google"
    if not micro_batch and (is_tpu or global_batch):
        micro_batch = 1.0
    if not global_batch and is_tpu:
        global_batch = float(gpu_count)
    return global_batch, micro_batch


class _StatedBatch(Struct, frozen=True):
    """What a row states of its batch in sequences; 0 where it states nothing."""

    global_batch: float
    micro_batch: float
    accumulation_steps: int


def _batch_sizes(
    stated: _StatedBatch,
    software_facts: Software,
    language_model: Llm,
    sequence_tokens: int,
    *,
    dp_degree: int,
    pp_degree: int,
) -> tuple[float, float]:
    """Return the global batch and the micro-batch in sequences, as stated or as usual."""
    global_batch = stated.global_batch
    micro_batch = stated.micro_batch
    accumulation_steps = stated.accumulation_steps
    if (
        software_facts.is_torch and pp_degree > 1 and micro_batch >= pp_degree
    ):  # the local batch is cut into pp micro-batches
        global_batch = global_batch or micro_batch * dp_degree
        micro_batch = micro_batch / pp_degree
    if not micro_batch:
        batch_per_rank = global_batch / dp_degree if global_batch else 64.0
        micro_batch = (
            max(1.0, batch_per_rank / accumulation_steps)
            if accumulation_steps
            else min(
                _default_microbatch(language_model, sequence_tokens, pp_degree),
                max(1.0, batch_per_rank),
            )
        )
    global_batch = global_batch or micro_batch * dp_degree
    micro_batch = (
        max(global_batch / dp_degree, 1e-3)
        if global_batch < dp_degree * micro_batch
        else micro_batch
    )
    return global_batch, micro_batch


def _default_layout(
    table_row: Row,
    software_facts: Software,
    accelerator: Accelerator,
    run_sizes: tuple[int, float, float, int],
) -> tuple[int, int, int, Sharding]:
    """Take a layout for a run that states none: from its batch, else sharded over everything."""
    gpu_count, global_batch, micro_batch, accumulation_steps = run_sizes
    if accelerator.vendor == "google" or not global_batch:
        return 1, 1, 1, "zero3"
    dp_degree = (
        max(1, round(global_batch / micro_batch / accumulation_steps))
        if accumulation_steps
        else gpu_count
    )
    model_group_gpus = max(1, gpu_count // dp_degree)
    if _frozen_param_bytes(table_row, software_facts):
        tp_degree = min(
            model_group_gpus,
            DEFAULT_TP if accelerator.memory_gib < LARGE_GPU_GIB else 1,
        )
        return tp_degree, 1, model_group_gpus // tp_degree, "zero1"
    tp_degree = min(model_group_gpus, DEFAULT_TP)
    return tp_degree, max(1, model_group_gpus // tp_degree), 1, "zero1"


def _default_microbatch(
    language_model: Llm, sequence_tokens: int, pp_degree: int
) -> float:
    """The micro-batch at which one activation reaches 80 million elements, a power of two.

    Pipelines of mixtures take one sequence: each stage holds those of all stages after it.
    """
    if language_model.experts and pp_degree > 1:
        return 1.0
    return float(
        2
        ** max(
            0,
            math.floor(
                math.log2(
                    max(
                        1.0,
                        ACTIVATION_SIZE
                        / (sequence_tokens * language_model.hidden),
                    )
                )
            ),
        )
    )


def _pipeline_chunks(
    table_row: Row,
    language_model: Llm,
    software_facts: Software,
    pipeline_sizes: tuple[int, float],
) -> int:
    """Interleaved chunks of a stage; where none are stated, four layers each in Megatron.

    Since chunks may be of any size, they are taken finer where the bubble would be large.
    """
    stated_chunks, (pp_degree, microbatch_count) = (
        read_count(table_row, "vpp", 0),
        pipeline_sizes,
    )
    if stated_chunks:
        return stated_chunks
    if pp_degree == 1 or language_model.experts or software_facts.is_torch:
        return 1
    if read_cell(table_row, "kind"):
        divides = language_model.layers % (PAPER_CHUNKS * pp_degree) == 0
        return PAPER_CHUNKS if divides else 1
    usual_chunks = (
        language_model.layers // pp_degree // CHUNK_LAYERS
        if software_facts.kernels in ("te", "megatron21")
        else 1
    )
    bubble_chunks = (
        math.ceil((pp_degree - 1) / microbatch_count / MAX_BUBBLE)
        if software_facts.kernels == "te"
        else 1
    )
    return max(
        1,
        usual_chunks,
        min(math.ceil(language_model.layers / pp_degree), bubble_chunks),
    )


def _row_sharding(table_row: Row, software_facts: Software) -> Sharding:
    """What is cut over data parallel ranks; fused kernels cut the optimizer by themselves.

    So does a framework that is not listed: next to none leaves it whole.
    """
    sharding_kind = read_choice(table_row, "sharding", SHARDINGS)
    cuts_optimizer = software_facts.kernels == "te" or not training_framework(
        table_row
    )
    return sharding_kind or ("zero1" if cuts_optimizer else "none")


def _row_recompute(table_row: Row, software_facts: Software) -> Recompute:
    """What is recomputed; as much as memory makes necessary when nobody says."""
    recompute = read_choice(table_row, "recompute", RECOMPUTE_KINDS)
    if recompute == "selective":
        return "ops" if software_facts.is_torch else "attention"
    return recompute or "forced"


def _row_method(table_row: Row) -> str:
    return read_choice(table_row, "method", METHODS) or "full"


def _frozen_param_bytes(table_row: Row, software_facts: Software) -> float:
    """Bytes of a parameter that is not trained; fused kernels keep it in 8 bit when they can."""
    method = _row_method(table_row)
    is_8bit = (
        software_facts.kernels == "te"
        and software_facts.precision not in SIXTEEN_BIT
    )
    return (
        FROZEN_8BIT_BYTES
        if method in ("lora", "dpo-lora") and is_8bit
        else frozen_bytes(method)
    )


def _row_optimizer(
    table_row: Row, software_facts: Software, gpu_count: int
) -> str:
    """The optimizer of a row, or the one that its framework takes by itself."""
    optimizer = read_choice(table_row, "optimizer", tuple(optimizers()))
    if optimizer:
        return optimizer
    framework = training_framework(table_row)
    if framework == "megatron-bridge":
        return "adamw-16bit"  # its recipes reduce gradients in 16 bit
    if framework == "torchtune":
        # Its recipes for one accelerator page the states to the host.
        return "paged" if gpu_count == 1 else "adamw-bf16"
    return "adamw-fp32" if software_facts.is_torch else "adamw"


class _Network(Struct, frozen=True):
    """The usual network of an architecture: GB/s of an accelerator one way, and latency."""

    gb_s: float
    latency_s: float


@cache
def _networks() -> dict[str, _Network]:
    column_types = {
        "architecture": table.nonempty_text,
        "gb_s": table.real_between(0.1, 10_000),
        "latency_us": table.real_between(1, 10_000),
        "meaning": table.any_text,
        **table.SOURCE_COLUMNS,
    }
    return {
        network_row["architecture"]: _Network(
            network_row["gb_s"], network_row["latency_us"] / US_PER_SECOND
        )
        for network_row in table.load_rows(
            "planner.estimate", "networks.csv", column_types
        )
    }


def _row_network(table_row: Row, accelerator: Accelerator) -> _Network:
    """Return the network beyond the link: as stated, else usual for the architecture."""
    usual = _networks().get(
        accelerator.architecture,
        _Network(DEFAULT_NETWORK_GB_S, DEFAULT_LATENCY_S),
    )
    stated_gb_s = read_number(table_row, "network_gb_s")
    return _Network(stated_gb_s or usual.gb_s, usual.latency_s)

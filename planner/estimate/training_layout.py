"""The parallel layout of a row of training: what it states, and a guess of what it leaves blank.

What is stated is never changed. The rest is as usual where that fits memory, else the smallest
tensor parallelism that fits, then the smallest pipeline.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from msgspec import Struct

from planner.estimate.cell import Row, read_cell, read_choice, read_count
from planner.estimate.names import RefusedError
from planner.estimate.software import training_framework
from planner.facts.accelerator import chip_cores
from planner.perf.training.job import ParallelLayout
from planner.perf.training.memory import exceeds_memory
from planner.perf.training.model_states import model_states
from planner.units import BYTES_PER_GIB

if TYPE_CHECKING:
    from collections.abc import Iterator

    from planner.facts.accelerator import Accelerator
    from planner.facts.llm import Llm
    from planner.perf.training.job import (
        Job,
        Recompute,
        Schedule,
        Sharding,
        Software,
    )

SHARDINGS: Final[tuple[Sharding, ...]] = ("none", "zero1", "zero2", "zero3")
RECOMPUTE_KINDS: Final[
    tuple[Literal["none", "selective", "experts", "layer", "full"], ...]
] = ("none", "selective", "experts", "layer", "full")
SCHEDULES: Final[tuple[Schedule, ...]] = ("1f1b", "dualpipe")
DEFAULT_GPUS: Final = 1024  # accelerators of a run that does not say how many
# Elements of one activation at the micro-batch that is taken when none is stated.
ACTIVATION_SIZE: Final = 80e6
MAX_BUBBLE: Final = 0.1  # share of a step that idles, above which a pipeline is interleaved more
# Of a stage, in papers whose tables of memory state none.
PAPER_CHUNKS: Final = 3
CHUNK_LAYERS: Final = 4  # layers of an interleaved chunk where none is stated
# Memory from which tensor parallelism is not assumed for adapters.
LARGE_GPU_GIB: Final = 100.0
DEFAULT_TP: Final = 4
RANK_BATCH: Final = (
    64.0  # sequences of a rank and step of a run that states no batch
)


class Degrees(NamedTuple):
    """Degrees of parallelism in accelerators, and the sharding: 0 and None where not stated."""

    tp: int
    pp: int
    cp: int
    dp: int
    sharding: Sharding | None

    @property
    def other_ranks(self) -> int:
        """Ranks of all stated kinds of parallelism but that of tensors."""
        return max(1, self.pp) * max(1, self.cp) * max(1, self.dp)


class _RowBatch(Struct, frozen=True):
    """What a row states of its batch in sequences; 0 where it states nothing."""

    global_batch: float
    micro_batch: float
    accumulation_steps: int


def stated_degrees(table_row: Row, accelerator: Accelerator) -> Degrees:
    """Return what a row states of its layout."""
    tp_degree, pp_degree, cp_degree, dp_degree = (
        read_count(table_row, column, 0) for column in ("tp", "pp", "cp", "dp")
    )
    gpu_count = read_count(table_row, "n_gpus", 0)
    stated_ranks = tp_degree * max(1, pp_degree) * max(1, cp_degree) * dp_degree
    # Chips with several cores count these, unless all degrees make up the chips.
    counts_chips = stated_ranks > 0 and stated_ranks == gpu_count
    cores = 1 if counts_chips else chip_cores(accelerator)
    return Degrees(
        math.ceil(tp_degree / cores),
        pp_degree,
        cp_degree,
        dp_degree,
        read_choice(table_row, "sharding", SHARDINGS),
    )


def stated_gpus(table_row: Row, accelerator: Accelerator) -> int:
    """Return the accelerators that a row states, itself or by its layout; 0 if by neither."""
    stated = stated_degrees(table_row, accelerator)
    by_layout = (
        max(1, stated.tp) * stated.other_ranks if stated.tp or stated.dp else 0
    )
    return read_count(table_row, "n_gpus", by_layout)


def lay_out(table_row: Row, job: Job, gpu_count: int) -> tuple[Job, bool]:
    """Return a job in the layout and with the batch of its row, and whether it was assumed.

    Accelerators that nothing states (0) are 1,024, or the next number that the layout divides.
    Raises RefusedError when what is stated does not divide the accelerators.
    """
    stated = stated_degrees(table_row, job.chip)
    gpu_count = gpu_count or (
        math.ceil(DEFAULT_GPUS / stated.other_ranks) * stated.other_ranks
    )
    _check_multiple(gpu_count, stated)
    row_batch = _RowBatch(
        float(read_count(table_row, "global_batch", 0)),
        float(read_count(table_row, "micro_batch", 0)),
        read_count(table_row, "grad_accum", 0),
    )
    stated = _with_implied(table_row, stated, gpu_count)
    if stated.tp:
        sharding = stated.sharding or _usual_sharding(table_row, job.software)
        layout_job = _laid_out(
            table_row,
            job,
            _filled(stated._replace(sharding=sharding), gpu_count),
            row_batch,
        )
        return layout_job, False
    usual = _usual_degrees(job, stated, row_batch, gpu_count)
    row_batch = _default_batch(job.chip, gpu_count, row_batch)
    usual_job = _laid_out(table_row, job, _filled(usual, gpu_count), row_batch)
    if _fits(usual_job):
        return usual_job, True
    # Sharding that nobody states may be cut further, where nothing else fits.
    shardings = dict.fromkeys((usual.sharding, stated.sharding or "zero3"))
    other_jobs = (
        _laid_out(table_row, job, _filled(other, gpu_count), row_batch)
        for sharding in shardings
        for other in _other_degrees(
            job, stated._replace(sharding=sharding), gpu_count
        )
    )
    # What fits in no layout is answered in the usual one.
    return next(filter(_fits, other_jobs), usual_job), True


def _check_multiple(gpu_count: int, stated: Degrees) -> None:
    """Raise RefusedError when a layout does not divide the accelerators."""
    shown = {
        "tp": max(1, stated.tp),
        "pp": max(1, stated.pp),
        "cp": max(1, stated.cp),
    }
    if not stated.tp:
        # Beside a stated tp the accelerators are those of all other degrees.
        shown = {"pp": shown["pp"], "cp": shown["cp"], "dp": max(1, stated.dp)}
    if gpu_count % math.prod(shown.values()):
        degrees = " x ".join(f"{name} {count}" for name, count in shown.items())
        raise RefusedError(f"n_gpus {gpu_count} is not a multiple of {degrees}")


def _with_implied(table_row: Row, stated: Degrees, gpu_count: int) -> Degrees:
    """Return degrees with the tensor parallelism that the other ones leave, where it is one."""
    left_ranks = gpu_count // stated.other_ranks
    is_implied = left_ranks == 1 or (stated.pp > 0 and stated.cp > 0)
    if (
        stated.tp
        or not stated.dp
        or not is_implied
        or not read_cell(table_row, "n_gpus")
    ):
        return stated
    return stated._replace(tp=left_ranks)


def _filled(degrees: Degrees, gpu_count: int) -> Degrees:
    """Return degrees without blanks: what is left of the accelerators is data parallelism."""
    tp_degree, pp_degree, cp_degree = (
        max(1, degree) for degree in (degrees.tp, degrees.pp, degrees.cp)
    )
    return degrees._replace(
        tp=tp_degree,
        pp=pp_degree,
        cp=cp_degree,
        dp=degrees.dp
        or max(1, gpu_count // (tp_degree * pp_degree * cp_degree)),
    )


def _usual_degrees(
    job: Job, stated: Degrees, row_batch: _RowBatch, gpu_count: int
) -> Degrees:
    """Return the usual layout of a run that states no tensor parallelism.

    It follows from data parallelism, else from the batch. Without either everything is sharded.
    """
    is_sharded = job.chip.vendor == "google" or not row_batch.global_batch
    sharding = stated.sharding or ("zero3" if is_sharded else "zero1")
    if is_sharded and not stated.dp:
        return stated._replace(tp=1, sharding=sharding)
    model_ranks = max(1, stated.pp) * max(1, stated.cp)
    dp_degree = stated.dp or _batch_ranks(row_batch, gpu_count // model_ranks)
    is_stated = stated.other_ranks > 1
    if is_stated:
        dp_degree = _divisors(gpu_count // model_ranks, dp_degree)[-1]
    left_ranks = max(1, gpu_count // (dp_degree * model_ranks))
    is_small = job.chip.memory_gib < LARGE_GPU_GIB
    most_tensor = DEFAULT_TP if is_small or not job.frozen_bytes else 1
    tp_degree = (
        _divisors(left_ranks, most_tensor)[-1]
        if is_stated
        else min(left_ranks, most_tensor)
    )
    return _with_rest(
        stated._replace(tp=tp_degree, sharding=sharding),
        left_ranks // tp_degree,
        cuts_context=bool(job.frozen_bytes),
    )


def _batch_ranks(row_batch: _RowBatch, usual_ranks: int) -> int:
    """Return the data parallelism that makes up a batch, as usual where no steps are stated."""
    if not row_batch.accumulation_steps:
        return usual_ranks
    micro_batches = row_batch.global_batch / (row_batch.micro_batch or 1.0)
    return max(1, round(micro_batches / row_batch.accumulation_steps))


def _with_rest(
    degrees: Degrees, rest_ranks: int, *, cuts_context: bool
) -> Degrees:
    """Return degrees with ranks that are left as stages, or as parts of the context.

    Where both are stated they are tensor parallelism.
    """
    if cuts_context and not degrees.cp:
        return degrees._replace(cp=rest_ranks)
    if not degrees.pp:
        return degrees._replace(pp=rest_ranks)
    if not degrees.cp:
        return degrees._replace(cp=rest_ranks)
    return degrees._replace(tp=degrees.tp * rest_ranks)


def _other_degrees(
    job: Job, stated: Degrees, gpu_count: int
) -> Iterator[Degrees]:
    """Yield layouts from the smallest tensor parallelism on, then from the smallest pipeline on.

    Tensor parallelism divides the heads and stays within a link. With data parallelism that is
    stated the other degrees make up the rest.
    """
    left_ranks = gpu_count // stated.other_ranks
    tensor_degrees = [
        tp_degree
        for tp_degree in _divisors(left_ranks, job.chip.link_domain)
        if job.llm.heads % tp_degree == 0
    ]
    for tp_degree in tensor_degrees:
        degrees = stated._replace(tp=tp_degree)
        yield (
            _with_rest(degrees, left_ranks // tp_degree, cuts_context=False)
            if stated.dp
            else degrees
        )
    if stated.pp or stated.dp:
        return
    most_tensor = tensor_degrees[-1]
    for pp_degree in _divisors(left_ranks // most_tensor, job.llm.layers):
        yield stated._replace(tp=most_tensor, pp=pp_degree)


def _divisors(number: int, limit: int) -> list[int]:
    """Return the divisors of a number up to a limit, in order."""
    return [
        divisor
        for divisor in range(1, min(number, limit) + 1)
        if number % divisor == 0
    ]


def _fits(job: Job) -> bool:
    """Whether a job fits memory and each stage has a layer.

    XLA decides by itself what it keeps, and published runs of it kept less than is counted: of
    these the states alone are to fit.
    """
    if job.layout.pp > job.llm.layers:
        return False
    if job.software.kernels == "xla":
        return model_states(job).total <= job.chip.memory_gib * BYTES_PER_GIB
    return not exceeds_memory(job)


def _laid_out(
    table_row: Row, job: Job, degrees: Degrees, row_batch: _RowBatch
) -> Job:
    """Return a job in a layout without blanks, with the batch of its row."""
    global_batch, micro_batch = _batch_sizes(job, degrees, row_batch)
    rank_micro_batches = global_batch / degrees.dp / micro_batch
    return _with_pairs(
        job._replace(
            global_batch=global_batch,
            layout=ParallelLayout(
                tp=degrees.tp,
                pp=degrees.pp,
                vpp=_pipeline_chunks(
                    table_row,
                    job.llm,
                    job.software,
                    (degrees.pp, rank_micro_batches),
                ),
                cp=degrees.cp,
                dp=degrees.dp,
                ep=read_count(table_row, "ep", 1) if job.llm.experts else 1,
                sharding=degrees.sharding or "none",
                micro=micro_batch,
                shard_size=read_count(table_row, "shard_size", 0),
                recompute=_row_recompute(table_row, job.software),
                schedule=read_choice(table_row, "schedule", SCHEDULES)
                or "1f1b",
            ),
        )
    )


def _default_batch(
    accelerator: Accelerator, gpu_count: int, row_batch: _RowBatch
) -> _RowBatch:
    """Return the batch of a run that states no layout.

    TPU runs take one sequence a chip, and those of a stated batch all of it in one step: their
    framework accumulates nothing by itself.
    """
    is_tpu = accelerator.vendor == "google"
    global_batch = row_batch.global_batch or (
        float(gpu_count) if is_tpu else 0.0
    )
    usual_micro = 1.0 if global_batch else 0.0
    if is_tpu and not row_batch.accumulation_steps:
        usual_micro = max(1.0, global_batch // gpu_count)
    return _RowBatch(
        global_batch,
        row_batch.micro_batch or usual_micro,
        row_batch.accumulation_steps,
    )


def _batch_sizes(
    job: Job, degrees: Degrees, row_batch: _RowBatch
) -> tuple[float, float]:
    """Return the global batch and the micro-batch in sequences, as stated or as usual."""
    global_batch = row_batch.global_batch
    micro_batch = row_batch.micro_batch
    accumulation_steps = row_batch.accumulation_steps
    if (
        job.software.is_torch and degrees.pp > 1 and micro_batch >= degrees.pp
    ):  # the local batch is cut into pp micro-batches
        global_batch = global_batch or micro_batch * degrees.dp
        micro_batch = micro_batch / degrees.pp
    if not micro_batch:
        batch_per_rank = (
            global_batch / degrees.dp if global_batch else RANK_BATCH
        )
        micro_batch = (
            max(1.0, batch_per_rank / accumulation_steps)
            if accumulation_steps
            else min(
                _default_microbatch(job.llm, job.sequence_tokens, degrees.pp),
                max(1.0, batch_per_rank),
            )
        )
    global_batch = global_batch or micro_batch * degrees.dp
    micro_batch = (
        max(global_batch / degrees.dp, 1e-3)
        if global_batch < degrees.dp * micro_batch
        else micro_batch
    )
    return global_batch, micro_batch


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


def _usual_sharding(table_row: Row, software_facts: Software) -> Sharding:
    """What is cut over data parallel ranks; fused kernels cut the optimizer by themselves.

    So does a framework that is not listed: next to none leaves it whole.
    """
    cuts_optimizer = software_facts.kernels == "te" or not training_framework(
        table_row
    )
    return "zero1" if cuts_optimizer else "none"


def _row_recompute(table_row: Row, software_facts: Software) -> Recompute:
    """What is recomputed; as much as memory makes necessary when nobody says."""
    recompute = read_choice(table_row, "recompute", RECOMPUTE_KINDS)
    if recompute == "selective":
        return "ops" if software_facts.is_torch else "attention"
    return recompute or "forced"


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

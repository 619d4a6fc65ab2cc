"""Enumeration of the parallel layouts of a training job.

A partition fixes tp, pp, cp, dp, ep and the sharding of the states. A layout adds the size of
the micro-batch, the chunks of a stage and the recomputation.
"""

from __future__ import annotations

import itertools
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from planner.perf.common.layout import can_shard
from planner.perf.training.job import ParallelLayout

if TYPE_CHECKING:
    from collections.abc import Iterator

    from planner.facts.llm import Llm
    from planner.perf.training.job import Job, Sharding

MAX_TENSOR_RANKS: Final = 8  # accelerators over which tensors are cut
# Ranks of context parallelism, each with one part of a sequence.
CONTEXT_SIZES: Final = (1, 2, 4, 8, 16, 32)
# Least tokens of a part of a sequence: no published run has shorter ones.
MIN_SHARD_TOKENS: Final = 8192
MICRO_BATCHES: Final = (1, 2, 4, 8)
MAX_CHUNKS: Final = 16  # chunks of a stage
# Embedding and head count as a layer each where stages are to be equal.
END_LAYERS: Final = 2


def enumerate_layouts(
    job: Job, accelerators: int, node_accelerators: int
) -> Iterator[ParallelLayout]:
    """Yield every allowed layout over `accelerators`, without recomputation.

    `node_accelerators` share one link. The rules:

    tp             power of two within `node_accelerators`; divides attention heads and widths
    pp             divides the layers, or the layers plus embedding and head
    vpp            above 1 only when pp divides the number of micro-batches
    ep             power of two; divides the experts and tp * cp * dp
    dp, `micro`    divide the global batch
    """
    for cut_layout in enumerate_cuts(
        job.llm,
        job.global_batch,
        job.sequence_tokens,
        accelerators,
        node_accelerators,
    ):
        yield from expand_cut(job, cut_layout)


@lru_cache(maxsize=512)
def enumerate_cuts(
    language_model: Llm,
    global_batch: float,
    sequence_tokens: int,
    accelerators: int,
    node_accelerators: int,
) -> tuple[ParallelLayout, ...]:
    """Return every partition of weights, sequences and states, at one sequence each."""
    return tuple(
        _iterate_cuts(
            language_model,
            global_batch,
            sequence_tokens,
            accelerators,
            node_accelerators,
        )
    )


def _iterate_cuts(
    language_model: Llm,
    global_batch: float,
    sequence_tokens: int,
    accelerators: int,
    node_accelerators: int,
) -> Iterator[ParallelLayout]:
    for tp in (
        tensor_ranks
        for tensor_ranks in _powers_of_two(
            min(node_accelerators, MAX_TENSOR_RANKS)
        )
        if can_shard(language_model, tensor_ranks)
    ):
        for pp in _stage_counts(language_model.layers, accelerators // tp):
            # Data parallelism takes the ranks that tp, pp and cp leave.
            for cp in CONTEXT_SIZES:
                dp, remainder = divmod(accelerators, tp * pp * cp)
                # Published runs use context parallelism for long parts only.
                is_too_short = cp > 1 and (
                    sequence_tokens % cp
                    or sequence_tokens // cp < MIN_SHARD_TOKENS
                )
                # Each data-parallel rank has the same number of sequences.
                if remainder or is_too_short or not dp or global_batch % dp:
                    continue
                cut_layout = ParallelLayout(
                    tp=tp, pp=pp, cp=cp, dp=dp, sharding="zero1"
                )
                yield from _shard_states(
                    language_model, cut_layout, node_accelerators // tp
                )


def _shard_states(
    language_model: Llm, cut_layout: ParallelLayout, link_ranks: int
) -> Iterator[ParallelLayout]:
    """Yield a partition with each expert parallelism and each sharding of the states.

    With a pipeline only ZeRO-1 is a candidate, because ZeRO-2 and ZeRO-3 communicate in every
    micro-batch.
    Dense models also shard ZeRO-3 over the `link_ranks` ranks of one link.
    """
    # Experts spread over all ranks of one pipeline stage.
    rank_count = cut_layout.tp * cut_layout.data_parallel_ranks
    # One data-parallel rank has no other rank to shard over.
    only_zero1 = cut_layout.pp > 1 or cut_layout.data_parallel_ranks == 1
    shardings: tuple[Sharding, ...] = (
        ("zero1",) if only_zero1 else ("zero1", "zero2", "zero3")
    )
    expert_ranks = [
        ranks_divisor
        for ranks_divisor in _powers_of_two(language_model.experts)
        if rank_count % ranks_divisor == 0
        and language_model.experts % ranks_divisor == 0
    ]
    for ep, sharding in itertools.product(expert_ranks or [1], shardings):
        yield cut_layout._replace(ep=ep, sharding=sharding)
    if (
        # Hybrid sharding: the frequent gathers stay on the link.
        not only_zero1
        and not language_model.experts
        and 1 < link_ranks < cut_layout.data_parallel_ranks
        and cut_layout.data_parallel_ranks % link_ranks == 0
    ):
        yield cut_layout._replace(sharding="zero3", shard_size=link_ranks)


def expand_cut(
    job: Job, cut_layout: ParallelLayout
) -> Iterator[ParallelLayout]:
    """Yield the layouts of one partition, by micro-batch and number of chunks."""
    for micro_batch, chunk_counts in microbatch_sizes(job, cut_layout):
        for vpp in chunk_counts:
            yield cut_layout.with_microbatch(
                float(micro_batch), vpp, cut_layout.recompute
            )


def microbatch_sizes(
    job: Job, cut_layout: ParallelLayout
) -> tuple[tuple[int, tuple[int, ...]], ...]:
    """Return each micro-batch of a partition with its numbers of chunks.

    Both are in ascending order. The micro-batch is in sequences.
    """
    return _microbatch_sizes(
        # Sequences of one data-parallel rank in a step.
        int(job.global_batch // cut_layout.dp),
        job.llm.layers,
        cut_layout.pp,
        job.min_sequences,
    )


@lru_cache(maxsize=4096)
def _microbatch_sizes(
    rank_sequences: int, layers: int, pp: int, min_sequences: int
) -> tuple[tuple[int, tuple[int, ...]], ...]:
    chunk_counts = _chunk_counts(layers, pp)
    micro_batches = (
        batch_divisor
        for batch_divisor in MICRO_BATCHES
        # Preferences come in pairs, which stay in one micro-batch.
        if rank_sequences % batch_divisor == 0
        and batch_divisor % min_sequences == 0
    )
    return tuple(
        (
            micro_batch,
            # Interleaving needs micro-batches in multiples of pp.
            chunk_counts if rank_sequences // micro_batch % pp == 0 else (1,),
        )
        for micro_batch in micro_batches
    )


def _powers_of_two(upper_limit: int) -> list[int]:
    return [
        2**exponent
        for exponent in range(upper_limit.bit_length())
        if 2**exponent <= upper_limit
    ]


def _stage_counts(layers: int, max_stages: int) -> list[int]:
    even_divisors = (
        stage_count
        for stage_count in range(1, min(layers, max_stages) + 1)
        if max_stages % stage_count == 0
    )
    return [
        stage_count
        for stage_count in even_divisors
        if stage_count == 1
        or layers % stage_count == 0
        # Embedding and head take the place of one layer each.
        or (layers + END_LAYERS) % stage_count == 0
    ]


def _chunk_counts(layers: int, pp: int) -> tuple[int, ...]:
    """Return the numbers of chunks that divide a stage evenly; 1 without a pipeline."""
    if pp == 1:
        return (1,)
    stage_layers = (
        # Layers of a stage; embedding and head count as one layer each.
        layers // pp if layers % pp == 0 else (layers + END_LAYERS) // pp
    )
    return tuple(
        chunk_count
        for chunk_count in range(1, min(stage_layers, MAX_CHUNKS) + 1)
        if stage_layers % chunk_count == 0
    )

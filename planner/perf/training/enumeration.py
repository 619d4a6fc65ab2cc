"""Enumeration of the parallel layouts of a training job.

A partition fixes tp, pp, cp, dp, ep and the sharding of the states. A layout adds the size of
the micro-batch, the chunks of a stage and the recomputation.
"""

from __future__ import annotations

import itertools
import math
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from planner.perf.common.layout import can_shard
from planner.perf.training.framework import USUAL_FRAMEWORK, frameworks
from planner.perf.training.job import END_LAYERS, ParallelLayout

if TYPE_CHECKING:
    from collections.abc import Iterator

    from planner.facts.llm import Llm
    from planner.perf.training.framework import Framework
    from planner.perf.training.job import Job

MAX_TENSOR_RANKS: Final = 8  # accelerators over which tensors are cut
# Ranks of context parallelism, each with one part of a sequence.
CONTEXT_SIZES: Final = (1, 2, 4, 8, 16, 32)
# Least tokens of a part of a sequence: recipes of Megatron-Bridge for Llama 3.1 405B cut
# sequences of 8,192 in two, and none cuts more finely.
MIN_SHARD_TOKENS: Final = 4096
MICRO_BATCHES: Final = (1, 2, 4, 8)
MAX_CHUNKS: Final = 16  # chunks of a stage
EVERY_NTH: Final = (4, 2)  # of which one layer is recomputed, most sparing last
# Shares of a chunk that are tried when not all of its activations fit.
SHARE_STEPS: Final = 8


class CutFamily(Struct, frozen=True):
    """Partitions that differ in their experts' ranks and in their sharding alone.

    cut_index     place of the first of them in the order of enumeration
    expert_ranks  their numbers of ranks that share the experts, each once
    """

    cut_index: int
    cut_layouts: tuple[ParallelLayout, ...]
    expert_ranks: tuple[int, ...]


def enumerate_layouts(
    job: Job,
    accelerators: int,
    node_accelerators: int,
    *,
    shards_pipelines: bool = False,
) -> Iterator[ParallelLayout]:
    """Yield every allowed layout over `accelerators`, without recomputation.

    `node_accelerators` share one link. With `shards_pipelines` a pipeline has each sharding of the
    framework, and not its first one alone. The rules:

    tp             power of two within `node_accelerators`; divides attention heads and widths
    pp             divides the layers, or the layers plus embedding and head
    vpp            above 1 only with at least as many micro-batches as stages
    ep             power of two; divides the experts and tp * cp * dp, and in torchtitan is a
                   multiple of tp * cp
    dp, `micro`    divide the global batch
    """
    for family in cut_families(
        job.llm,
        job.global_batch,
        job.sequence_tokens,
        accelerators,
        node_accelerators,
        framework_name=job.software.framework,
        shards_pipelines=shards_pipelines,
    ):
        for cut_layout in family.cut_layouts:
            yield from expand_cut(job, cut_layout)


@lru_cache(maxsize=512)
def cut_families(
    language_model: Llm,
    global_batch: float,
    sequence_tokens: int,
    accelerators: int,
    node_accelerators: int,
    *,
    framework_name: str = USUAL_FRAMEWORK,
    shards_pipelines: bool = False,
) -> tuple[CutFamily, ...]:
    """Return every partition of weights, sequences and states, at one sequence each.

    Those that the framework cannot run are left out.
    """
    families: list[CutFamily] = []
    cut_index = 0
    for cut_layouts in _iterate_families(
        language_model,
        global_batch,
        sequence_tokens,
        accelerators,
        node_accelerators,
        framework=frameworks()[framework_name],
        shards_pipelines=shards_pipelines,
    ):
        expert_ranks = dict.fromkeys(layout.ep for layout in cut_layouts)
        families.append(CutFamily(cut_index, cut_layouts, tuple(expert_ranks)))
        cut_index += len(cut_layouts)
    return tuple(families)


def _iterate_families(
    language_model: Llm,
    global_batch: float,
    sequence_tokens: int,
    accelerators: int,
    node_accelerators: int,
    *,
    framework: Framework,
    shards_pipelines: bool,
) -> Iterator[tuple[ParallelLayout, ...]]:
    cuts = framework.cuts
    for tp in (
        tensor_ranks
        for tensor_ranks in _powers_of_two(
            min(node_accelerators, MAX_TENSOR_RANKS) if "tensor" in cuts else 1
        )
        if can_shard(language_model, tensor_ranks)
    ):
        stage_counts = _stage_counts(language_model.layers, accelerators // tp)
        for pp in stage_counts if "pipeline" in cuts else [1]:
            # Data parallelism takes the ranks that tp, pp and cp leave.
            for cp in CONTEXT_SIZES if "context" in cuts else (1,):
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
                yield tuple(
                    _shard_states(
                        language_model,
                        cut_layout,
                        node_accelerators // tp,
                        framework,
                        shards_pipelines=shards_pipelines,
                    )
                )


def _shard_states(
    language_model: Llm,
    cut_layout: ParallelLayout,
    link_ranks: int,
    framework: Framework,
    *,
    shards_pipelines: bool,
) -> Iterator[ParallelLayout]:
    """Yield a partition with each expert parallelism and each sharding of the states.

    On a single rank the first sharding of a framework is the candidate. So it is with a pipeline,
    unless that is to have each: ZeRO-2 and ZeRO-3 of Megatron communicate in every micro-batch.
    Dense models also shard ZeRO-3 over the `link_ranks` ranks of one link.
    """
    # Experts spread over all ranks of one pipeline stage.
    rank_count = cut_layout.tp * cut_layout.data_parallel_ranks
    # One data-parallel rank has no other rank to shard over.
    only_first = cut_layout.data_parallel_ranks == 1 or (
        cut_layout.pp > 1 and not shards_pipelines
    )
    shardings = framework.shardings[:1] if only_first else framework.shardings
    expert_ranks = [
        ranks_divisor
        for ranks_divisor in _powers_of_two(
            language_model.experts if "expert" in framework.cuts else 1
        )
        if rank_count % ranks_divisor == 0
        and language_model.experts % ranks_divisor == 0
        and framework.cuts_experts(cut_layout, ranks_divisor)
    ]
    for ep, sharding in itertools.product(expert_ranks or [1], shardings):
        yield cut_layout._replace(ep=ep, sharding=sharding)
    if (
        # Hybrid sharding: the frequent gathers stay on the link.
        not only_first
        and "zero3" in shardings
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
            yield cut_layout.with_microbatch(float(micro_batch), vpp)


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
        equal_rounds=frameworks()[job.software.framework].equal_rounds,
    )


def least_bubbles(
    job: Job, cut_layout: ParallelLayout
) -> tuple[tuple[int, int], ...]:
    """Return each micro-batch of a partition with its most chunks, whose bubble is least."""
    return _least_bubbles(
        int(job.global_batch // cut_layout.dp),
        job.llm.layers,
        cut_layout.pp,
        job.min_sequences,
        equal_rounds=frameworks()[job.software.framework].equal_rounds,
    )


@lru_cache(maxsize=4096)
def _least_bubbles(
    rank_sequences: int,
    layers: int,
    pp: int,
    min_sequences: int,
    *,
    equal_rounds: bool,
) -> tuple[tuple[int, int], ...]:
    return tuple(
        (micro_batch, chunk_counts[-1])
        for micro_batch, chunk_counts in _microbatch_sizes(
            rank_sequences,
            layers,
            pp,
            min_sequences,
            equal_rounds=equal_rounds,
        )
    )


@lru_cache(maxsize=4096)
def _microbatch_sizes(
    rank_sequences: int,
    layers: int,
    pp: int,
    min_sequences: int,
    *,
    equal_rounds: bool,
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
            chunk_counts
            if _may_interleave(
                rank_sequences // micro_batch, pp, equal_rounds=equal_rounds
            )
            else (1,),
        )
        for micro_batch in micro_batches
    )


def _may_interleave(micro_batches: int, pp: int, *, equal_rounds: bool) -> bool:
    """Whether micro-batches pass a pipeline in groups of at least as many as it has stages.

    Some frameworks want groups of equal size, and make as many as there can be.
    """
    if micro_batches < pp:
        return False
    return not equal_rounds or micro_batches % (micro_batches // pp) == 0


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
    stage_layers = _stage_layers(layers, pp)
    return tuple(
        chunk_count
        for chunk_count in range(1, min(stage_layers, MAX_CHUNKS) + 1)
        if stage_layers % chunk_count == 0
    )


def _stage_layers(layers: int, pp: int) -> int:
    """Return the layers of a stage; where they do not divide, with embedding and head."""
    return layers // pp if layers % pp == 0 else (layers + END_LAYERS) // pp


@lru_cache(maxsize=4096)
def recompute_shares(
    layers: int, pp: int, vpp: int, framework_name: str = USUAL_FRAMEWORK
) -> tuple[float, ...]:
    """Return the shares of a chunk that can be recomputed, ascending, without 0 and all."""
    style = frameworks()[framework_name].recompute
    if style == "all":
        return ()
    chunk_layers = _chunk_layers(layers, pp, vpp)
    if style == "every":
        # Every n-th layer is recomputed, and the others are not.
        return tuple(1 / n for n in EVERY_NTH if chunk_layers % n == 0)
    layer_counts = {
        math.ceil(chunk_layers * step / SHARE_STEPS)
        for step in range(1, SHARE_STEPS)
    }
    return tuple(
        layer_count / chunk_layers
        for layer_count in sorted(layer_counts)
        if layer_count < chunk_layers
    )


def recomputed_layers(layout: ParallelLayout, layers: int) -> int:
    """Return the layers of a chunk whose forward pass is repeated as a whole."""
    return round(
        layout.recomputed_share * _chunk_layers(layers, layout.pp, layout.vpp)
    )


def _chunk_layers(layers: int, pp: int, vpp: int) -> int:
    """Return the layers of the largest chunk of a stage."""
    return _stage_layers(layers, pp) // vpp

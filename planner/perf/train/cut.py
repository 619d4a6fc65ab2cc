"""Every layout that the rules allow: how a job may be cut over a number of accelerators."""

from __future__ import annotations

import itertools
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from planner.perf.layout import valid
from planner.perf.train.job import Spread

if TYPE_CHECKING:
    from collections.abc import Iterator

    from planner.facts.llm import Llm
    from planner.perf.train.job import Job, Sharding

WIDEST: Final = 8  # accelerators over which tensors are cut
SHARDS: Final = (1, 2, 4, 8, 16, 32)  # of a sequence over context parallelism
SHORTEST: Final = 8192  # tokens of a sequence's shard: shorter ones are cut in no published run
MICROS: Final = (1, 2, 4, 8)
FINEST: Final = 16  # chunks of a stage
ENDS: Final = (
    2  # embedding and head count as a layer each where stages are to be equal
)


def spreads(job: Job, accelerators: int, machine: int) -> Iterator[Spread]:
    """Every layout over so many accelerators, `machine` of which share a link; none recomputes.

    tp within a link, cutting heads and widths evenly; pp cutting the layers evenly, embedding and
    head perhaps counted as layers; interleaved only when micro-batches divide by pp; experts over
    ranks that divide them. The global batch divides by dp and micro-batch.
    """
    for cut in cuts(job.llm, job.batch, job.sequence, accelerators, machine):
        yield from within(job, cut)


@lru_cache(maxsize=512)
def cuts(
    llm: Llm, batch: float, sequence: int, accelerators: int, machine: int
) -> tuple[Spread, ...]:
    """Every way to cut weights, sequences and states; micro-batches are of one sequence."""
    return tuple(_cuts(llm, batch, sequence, accelerators, machine))


def _cuts(
    llm: Llm, batch: float, sequence: int, accelerators: int, machine: int
) -> Iterator[Spread]:
    for tp in (t for t in _powers(min(machine, WIDEST)) if valid(llm, t)):
        for pp in _stages(llm.layers, accelerators // tp):
            for cp in SHARDS:
                dp, rest = divmod(accelerators, tp * pp * cp)
                short = cp > 1 and (sequence % cp or sequence // cp < SHORTEST)
                if rest or short or not dp or batch % dp:
                    continue
                cut = Spread(tp=tp, pp=pp, cp=cp, dp=dp, sharding="zero1")
                yield from _held(llm, cut, machine // tp)


def _held(llm: Llm, cut: Spread, near: int) -> Iterator[Spread]:
    """Over how many ranks experts lie, and how states are cut: over all, or over those near.

    A pipeline would gather weights for every one of its micro-batches: it takes ZeRO-1.
    """
    ranks, alone = cut.tp * cut.copies, cut.pp > 1 or cut.copies == 1
    shardings: tuple[Sharding, ...] = (
        ("zero1",) if alone else ("zero1", "zero2", "zero3")
    )
    spreading = [
        e
        for e in _powers(llm.experts)
        if ranks % e == 0 and llm.experts % e == 0
    ]
    for ep, sharding in itertools.product(spreading or [1], shardings):
        yield replace(cut, ep=ep, sharding=sharding)
    if (
        not alone
        and not llm.experts
        and 1 < near < cut.copies
        and cut.copies % near == 0
    ):
        yield replace(cut, sharding="zero3", shard=near)


def within(job: Job, cut: Spread) -> Iterator[Spread]:
    """Micro-batches and interleaving of one cut."""
    for micro, chunks in turned(job, cut):
        for vpp in chunks:
            yield cut.turned(float(micro), vpp, cut.recompute)


def turned(job: Job, cut: Spread) -> tuple[tuple[int, tuple[int, ...]], ...]:
    """Each micro-batch of a cut, with the numbers of chunks that it allows, ascending."""
    return _turned(
        int(job.batch // cut.dp), job.llm.layers, cut.pp, job.together
    )


@lru_cache(maxsize=4096)
def _turned(
    each: int, layers: int, pp: int, together: int
) -> tuple[tuple[int, tuple[int, ...]], ...]:
    chunks = _chunks(layers, pp)
    micros = (m for m in MICROS if each % m == 0 and m % together == 0)
    return tuple(
        (micro, chunks if each // micro % pp == 0 else (1,)) for micro in micros
    )


def _powers(most: int) -> list[int]:
    return [2**k for k in range(most.bit_length()) if 2**k <= most]


def _stages(layers: int, most: int) -> list[int]:
    even = (p for p in range(1, min(layers, most) + 1) if most % p == 0)
    return [
        p for p in even if p == 1 or layers % p == 0 or (layers + ENDS) % p == 0
    ]


def _chunks(layers: int, pp: int) -> tuple[int, ...]:
    """Numbers of chunks that cut a stage evenly; 1 without a pipeline."""
    if pp == 1:
        return (1,)
    deep = layers // pp if layers % pp == 0 else (layers + ENDS) // pp
    return tuple(v for v in range(1, min(deep, FINEST) + 1) if deep % v == 0)

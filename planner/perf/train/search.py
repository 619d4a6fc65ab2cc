"""Exact search of the layout of a training job on a given number of accelerators.

Every layout that the rules allow is a candidate. In the order of a lower bound of their step time
they are checked for memory and timed, until the bound exceeds the best found: what is not timed
cannot be faster.
"""

from __future__ import annotations

import heapq
import itertools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from planner.perf.constant import constant
from planner.perf.layout import valid
from planner.perf.memory import GIB
from planner.perf.train.coefficient import TRAINING, keys
from planner.perf.train.job import Spread
from planner.perf.train.memory import peak_gib
from planner.perf.train.states import states
from planner.perf.train.step import BACK, THRICE, Step, step
from planner.perf.train.work import work

if TYPE_CHECKING:
    from collections.abc import Iterator

    from planner.perf.train.job import Job, Recompute, Sharding

WIDEST: Final = 8  # accelerators over which tensors are cut
SHARDS: Final = (1, 2, 4, 8, 16, 32)  # of a sequence over context parallelism
SHORTEST: Final = 8192  # tokens of a sequence's shard: shorter ones are cut in no published run
MICROS: Final = (1, 2, 4, 8)
FINEST: Final = 16  # chunks of a stage
ENDS: Final = 2  # embedding and head count as a layer each where stages are to be equal
ATTENDED: Final = 1 + BACK  # passes of attention
AGAIN: Final[dict[Recompute, float]] = {"none": 0.0, "layer": 0.5, "full": 1.0}
LESS: Final[dict[Recompute, tuple[Recompute, ...]]] = {
    "none": (), "layer": ("none",), "full": ("none", "layer"),
}  # fmt: skip
GATHERED: Final = 8.0  # bytes of an activation in four gathers or scatters of a layer


@dataclass(frozen=True, slots=True)
class Laid:
    """A layout with its time, its peak memory and what limits it."""

    job: Job
    step: Step
    peak_gib: float

    @property
    def limit(self) -> str:
        """What costs most beside computing: memory when it forces recomputation."""
        parts = {
            "pipeline bubble": self.step.bubble, "fabric": self.step.sharding + self.step.once,
            "tensor parallelism": self.step.tensor, "experts' exchange": self.step.exchange,
            "memory": self.step.again,
        }  # fmt: skip
        name = max(parts, key=lambda key: (parts[key], key))
        return name if parts[name] > 0.02 * self.step.total else "computing"

    @property
    def rank(self) -> tuple[float, int, int, int, float]:
        """The documented order of ties: time, stages, tensor, context, micro-batch."""
        s = self.job.spread
        return (self.step.total, s.pp, s.tp, s.cp, s.micro)


def spreads(job: Job, accelerators: int, machine: int) -> Iterator[Spread]:
    """Every layout over so many accelerators, `machine` of which share a link.

    tp within a link, cutting heads and widths evenly; pp cutting the layers evenly, embedding and
    head perhaps counted as layers; interleaved only when micro-batches divide by pp; experts over
    ranks that divide them. The global batch divides by dp and micro-batch.
    """
    llm = job.llm
    for tp in (t for t in _powers(min(machine, WIDEST)) if valid(llm, t)):
        for pp in _stages(llm.layers, accelerators // tp):
            for cp in SHARDS:
                dp, rest = divmod(accelerators, tp * pp * cp)
                short = cp > 1 and (job.sequence % cp or job.sequence // cp < SHORTEST)
                if rest or short or not dp or job.batch % dp:
                    continue
                yield from _inside(job, Spread(tp=tp, pp=pp, cp=cp, dp=dp))


def _powers(most: int) -> list[int]:
    return [2**k for k in range(most.bit_length()) if 2**k <= most]


def _stages(layers: int, most: int) -> list[int]:
    even = (p for p in range(1, min(layers, most) + 1) if most % p == 0)
    return [p for p in even if p == 1 or layers % p == 0 or (layers + ENDS) % p == 0]


def _inside(job: Job, base: Spread) -> Iterator[Spread]:
    """Micro-batch, interleaving, experts, sharding and recomputation of one cut."""
    llm, each = job.llm, int(job.batch // base.dp)
    ranks = base.tp * base.cp * base.dp
    spreading = [e for e in _powers(llm.experts) if ranks % e == 0 and llm.experts % e == 0]
    alone = base.pp > 1 or base.copies == 1
    shardings: tuple[Sharding, ...] = ("zero1",) if alone else ("zero1", "zero3")
    again: tuple[Recompute, ...] = ("none", "layer", "full")
    cut = list(itertools.product(spreading or [1], shardings, again))
    for micro in (m for m in MICROS if each % m == 0):
        turns = each // micro
        for vpp in _chunks(llm.layers, base.pp) if turns % base.pp == 0 else [1]:
            for ep, sharding, repeated in cut:
                yield replace(
                    base, micro=float(micro), vpp=vpp, ep=ep, sharding=sharding, recompute=repeated
                )


def _chunks(layers: int, pp: int) -> list[int]:
    """Numbers of chunks that cut a stage evenly; 1 without a pipeline."""
    if pp == 1:
        return [1]
    deep = layers // pp if layers % pp == 0 else (layers + ENDS) // pp
    return [v for v in range(1, min(deep, FINEST) + 1) if deep % v == 0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Floor:
    """What no layout avoids, in accelerator-seconds of a step unless said otherwise.

    `again` is one more forward pass; `tensor` and `exchange` are what cutting tensors over very
    many, and sending every token to experts elsewhere, would cost; `experts` seconds for reading
    all experts in a micro-batch, `host` those of the host for all layers, `power` of their norm.
    """

    step: float
    again: float
    tensor: float
    exchange: float
    experts: float
    host: float
    power: float

    def of(self, job: Job, s: Spread) -> float:
        """Seconds that a step takes at least in a layout: with its bubble and recomputation."""
        turns = max(1.0, job.batch / s.dp / s.micro)
        total = self.step + AGAIN[s.recompute] * self.again
        total += self.tensor * (1 - 1 / s.tp) + self.exchange * (1 - 1 / s.ep)
        micro = total / s.accelerators / turns
        micro += self.experts / s.pp / (s.tp if s.ep == 1 else s.ep)
        busy: float = (micro**self.power + (self.host / s.pp) ** self.power) ** (1 / self.power)
        return busy * (turns + (s.pp - 1) / s.vpp)


def floor(job: Job) -> Floor:
    """Products, attention, element-wise traffic and loss: cut in any way, their sum is the same.

    Operands that are read again for every cut and what crosses the network come on top.
    """
    alone = replace(job, spread=Spread())
    c, whole, llm = TRAINING.at(keys(alone)), work(alone), job.llm
    bare = replace(whole, gemm_bytes=0.0, expert_bytes=0.0, local=0.0, permuted=0.0,
                   exchange_link=0.0, exchange_network=0.0, dense_layers=0.0,
                   moe_layers=0.0)  # fmt: skip
    found = step(bare, c)
    forward = (found.products + found.experts) / bare.passes
    forward += found.attention / ATTENDED + found.traffic / THRICE
    sorted_ = whole.micros * whole.permuted
    link = 4 * c.exchange / (whole.link * c.exchange_rate)
    gathers = whole.micros * GATHERED * alone.tokens * llm.hidden * llm.layers
    read = llm.expert * (2.0 if job.software.precision == "bf16" else 0.5) / whole.bandwidth
    total = found.products + found.experts + found.attention + found.traffic + found.head
    return Floor(
        step=total + sorted_ * c.permute / whole.bandwidth, again=forward,
        tensor=2 * c.tensor * gathers / (whole.link * c.link), exchange=sorted_ * link,
        experts=bare.passes * (read + whole.local * c.local_expert / THRICE),
        host=whole.moe_layers * c.moe_host + whole.dense_layers * c.dense_host,
        power=c.host_power,
    )  # fmt: skip


def best(job: Job, accelerators: int, machine: int, keep: int = 5) -> list[Laid]:
    """Return the fastest layouts that fit, the best first; empty when none does."""
    room = constant("train_memory_share") * job.chip.memory_gib
    least = floor(job)
    candidates = [
        (least.of(job, s), i, s) for i, s in enumerate(spreads(job, accelerators, machine))
    ]
    heapq.heapify(candidates)
    found: list[Laid] = []
    held: set[Spread] = set()
    while candidates:
        bound, _, spread = heapq.heappop(candidates)
        if len(found) >= keep and bound > found[-1].step.total:
            break
        if any(replace(spread, recompute=less) in held for less in LESS[spread.recompute]):
            continue  # it fits with less recomputation, and is faster
        one = replace(job, spread=spread)
        peak = peak_gib(one) if states(one).total < room * GIB else room + 1
        if peak > room:
            continue
        held.add(spread)
        laid = Laid(one, step(work(one), TRAINING.at(keys(one))), peak)
        found = sorted([*found, laid], key=lambda x: x.rank)[:keep]
    return found

"""A lower bound on the time of a step: what no layout avoids."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from planner.perf.train.coefficient import TRAINING, keys
from planner.perf.train.cut import turned
from planner.perf.train.job import Spread
from planner.perf.train.memory import HALF
from planner.perf.train.shard import sharded
from planner.perf.train.step import BACK, THRICE, overlapped, step, tolls
from planner.perf.train.work import BYTES, crossing, work

if TYPE_CHECKING:
    from collections.abc import Iterable

    from planner.perf.train.coefficient import Training
    from planner.perf.train.job import Job, Recompute
    from planner.perf.train.work import Work

ATTENDED: Final = 1 + BACK  # passes of attention
AGAIN: Final[dict[Recompute, float]] = {"none": 0.0, "layer": 0.5, "full": 1.0}
GATHERED: Final = (
    8.0  # bytes of an activation in four gathers or scatters of a layer
)


@dataclass(frozen=True, slots=True)
class Toll:
    """What moving states and tokens between ranks costs every layout of one cut, in seconds.

    `gather` in a micro-batch, `once` in a step, `sent` in a step of one accelerator alone.
    """

    gather: float
    once: float
    sent: float


FREE: Final = Toll(0.0, 0.0, 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Floor:
    """What no layout avoids, in accelerator-seconds of a step unless said otherwise.

    `again` is one more of the `passes`, `rated` counts those of a reference. Each further rank of
    tensors costs `tensor` within `linked` ranks, beyond them as much as it takes to send `wide`
    bytes, and `gathered` where experts are cut alike; each further shard of a sequence `context`.
    `exchange` is what sending every token to experts elsewhere would cost. `weights` and `experts`
    are seconds for reading them all in a micro-batch, `host` those of the host for all layers;
    `tokens` bytes when every token goes to one other machine, `piped` how much of them a pipeline
    shows; `link`, `network` and `memory` the bytes/s that are reached.
    """

    step: float
    again: float
    passes: float
    tensor: float
    wide: float
    linked: int
    exchange: float
    gathered: float
    context: float
    rated: float
    weights: float
    experts: float
    host: float
    tokens: float
    c: Training
    piped: float
    link: float
    network: float
    memory: float

    def toll(self, job: Job) -> Toll:
        """What moving states, and tokens to experts on other machines, costs a cut."""
        found = tolls(
            sharded(job), self.c, self.link, self.network, self.memory
        )
        factor = self.piped if job.spread.pp > 1 else self.c.exchange_network
        sent = self.tokens * factor * crossing(job) if self.tokens else 0.0
        sent += (
            self.wide * (job.spread.tp - 1)
            if job.spread.tp > self.linked
            else 0.0
        )
        return Toll(found.gather, found.once, sent / self.network)

    def of(self, job: Job, s: Spread, toll: Toll = FREE) -> float:
        """Seconds that a step takes at least in a layout: with its bubble and recomputation."""
        return self._least(job, s, toll, [(s.micro, s.vpp)])

    def cut(self, job: Job, s: Spread, toll: Toll = FREE) -> float:
        """Seconds that a step takes at least in any layout of a cut."""
        return self._least(
            job, s, toll, [(micro, most[-1]) for micro, most in turned(job, s)]
        )

    def over(self, network: float) -> Floor:
        """The same job over another network, in bytes/s."""
        return replace(self, network=network * self.c.network)

    def _least(
        self,
        job: Job,
        s: Spread,
        toll: Toll,
        turning: Iterable[tuple[float, int]],
    ) -> float:
        """The least over pairs of micro-batch and chunks."""
        ranks, power, each = s.accelerators, self.c.host_power, job.batch / s.dp
        again = AGAIN[s.recompute]
        forward = again + self.rated
        sent = self.exchange * (1 - 1 / s.ep) + toll.sent
        sent += self.tensor * (s.tp - 1) if s.tp <= self.linked else 0.0
        alike = self.gathered * (s.tp - 1) if s.ep == 1 else 0.0
        total = self.step + again * self.again + (1 + forward / 2) * sent
        total += alike + self.context * (s.cp - 1)
        read = (
            self.weights / s.tp + self.experts / (s.tp if s.ep == 1 else s.ep)
        ) / s.pp
        read *= 1 + forward / self.passes
        host, bubble, least = (
            (self.host / s.pp) ** power,
            self.c.bubble * (s.pp - 1),
            math.inf,
        )
        for micro, chunks in turning:
            turns = max(1.0, each / micro)
            busy = ((total / ranks / turns + read) ** power + host) ** (
                1 / power
            )
            if toll.gather:
                busy = overlapped(busy, toll.gather, self.c)
            least = min(least, busy * (turns + bubble / chunks))
        more = 1 + self.c.doubling * max(0.0, math.log2(ranks / 8))
        return (least + toll.once) * more


@lru_cache(maxsize=512)
def floor(job: Job) -> Floor:
    """Products, attention, element-wise traffic and loss: cut in any way, their sum is the same.

    Weights that are read again for every cut and what crosses the network come on top.
    """
    alone = replace(job, spread=Spread())
    c, whole, llm = TRAINING.at(keys(alone)), work(alone), job.llm
    weights, experts = _weights(alone, whole)
    bare = replace(
        whole,
        gemm_bytes=whole.gemm_bytes - weights,
        local=0.0,
        permuted=0.0,
        expert_bytes=whole.expert_bytes - experts,
        exchange_link=0.0,
        exchange_network=0.0,
        dense_layers=0.0,
        moe_layers=0.0,
    )
    found = step(bare, c)
    forward = (found.products + found.experts) / bare.passes
    forward += found.attention / ATTENDED + found.traffic / THRICE
    moved = whole.micros * whole.permuted
    sorting, wire = (
        moved * c.permute / whole.bandwidth,
        4 * c.exchange / c.exchange_rate,
    )
    each, unlike, ends = (
        BYTES.get(job.software.precision, 1.0),
        c.unlike,
        found.head,
    )
    halves = (
        job.batch
        * job.sequence
        * 2
        * HALF
        * llm.kv_heads
        * llm.head_dim
        * llm.attending
    )
    wide = (
        2
        * c.tensor
        * whole.micros
        * GATHERED
        * alone.tokens
        * llm.hidden
        * llm.layers
    )
    total = (
        found.products
        + found.experts
        + found.attention
        + found.traffic
        + found.again
    )
    launched = whole.local * c.local_expert / THRICE
    return Floor(
        step=unlike * (total + sorting) + ends,
        again=unlike * (forward + sorting / 2),
        passes=bare.passes,
        tensor=unlike * wide / (whole.link * c.link),
        wide=unlike * wide,
        linked=job.chip.link_domain,
        exchange=unlike * moved * wire / whole.link,
        gathered=unlike
        * (sorting + bare.passes * moved * (1 + each / HALF) / whole.bandwidth),
        context=c.context * THRICE * halves / (whole.link * c.link),
        rated=float(job.reference != "none"),
        weights=unlike * bare.passes * weights / whole.bandwidth,
        experts=unlike * bare.passes * (experts / whole.bandwidth + launched),
        host=whole.moe_layers * c.moe_host + whole.dense_layers * c.dense_host,
        tokens=unlike
        * moved
        * wire
        * c.network
        / max(1, llm.experts_per_token),
        c=c,
        piped=TRAINING.at(keys(alone) | {"pipelined"}).exchange_network,
        link=whole.link * c.link,
        network=whole.network * c.network,
        memory=whole.bandwidth,
    )


def _weights(alone: Job, whole: Work) -> tuple[float, float]:
    """Bytes of weights that products read, of experts apart: what more tokens do not add."""
    twice = work(replace(alone, spread=Spread(micro=2.0)))
    return (
        2 * whole.gemm_bytes - twice.gemm_bytes,
        2 * whole.expert_bytes - twice.expert_bytes,
    )

"""A lower bound on the time of a step: what no layout avoids."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from planner.perf.train.coefficient import TRAINING, keys
from planner.perf.train.cut import turned
from planner.perf.train.job import Spread
from planner.perf.train.shard import sharded
from planner.perf.train.step import BACK, THRICE, overlapped, step, tolls
from planner.perf.train.work import BYTES, HALF, crossing, work

if TYPE_CHECKING:
    from collections.abc import Iterable

    from planner.perf.train.coefficient import Training
    from planner.perf.train.job import Job, Recompute
    from planner.perf.train.work import Work

ATTENDED: Final = 1 + BACK  # passes of attention
AGAIN: Final[dict[Recompute, float]] = {"none": 0.0, "layer": 0.5, "full": 1.0}
GATHERED: Final = 8.0  # bytes of an activation in four gathers or scatters of a layer


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

    `again` is one more of the `passes`; `tensor` and `exchange` are what cutting tensors over very
    many, and sending every token to experts elsewhere, would cost; `gathered` what every further
    rank of tensors costs where experts are cut alike. `weights` and `experts` are seconds for
    reading them all in a micro-batch, `host` those of the host for all layers; `tokens` bytes when
    every token goes to one other machine, `piped` how much of them a pipeline shows; `link`,
    `network` and `memory` the bytes/s that are reached.
    """

    step: float
    again: float
    passes: float
    tensor: float
    exchange: float
    gathered: float
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
        found = tolls(sharded(job), self.c, self.link, self.network, self.memory)
        factor = self.piped if job.spread.pp > 1 else self.c.exchange_network
        sent = self.tokens * factor * crossing(job) / self.network if self.tokens else 0.0
        return Toll(found.gather, found.once, sent)

    def of(self, job: Job, s: Spread, toll: Toll = FREE) -> float:
        """Seconds that a step takes at least in a layout: with its bubble and recomputation."""
        return self._least(job, s, toll, [(s.micro, s.vpp)])

    def cut(self, job: Job, s: Spread, toll: Toll = FREE) -> float:
        """Seconds that a step takes at least in any layout of a cut."""
        return self._least(job, s, toll, [(micro, most[-1]) for micro, most in turned(job, s)])

    def over(self, network: float) -> Floor:
        """The same job over another network, in bytes/s."""
        return replace(self, network=network * self.c.network)

    def _least(
        self, job: Job, s: Spread, toll: Toll, turning: Iterable[tuple[float, int]]
    ) -> float:
        """The least over pairs of micro-batch and chunks."""
        ranks, power, each = s.accelerators, self.c.host_power, job.batch / s.dp
        again = AGAIN[s.recompute]
        sent = self.tensor * (1 - 1 / s.tp) + self.exchange * (1 - 1 / s.ep) + toll.sent
        gathered = self.gathered * (s.tp - 1) if s.ep == 1 else 0.0
        total = self.step + gathered + again * self.again + (1 + again / 2) * sent
        read = (self.weights / s.tp + self.experts / (s.tp if s.ep == 1 else s.ep)) / s.pp
        read *= 1 + again / self.passes
        host, bubble, least = (self.host / s.pp) ** power, self.c.bubble * (s.pp - 1), math.inf
        for micro, chunks in turning:
            turns = max(1.0, each / micro)
            busy = ((total / ranks / turns + read) ** power + host) ** (1 / power)
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
    bare = replace(whole, gemm_bytes=whole.gemm_bytes - weights, local=0.0, permuted=0.0,
                   expert_bytes=whole.expert_bytes - experts, exchange_link=0.0,
                   exchange_network=0.0, dense_layers=0.0, moe_layers=0.0)  # fmt: skip
    found = step(bare, c)
    forward = (found.products + found.experts) / bare.passes
    forward += found.attention / ATTENDED + found.traffic / THRICE
    moved = whole.micros * whole.permuted
    sorting, wire = moved * c.permute / whole.bandwidth, 4 * c.exchange / c.exchange_rate
    each = BYTES.get(job.software.precision, 1.0)
    gathers = whole.micros * GATHERED * alone.tokens * llm.hidden * llm.layers
    total = found.products + found.experts + found.attention + found.traffic + found.head
    total += found.again
    return Floor(
        step=total + sorting, again=forward + sorting / 2, passes=bare.passes,
        tensor=2 * c.tensor * gathers / (whole.link * c.link), exchange=moved * wire / whole.link,
        gathered=sorting + bare.passes * moved * (1 + each / HALF) / whole.bandwidth,
        weights=bare.passes * weights / whole.bandwidth,
        experts=bare.passes * (experts / whole.bandwidth + whole.local * c.local_expert / THRICE),
        host=whole.moe_layers * c.moe_host + whole.dense_layers * c.dense_host,
        tokens=moved * wire * c.network / max(1, llm.experts_per_token), c=c,
        piped=TRAINING.at(keys(alone) | {"pipelined"}).exchange_network,
        link=whole.link * c.link, network=whole.network * c.network, memory=whole.bandwidth,
    )  # fmt: skip


def _weights(alone: Job, whole: Work) -> tuple[float, float]:
    """Bytes of weights that products read, of experts apart: what more tokens do not add."""
    twice = work(replace(alone, spread=Spread(micro=2.0)))
    return (
        2 * whole.gemm_bytes - twice.gemm_bytes, 2 * whole.expert_bytes - twice.expert_bytes,
    )  # fmt: skip

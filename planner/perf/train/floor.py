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
        sharding = tolls(
            sharded(job), self.c, self.link, self.network, self.memory
        )
        exchange_share = (
            self.piped if job.spread.pp > 1 else self.c.exchange_network
        )
        sent_bytes = (
            self.tokens * exchange_share * crossing(job) if self.tokens else 0.0
        )
        sent_bytes += (
            self.wide * (job.spread.tp - 1)
            if job.spread.tp > self.linked
            else 0.0
        )
        return Toll(sharding.gather, sharding.once, sent_bytes / self.network)

    def of(self, job: Job, layout: Spread, comm_bound: Toll = FREE) -> float:
        """Seconds that a step takes at least in a layout: with its bubble and recomputation."""
        return self._least(
            job, layout, comm_bound, [(layout.micro, layout.vpp)]
        )

    def cut(
        self, job: Job, cut_layout: Spread, comm_bound: Toll = FREE
    ) -> float:
        """Seconds that a step takes at least in any layout of a cut."""
        return self._least(
            job,
            cut_layout,
            comm_bound,
            [
                (micro_batch, chunk_counts[-1])
                for micro_batch, chunk_counts in turned(job, cut_layout)
            ],
        )

    def over(self, network_bytes_s: float) -> Floor:
        """The same job over another network, in bytes/s."""
        return replace(self, network=network_bytes_s * self.c.network)

    def _least(
        self,
        job: Job,
        layout: Spread,
        comm_bound: Toll,
        choices: Iterable[tuple[float, int]],
    ) -> float:
        """The least over pairs of micro-batch and chunks."""
        rank_count, host_power, rank_sequences = (
            layout.accelerators,
            self.c.host_power,
            job.batch / layout.dp,
        )
        recompute_share = AGAIN[layout.recompute]
        extra_forwards = recompute_share + self.rated
        exchange_s = self.exchange * (1 - 1 / layout.ep) + comm_bound.sent
        exchange_s += (
            self.tensor * (layout.tp - 1) if layout.tp <= self.linked else 0.0
        )
        gathered_s = self.gathered * (layout.tp - 1) if layout.ep == 1 else 0.0
        accelerator_s = (
            self.step
            + recompute_share * self.again
            + (1 + extra_forwards / 2) * exchange_s
        )
        accelerator_s += gathered_s + self.context * (layout.cp - 1)
        weight_read_s = (
            self.weights / layout.tp
            + self.experts / (layout.tp if layout.ep == 1 else layout.ep)
        ) / layout.pp
        weight_read_s *= 1 + extra_forwards / self.passes
        host_term, bubble_factor, minimum_s = (
            (self.host / layout.pp) ** host_power,
            self.c.bubble * (layout.pp - 1),
            math.inf,
        )
        for micro_batch, chunk_count in choices:
            micro_batches = max(1.0, rank_sequences / micro_batch)
            busy_s = (
                (accelerator_s / rank_count / micro_batches + weight_read_s)
                ** host_power
                + host_term
            ) ** (1 / host_power)
            if comm_bound.gather:
                busy_s = overlapped(busy_s, comm_bound.gather, self.c)
            minimum_s = min(
                minimum_s,
                busy_s * (micro_batches + bubble_factor / chunk_count),
            )
        scale_factor = 1 + self.c.doubling * max(0.0, math.log2(rank_count / 8))
        return (minimum_s + comm_bound.once) * scale_factor


@lru_cache(maxsize=512)
def floor(job: Job) -> Floor:
    """Products, attention, element-wise traffic and loss: cut in any way, their sum is the same.

    Weights that are read again for every cut and what crosses the network come on top.
    """
    single_job = replace(job, spread=Spread())
    coefficients, single_work, language_model = (
        TRAINING.at(keys(single_job)),
        work(single_job),
        job.llm,
    )
    weight_bytes, expert_bytes = _weights(single_job, single_work)
    invariant_work = replace(
        single_work,
        gemm_bytes=single_work.gemm_bytes - weight_bytes,
        local=0.0,
        permuted=0.0,
        expert_bytes=single_work.expert_bytes - expert_bytes,
        exchange_link=0.0,
        exchange_network=0.0,
        dense_layers=0.0,
        moe_layers=0.0,
    )
    invariant_time = step(invariant_work, coefficients)
    forward_s = (
        invariant_time.products + invariant_time.experts
    ) / invariant_work.passes
    forward_s += (
        invariant_time.attention / ATTENDED + invariant_time.traffic / THRICE
    )
    permuted_bytes = single_work.micros * single_work.permuted
    permute_s, wire_factor = (
        permuted_bytes * coefficients.permute / single_work.bandwidth,
        4 * coefficients.exchange / coefficients.exchange_rate,
    )
    operand_bytes, architecture_factor, head_s = (
        BYTES.get(job.software.precision, 1.0),
        coefficients.unlike,
        invariant_time.head,
    )
    kv_bytes = (
        job.batch
        * job.sequence
        * 2
        * HALF
        * language_model.kv_heads
        * language_model.head_dim
        * language_model.attending
    )
    tensor_bytes = (
        2
        * coefficients.tensor
        * single_work.micros
        * GATHERED
        * single_job.tokens
        * language_model.hidden
        * language_model.layers
    )
    compute_s = (
        invariant_time.products
        + invariant_time.experts
        + invariant_time.attention
        + invariant_time.traffic
        + invariant_time.again
    )
    launch_s = single_work.local * coefficients.local_expert / THRICE
    return Floor(
        step=architecture_factor * (compute_s + permute_s) + head_s,
        again=architecture_factor * (forward_s + permute_s / 2),
        passes=invariant_work.passes,
        tensor=architecture_factor
        * tensor_bytes
        / (single_work.link * coefficients.link),
        wide=architecture_factor * tensor_bytes,
        linked=job.chip.link_domain,
        exchange=architecture_factor
        * permuted_bytes
        * wire_factor
        / single_work.link,
        gathered=architecture_factor
        * (
            permute_s
            + invariant_work.passes
            * permuted_bytes
            * (1 + operand_bytes / HALF)
            / single_work.bandwidth
        ),
        context=coefficients.context
        * THRICE
        * kv_bytes
        / (single_work.link * coefficients.link),
        rated=float(job.reference != "none"),
        weights=architecture_factor
        * invariant_work.passes
        * weight_bytes
        / single_work.bandwidth,
        experts=architecture_factor
        * invariant_work.passes
        * (expert_bytes / single_work.bandwidth + launch_s),
        host=single_work.moe_layers * coefficients.moe_host
        + single_work.dense_layers * coefficients.dense_host,
        tokens=architecture_factor
        * permuted_bytes
        * wire_factor
        * coefficients.network
        / max(1, language_model.experts_per_token),
        c=coefficients,
        piped=TRAINING.at(keys(single_job) | {"pipelined"}).exchange_network,
        link=single_work.link * coefficients.link,
        network=single_work.network * coefficients.network,
        memory=single_work.bandwidth,
    )


def _weights(single_job: Job, single_work: Work) -> tuple[float, float]:
    """Bytes of weights that products read, of experts apart: what more tokens do not add."""
    doubled_work = work(replace(single_job, spread=Spread(micro=2.0)))
    return (
        2 * single_work.gemm_bytes - doubled_work.gemm_bytes,
        2 * single_work.expert_bytes - doubled_work.expert_bytes,
    )

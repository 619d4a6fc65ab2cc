"""Time of a training step: products, traffic, collectives and host work add up.

As in serving every number may be an array, so there is no branch on a value. Seconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from planner.perf.physics import least, most

if TYPE_CHECKING:
    from planner.perf.train.coefficient import Training
    from planner.perf.train.shard import Sharded
    from planner.perf.train.work import Work

BACK: Final = 2.5  # passes of attention's products in a backward that recomputes the scores
THRICE: Final = 3.0  # forward and twice as much backward


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """Seconds of one step, and of its parts over all micro-batches."""

    total: float
    products: float
    attention: float
    traffic: float
    experts: float
    tensor: float
    exchange: float
    again: float
    host: float
    head: float
    sharding: float
    bubble: float
    once: float


@dataclass(frozen=True, slots=True)
class Tolls:
    """Seconds of gathering in a micro-batch, and of what is done once a step."""

    gather: float
    once: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Forward:
    """Seconds of one forward pass of one micro-batch on one stage."""

    gemm: float
    expert: float
    attention: float
    scores: float
    traffic: float
    tensor: float
    exchange: float
    permute: float

    @property
    def total(self) -> float:
        moved = (
            self.scores
            + self.traffic
            + self.tensor
            + self.exchange
            + self.permute
        )
        return self.gemm + self.expert + self.attention + moved


def step(w: Work, c: Training) -> Step:
    """Return the time of one optimizer step.

    (micros + bubble) * (forward + backward + recomputation + head) and, once, ZeRO-1's reduction,
    the optimizer and a constant; a little more with every doubling of the accelerators.
    """
    one = _forward(w, c)
    again = _again(w, c, one)
    parts = {
        "products": w.passes * one.gemm,
        "experts": w.passes * one.expert,
        "attention": (1 + BACK) * one.attention,
        "traffic": THRICE * (one.scores + one.traffic),
        "tensor": 2 * one.tensor,
        "exchange": 2 * (one.exchange + one.permute),
        "again": again,
    }
    gpu = c.unlike * sum(parts.values())
    link, network = w.link * c.link, w.network * c.network
    gpu = gpu + c.context * THRICE * w.context / link
    gpu = gpu + c.hops * 2 * w.hops / (
        w.hops_network * network + (1 - w.hops_network) * link
    )
    host = w.moe_layers * c.moe_host + w.dense_layers * c.dense_host
    busy = (gpu**c.host_power + host**c.host_power) ** (1 / c.host_power)
    head = _head(w, c)
    tail = head / w.stages + c.head_last * head * w.pipelined * (
        1 - 1 / w.stages
    )
    whole = busy + tail
    moved = tolls(w, c, link, network, w.bandwidth)
    hidden = overlapped(whole, moved.gather, c)
    micro = w.once * whole + (1 - w.once) * hidden
    once = moved.once + w.once * moved.gather
    bubble = c.bubble * w.bubble * micro
    more = 1 + c.doubling * w.doublings
    return Step(
        total=(w.micros * micro + bubble + once) * more,
        host=w.micros * (busy - gpu),
        head=w.micros * tail,
        bubble=bubble,
        once=once,
        sharding=w.micros * (micro - whole),
        **{k: w.micros * x for k, x in parts.items()},
    )


def _speed(w: Work, c: Training) -> float:
    """Share of a data sheet's rate at the clock that the power limit allows."""
    found: float = w.power**c.clock * c.speed
    return found


def _forward(w: Work, c: Training) -> _Forward:
    speed = _speed(w, c)
    rate = w.peak * c.precision * c.products * speed
    traffic = c.traffic * (1 + 0.5 * c.quantizing * w.quantized) / w.bandwidth
    wire = (
        w.tensor_network * w.network * c.network
        + (1 - w.tensor_network) * w.link * c.link
    )
    link, network = w.link * c.exchange_rate, w.network * c.exchange_rate
    sent = (
        w.exchange_link / link
        + c.exchange_network * w.exchange_network / network
    )
    return _Forward(
        gemm=w.gemm_flop / rate + w.gemm_bytes / w.bandwidth,
        expert=w.expert_flop / (rate * c.expert_products)
        + w.expert_bytes / w.bandwidth
        + w.local * c.local_expert / THRICE,
        attention=w.attention / (w.half * c.attention * speed)
        + c.softmax * w.exponentials / w.rate,
        scores=c.scores * w.scores / w.bandwidth,
        traffic=traffic * (w.traffic + c.expert_traffic * w.expert_traffic),
        tensor=c.tensor * w.tensor / wire,
        exchange=2 * c.exchange * sent,
        permute=c.permute / 2 * w.permuted / w.bandwidth,
    )


def _again(w: Work, c: Training, one: _Forward) -> float:
    """Seconds of what is computed again, stated or forced by memory."""
    products = one.gemm + one.expert + one.tensor + one.exchange + one.permute
    stated = w.again_gemm * products + w.again_attention * (
        one.attention + one.scores
    )
    forced: float = c.forced * w.forced**c.forced_power * one.total
    return stated + w.again_traffic * one.traffic + forced


def _head(w: Work, c: Training) -> float:
    """Seconds of the head and the loss, in 16 bit, of one micro-batch."""
    rate = w.half * c.products * _speed(w, c)
    found: float = (
        w.passes * w.head_flop / rate
        + c.loss_traffic * w.head_bytes / w.bandwidth
    )
    return found


def tolls(
    w: Work | Sharded, c: Training, link: float, network: float, memory: float
) -> Tolls:
    """Seconds that sharding moves bytes, over link and network at once, and of the optimizer."""
    gather = (
        most(w.shard_network / network, w.shard_link / link)
        + c.latency * w.shard_calls
    )
    reduced = w.reduce_network / network + w.reduce_link / link
    return Tolls(gather, c.zero * reduced + w.updated / memory + c.step)


def overlapped(computing: float, gather: float, c: Training) -> float:
    """Seconds of a micro-batch that computes while FSDP gathers."""
    return most(computing, gather) + c.contention * least(computing, gather)


def tokens_per_s(w: Work, c: Training) -> float:
    """Tokens a second of one accelerator."""
    return w.tokens / step(w, c).total

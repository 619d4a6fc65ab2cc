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
        movement_s = (
            self.scores
            + self.traffic
            + self.tensor
            + self.exchange
            + self.permute
        )
        return self.gemm + self.expert + self.attention + movement_s


def step(work_counts: Work, coefficients: Training) -> Step:
    """Return the time of one optimizer step.

    (micros + bubble) * (forward + backward + recomputation + head) and, once, ZeRO-1's reduction,
    the optimizer and a constant; a little more with every doubling of the accelerators.
    """
    forward_time = _forward(work_counts, coefficients)
    recompute_s = _again(work_counts, coefficients, forward_time)
    part_times_s = {
        "products": work_counts.passes * forward_time.gemm,
        "experts": work_counts.passes * forward_time.expert,
        "attention": (1 + BACK) * forward_time.attention,
        "traffic": THRICE * (forward_time.scores + forward_time.traffic),
        "tensor": 2 * forward_time.tensor,
        "exchange": 2 * (forward_time.exchange + forward_time.permute),
        "again": recompute_s,
    }
    accelerator_s = coefficients.unlike * sum(part_times_s.values())
    link_bytes_s, network_bytes_s = (
        work_counts.link * coefficients.link,
        work_counts.network * coefficients.network,
    )
    accelerator_s = (
        accelerator_s
        + coefficients.context * THRICE * work_counts.context / link_bytes_s
    )
    accelerator_s = accelerator_s + coefficients.hops * 2 * work_counts.hops / (
        work_counts.hops_network * network_bytes_s
        + (1 - work_counts.hops_network) * link_bytes_s
    )
    host_s = (
        work_counts.moe_layers * coefficients.moe_host
        + work_counts.dense_layers * coefficients.dense_host
    )
    busy_s = (
        accelerator_s**coefficients.host_power + host_s**coefficients.host_power
    ) ** (1 / coefficients.host_power)
    head_s = _head(work_counts, coefficients)
    stage_head_s = (
        head_s / work_counts.stages
        + coefficients.head_last
        * head_s
        * work_counts.pipelined
        * (1 - 1 / work_counts.stages)
    )
    compute_s = busy_s + stage_head_s
    sharding = tolls(
        work_counts,
        coefficients,
        link_bytes_s,
        network_bytes_s,
        work_counts.bandwidth,
    )
    overlapped_part_s = overlapped(compute_s, sharding.gather, coefficients)
    micro_batch_s = (
        work_counts.once * compute_s
        + (1 - work_counts.once) * overlapped_part_s
    )
    once_s = sharding.once + work_counts.once * sharding.gather
    bubble_s = coefficients.bubble * work_counts.bubble * micro_batch_s
    scale_factor = 1 + coefficients.doubling * work_counts.doublings
    return Step(
        total=(work_counts.micros * micro_batch_s + bubble_s + once_s)
        * scale_factor,
        host=work_counts.micros * (busy_s - accelerator_s),
        head=work_counts.micros * stage_head_s,
        bubble=bubble_s,
        once=once_s,
        sharding=work_counts.micros * (micro_batch_s - compute_s),
        **{
            part_name: work_counts.micros * part_s
            for part_name, part_s in part_times_s.items()
        },
    )


def _speed(work_counts: Work, coefficients: Training) -> float:
    """Share of a data sheet's rate at the clock that the power limit allows."""
    clock_share: float = (
        work_counts.power**coefficients.clock * coefficients.speed
    )
    return clock_share


def _forward(work_counts: Work, coefficients: Training) -> _Forward:
    clock_share = _speed(work_counts, coefficients)
    flop_per_s = (
        work_counts.peak
        * coefficients.precision
        * coefficients.products
        * clock_share
    )
    traffic_s_per_byte = (
        coefficients.traffic
        * (1 + 0.5 * coefficients.quantizing * work_counts.quantized)
        / work_counts.bandwidth
    )
    tensor_bytes_s = (
        work_counts.tensor_network * work_counts.network * coefficients.network
        + (1 - work_counts.tensor_network)
        * work_counts.link
        * coefficients.link
    )
    link_bytes_s, network_bytes_s = (
        work_counts.link * coefficients.exchange_rate,
        work_counts.network * coefficients.exchange_rate,
    )
    sending_s = (
        work_counts.exchange_link / link_bytes_s
        + coefficients.exchange_network
        * work_counts.exchange_network
        / network_bytes_s
    )
    return _Forward(
        gemm=work_counts.gemm_flop / flop_per_s
        + work_counts.gemm_bytes / work_counts.bandwidth,
        expert=work_counts.expert_flop
        / (flop_per_s * coefficients.expert_products)
        + work_counts.expert_bytes / work_counts.bandwidth
        + work_counts.local * coefficients.local_expert / THRICE,
        attention=work_counts.attention
        / (work_counts.half * coefficients.attention * clock_share)
        + coefficients.softmax * work_counts.exponentials / work_counts.rate,
        scores=coefficients.scores * work_counts.scores / work_counts.bandwidth,
        traffic=traffic_s_per_byte
        * (
            work_counts.traffic
            + coefficients.expert_traffic * work_counts.expert_traffic
        ),
        tensor=coefficients.tensor * work_counts.tensor / tensor_bytes_s,
        exchange=2 * coefficients.exchange * sending_s,
        permute=coefficients.permute
        / 2
        * work_counts.permuted
        / work_counts.bandwidth,
    )


def _again(
    work_counts: Work, coefficients: Training, forward_time: _Forward
) -> float:
    """Seconds of what is computed again, stated or forced by memory."""
    product_s = (
        forward_time.gemm
        + forward_time.expert
        + forward_time.tensor
        + forward_time.exchange
        + forward_time.permute
    )
    stated_s = (
        work_counts.again_gemm * product_s
        + work_counts.again_attention
        * (forward_time.attention + forward_time.scores)
    )
    forced_s: float = (
        coefficients.forced
        * work_counts.forced**coefficients.forced_power
        * forward_time.total
    )
    return (
        stated_s + work_counts.again_traffic * forward_time.traffic + forced_s
    )


def _head(work_counts: Work, coefficients: Training) -> float:
    """Seconds of the head and the loss, in 16 bit, of one micro-batch."""
    flop_per_s = (
        work_counts.half
        * coefficients.products
        * _speed(work_counts, coefficients)
    )
    head_s: float = (
        work_counts.passes * work_counts.head_flop / flop_per_s
        + coefficients.loss_traffic
        * work_counts.head_bytes
        / work_counts.bandwidth
    )
    return head_s


def tolls(
    work_counts: Work | Sharded,
    coefficients: Training,
    link_bytes_s: float,
    network_bytes_s: float,
    memory_bytes_s: float,
) -> Tolls:
    """Seconds that sharding moves bytes, over link and network at once, and of the optimizer."""
    gather_s = (
        most(
            work_counts.shard_network / network_bytes_s,
            work_counts.shard_link / link_bytes_s,
        )
        + coefficients.latency * work_counts.shard_calls
    )
    reduce_s = (
        work_counts.reduce_network / network_bytes_s
        + work_counts.reduce_link / link_bytes_s
    )
    return Tolls(
        gather_s,
        coefficients.zero * reduce_s
        + work_counts.updated / memory_bytes_s
        + coefficients.step,
    )


def overlapped(
    compute_s: float, gather_s: float, coefficients: Training
) -> float:
    """Seconds of a micro-batch that computes while FSDP gathers."""
    return most(compute_s, gather_s) + coefficients.contention * least(
        compute_s, gather_s
    )


def tokens_per_s(work_counts: Work, coefficients: Training) -> float:
    """Tokens a second of one accelerator."""
    return work_counts.tokens / step(work_counts, coefficients).total

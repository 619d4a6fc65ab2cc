"""Time of a training step: products, traffic, collectives and host work add up.

As in serving every number may be an array, so there is no branch on a value. Seconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from planner.perf.serving.step import larger, smaller

if TYPE_CHECKING:
    from planner.perf.training.coefficients import TrainingCoefficients
    from planner.perf.training.sharding import ShardingTraffic
    from planner.perf.training.work import RankWork

BACKWARD_PASSES: Final = 2.5  # passes of attention's products in a backward that recomputes the scores
TRAINING_PASSES: Final = 3.0  # forward and twice as much backward


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTime:
    """Seconds of one step, and of its parts over all micro-batches."""

    total: float
    products: float
    attention: float
    traffic: float
    expert_products: float
    tensor_comm: float
    token_exchange: float
    recomputation: float
    host_wait: float
    head: float
    sharding: float
    bubble: float
    once_a_step: float


@dataclass(frozen=True, slots=True)
class ShardingTime:
    """Seconds of gathering in a micro-batch, and of what is done once a step."""

    gather_s: float
    once_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _ForwardTime:
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


def step_time(
    work_counts: RankWork, coefficients: TrainingCoefficients
) -> StepTime:
    """Return the time of one optimizer step.

    (micros + bubble) * (forward + backward + recomputation + head) and, once, ZeRO-1's reduction,
    the optimizer and a constant; a little more with every doubling of the accelerators.
    """
    forward_time = _forward_time(work_counts, coefficients)
    recompute_s = _recompute_time(work_counts, coefficients, forward_time)
    part_times_s = {
        "products": work_counts.pass_count * forward_time.gemm,
        "expert_products": work_counts.pass_count * forward_time.expert,
        "attention": (1 + BACKWARD_PASSES) * forward_time.attention,
        "traffic": TRAINING_PASSES
        * (forward_time.scores + forward_time.traffic),
        "tensor_comm": 2 * forward_time.tensor,
        "token_exchange": 2 * (forward_time.exchange + forward_time.permute),
        "recomputation": recompute_s,
    }
    accelerator_s = coefficients.unlike * sum(part_times_s.values())
    link_bytes_s = work_counts.link_bytes_s * coefficients.link
    network_bytes_s = work_counts.network_bytes_s * coefficients.network
    accelerator_s = (
        accelerator_s
        + coefficients.context
        * TRAINING_PASSES
        * work_counts.context_bytes
        / link_bytes_s
    )
    accelerator_s = (
        accelerator_s
        + coefficients.hops
        * 2
        * work_counts.pipeline_bytes
        / (
            work_counts.pipeline_on_network * network_bytes_s
            + (1 - work_counts.pipeline_on_network) * link_bytes_s
        )
    )
    host_s = (
        work_counts.moe_layers * coefficients.moe_host
        + work_counts.dense_layers * coefficients.dense_host
    )
    busy_s = (
        accelerator_s**coefficients.host_power + host_s**coefficients.host_power
    ) ** (1 / coefficients.host_power)
    head_s = _head_time(work_counts, coefficients)
    stage_head_s = (
        head_s / work_counts.stage_count
        + coefficients.head_last
        * head_s
        * work_counts.is_pipelined
        * (1 - 1 / work_counts.stage_count)
    )
    compute_s = busy_s + stage_head_s
    sharding = sharding_time(
        work_counts,
        coefficients,
        link_bytes_s,
        network_bytes_s,
        work_counts.memory_bytes_s,
    )
    overlapped_part_s = overlapped_s(compute_s, sharding.gather_s, coefficients)
    micro_batch_s = (
        work_counts.gathers_once * compute_s
        + (1 - work_counts.gathers_once) * overlapped_part_s
    )
    once_s = sharding.once_s + work_counts.gathers_once * sharding.gather_s
    bubble_s = coefficients.bubble * work_counts.bubble_batches * micro_batch_s
    scale_factor = 1 + coefficients.doubling * work_counts.rank_doublings
    return StepTime(
        total=(work_counts.micro_batches * micro_batch_s + bubble_s + once_s)
        * scale_factor,
        host_wait=work_counts.micro_batches * (busy_s - accelerator_s),
        head=work_counts.micro_batches * stage_head_s,
        bubble=bubble_s,
        once_a_step=once_s,
        sharding=work_counts.micro_batches * (micro_batch_s - compute_s),
        **{
            part_name: work_counts.micro_batches * part_s
            for part_name, part_s in part_times_s.items()
        },
    )


def _clock_share(
    work_counts: RankWork, coefficients: TrainingCoefficients
) -> float:
    """Share of a data sheet's rate at the clock that the power limit allows."""
    clock_share: float = (
        work_counts.power_ratio**coefficients.clock * coefficients.speed
    )
    return clock_share


def _forward_time(
    work_counts: RankWork, coefficients: TrainingCoefficients
) -> _ForwardTime:
    clock_share = _clock_share(work_counts, coefficients)
    flop_per_s = (
        work_counts.peak_flop_s
        * coefficients.precision
        * coefficients.products
        * clock_share
    )
    traffic_s_per_byte = (
        coefficients.traffic
        * (1 + 0.5 * coefficients.quantizing * work_counts.is_quantized)
        / work_counts.memory_bytes_s
    )
    tensor_bytes_s = (
        work_counts.tensor_on_network
        * work_counts.network_bytes_s
        * coefficients.network
        + (1 - work_counts.tensor_on_network)
        * work_counts.link_bytes_s
        * coefficients.link
    )
    link_bytes_s = work_counts.link_bytes_s * coefficients.exchange_rate
    network_bytes_s = work_counts.network_bytes_s * coefficients.exchange_rate
    sending_s = (
        work_counts.exchange_link_bytes / link_bytes_s
        + coefficients.exchange_network
        * work_counts.exchange_network_bytes
        / network_bytes_s
    )
    return _ForwardTime(
        gemm=work_counts.gemm_flop / flop_per_s
        + work_counts.gemm_bytes / work_counts.memory_bytes_s,
        expert=work_counts.expert_flop
        / (flop_per_s * coefficients.expert_products)
        + work_counts.expert_bytes / work_counts.memory_bytes_s
        + work_counts.local_experts
        * coefficients.local_expert
        / TRAINING_PASSES,
        attention=work_counts.attention_flop
        / (work_counts.flop_s_16bit * coefficients.attention * clock_share)
        + coefficients.softmax
        * work_counts.exponentials
        / work_counts.exponentials_s,
        scores=coefficients.scores
        * work_counts.score_bytes
        / work_counts.memory_bytes_s,
        traffic=traffic_s_per_byte
        * (
            work_counts.traffic_bytes
            + coefficients.expert_traffic * work_counts.expert_traffic_bytes
        ),
        tensor=coefficients.tensor * work_counts.tensor_bytes / tensor_bytes_s,
        exchange=2 * coefficients.exchange * sending_s,
        permute=coefficients.permute
        / 2
        * work_counts.permuted_bytes
        / work_counts.memory_bytes_s,
    )


def _recompute_time(
    work_counts: RankWork,
    coefficients: TrainingCoefficients,
    forward_time: _ForwardTime,
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
        work_counts.recomputed_gemm * product_s
        + work_counts.recomputed_attention
        * (forward_time.attention + forward_time.scores)
    )
    forced_s: float = (
        coefficients.forced
        * work_counts.forced_share**coefficients.forced_power
        * forward_time.total
    )
    return (
        stated_s
        + work_counts.recomputed_traffic * forward_time.traffic
        + forced_s
    )


def _head_time(
    work_counts: RankWork, coefficients: TrainingCoefficients
) -> float:
    """Seconds of the head and the loss, in 16 bit, of one micro-batch."""
    flop_per_s = (
        work_counts.flop_s_16bit
        * coefficients.products
        * _clock_share(work_counts, coefficients)
    )
    head_s: float = (
        work_counts.pass_count * work_counts.head_flop / flop_per_s
        + coefficients.loss_traffic
        * work_counts.head_bytes
        / work_counts.memory_bytes_s
    )
    return head_s


def sharding_time(
    work_counts: RankWork | ShardingTraffic,
    coefficients: TrainingCoefficients,
    link_bytes_s: float,
    network_bytes_s: float,
    memory_bytes_s: float,
) -> ShardingTime:
    """Seconds that sharding moves bytes, over link and network at once, and of the optimizer."""
    gather_s = (
        larger(
            work_counts.shard_network_bytes / network_bytes_s,
            work_counts.shard_link_bytes / link_bytes_s,
        )
        + coefficients.latency * work_counts.shard_calls
    )
    reduce_s = (
        work_counts.reduce_network_bytes / network_bytes_s
        + work_counts.reduce_link_bytes / link_bytes_s
    )
    return ShardingTime(
        gather_s,
        coefficients.zero * reduce_s
        + work_counts.optimizer_bytes / memory_bytes_s
        + coefficients.step,
    )


def overlapped_s(
    compute_s: float, gather_s: float, coefficients: TrainingCoefficients
) -> float:
    """Seconds of a micro-batch that computes while FSDP gathers."""
    return larger(compute_s, gather_s) + coefficients.contention * smaller(
        compute_s, gather_s
    )


def tokens_per_s(
    work_counts: RankWork, coefficients: TrainingCoefficients
) -> float:
    """Tokens a second of one accelerator."""
    return work_counts.tokens / step_time(work_counts, coefficients).total

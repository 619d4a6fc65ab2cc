"""Time of a training step from its work, in seconds.

Products, element-wise traffic, collectives and host time add up. Every number may be an array
with one element for each of many jobs, so no branch depends on a value.
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
    """Time of one step and its parts, in seconds.

    A part is summed over the micro-batches of a stage. Parts of products, attention, traffic,
    communication and recomputation exclude the factor `unlike`. All parts exclude the factor
    `scale` of `step_time`.

    total            time of the step
    products         dense products, forward and backward
    attention        attention kernels, forward and backward
    traffic          element-wise traffic and stored scores
    expert_products  products of routed experts
    tensor_comm      exposed collectives of tensor parallelism
    token_exchange   all-to-all and permutation of tokens for experts
    recomputation    recomputed forward passes and the pass of a reference
    host_wait        time by which host work extends the micro-batches
    head             output head and loss
    sharding         exposed gathers of FSDP
    bubble           pipeline bubble
    once_a_step      reduction of gradients, optimizer and constant
    """

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
    """Time of sharded states, in seconds.

    gather_s  gathers and scatters of a micro-batch
    once_s    reduction of gradients, optimizer and constant, once a step
    """

    gather_s: float
    once_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _ForwardTime:
    """Time of one forward pass of a micro-batch on one stage, in seconds.

    gemm       dense products
    expert     products of routed experts
    attention  attention kernels
    scores     traffic of a stored score matrix
    traffic    other element-wise traffic
    tensor     exposed collectives of tensor parallelism
    exchange   exposed all-to-all of tokens
    permute    permutation of tokens
    """

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

    total = (M * t + bubble + once) * scale
    t     = (accelerator^q + host^q)^(1 / q) + head, overlapped with the gathers of FSDP

    M            micro-batches of a step
    accelerator  forward, backward, recomputation and exposed communication of a micro-batch
    host         host time of the layers of a stage
    q            exponent `host_power`
    bubble       bubble * (pp - 1) / vpp * t
    once         reduction of gradients, optimizer and constant
    scale        1 + doubling * doublings of accelerators beyond 8
    """
    forward_time = _forward_time(work_counts, coefficients)
    recompute_s = _recompute_time(work_counts, coefficients, forward_time)
    part_times_s = {
        # Forward, gradient of inputs and, if trained, that of weights.
        "products": work_counts.pass_count * forward_time.gemm,
        "expert_products": work_counts.pass_count * forward_time.expert,
        "attention": (1 + BACKWARD_PASSES) * forward_time.attention,
        "traffic": TRAINING_PASSES
        * (forward_time.scores + forward_time.traffic),
        # Backward sends as much as forward: two passes.
        "tensor_comm": 2 * forward_time.tensor,
        "token_exchange": 2 * (forward_time.exchange + forward_time.permute),
        "recomputation": recompute_s,
    }
    # `unlike` is the factor of an architecture with unusual layers.
    accelerator_s = coefficients.unlike * sum(part_times_s.values())
    link_bytes_s = work_counts.link_bytes_s * coefficients.link
    network_bytes_s = work_counts.network_bytes_s * coefficients.network
    accelerator_s = (
        accelerator_s
        # Exposed exchange of keys and values between context ranks.
        + coefficients.context
        * TRAINING_PASSES
        * work_counts.context_bytes
        / link_bytes_s
    )
    accelerator_s = (
        accelerator_s
        # Exposed transfers between stages, forward and backward.
        + coefficients.hops
        * 2
        * work_counts.pipeline_bytes
        / (
            # Indicator of 0 or 1 in place of a branch: values may be arrays.
            work_counts.pipeline_on_network * network_bytes_s
            + (1 - work_counts.pipeline_on_network) * link_bytes_s
        )
    )
    host_s = (
        work_counts.moe_layers * coefficients.moe_host
        + work_counts.dense_layers * coefficients.dense_host
    )
    # Host and accelerator overlap in part: a norm of both.
    busy_s = (
        accelerator_s**coefficients.host_power + host_s**coefficients.host_power
    ) ** (1 / coefficients.host_power)
    head_s = _head_time(work_counts, coefficients)
    stage_head_s = (
        # Mean over the stages, and a share for the imbalance of the last.
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
        # With a pipeline FSDP gathers once a step, outside micro-batches.
        work_counts.gathers_once * compute_s
        + (1 - work_counts.gathers_once) * overlapped_part_s
    )
    once_s = sharding.once_s + work_counts.gathers_once * sharding.gather_s
    # Textbook bubble: (pp - 1) / vpp micro-batches.
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
    """Return the sustained rate over that of the data sheet.

    power_ratio^clock * speed: clocks fall when board power is low for the peak rate.
    """
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
        # Additional traffic of quantization: half of `quantizing`.
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
    # An all-to-all reaches less bandwidth than other collectives.
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
        # `local_expert` covers three passes; one of them is forward.
        * coefficients.local_expert
        / TRAINING_PASSES,
        attention=work_counts.attention_flop
        # The rate of attention is a share of the 16-bit peak.
        / (work_counts.flop_s_16bit * coefficients.attention * clock_share)
        # Exponentials of the softmax run on their own units.
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
        # `permute` counts the passes of forward and backward together.
        / 2
        * work_counts.permuted_bytes
        / work_counts.memory_bytes_s,
    )


def _recompute_time(
    work_counts: RankWork,
    coefficients: TrainingCoefficients,
    forward_time: _ForwardTime,
) -> float:
    """Return the time of recomputation in a micro-batch, in seconds.

    stated level + pass of a reference + forced * forced_share^forced_power * forward pass
    """
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
        # An exponent above 1: cheap operations are recomputed first.
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
    """Return the time of head and loss of a micro-batch in 16 bit, in seconds."""
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
    """Return the time of sharded states, in seconds.

    gather = max(network bytes / network_bytes_s, link bytes / link_bytes_s) + latency * calls
    once   = zero * (network time + link time of the reduction)
             + optimizer bytes / memory_bytes_s + step

    `link_bytes_s` and `network_bytes_s` are the bandwidths that collectives reach.
    """
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
        # Backward hides a part of the reduction of gradients.
        coefficients.zero * reduce_s
        + work_counts.optimizer_bytes / memory_bytes_s
        + coefficients.step,
    )


def overlapped_s(
    compute_s: float, gather_s: float, coefficients: TrainingCoefficients
) -> float:
    """Return the time of a micro-batch that computes while FSDP gathers, in seconds.

    max(compute, gather) + contention * min(compute, gather)
    """
    return larger(compute_s, gather_s) + coefficients.contention * smaller(
        compute_s, gather_s
    )


def tokens_per_s(
    work_counts: RankWork, coefficients: TrainingCoefficients
) -> float:
    """Return the tokens/s of one accelerator."""
    return work_counts.tokens / step_time(work_counts, coefficients).total

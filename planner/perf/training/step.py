"""Time of a training step from its work, in seconds.

Products, element-wise traffic, collectives and host time add up. Every number may be an array
with one element for each of many jobs, so no branch depends on a value.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct

from planner.perf.serving.step import larger, smaller
from planner.perf.training.forward_pass import (
    TRAINING_PASSES,
    clock_share,
    forward_time,
    quantization_time,
)

if TYPE_CHECKING:
    from planner.perf.training.coefficients import TrainingCoefficients
    from planner.perf.training.forward_pass import ForwardTime
    from planner.perf.training.sharding import ShardingTraffic
    from planner.perf.training.work import RankWork

# Passes of attention's products in a backward that recomputes the scores, and of scans.
BACKWARD_PASSES: Final = 2.5


class StepTime(Struct, frozen=True, kw_only=True):
    """Time of one step and its parts, in seconds.

    A part is summed over the micro-batches of a stage. Parts of products, attention, traffic,
    communication and recomputation exclude the factor `unlike`. All parts exclude the factor
    `scale` of `step_time`.

    total            time of the step
    products         dense products, forward and backward
    attention        attention kernels and scans of state-space layers, forward and backward
    traffic          element-wise traffic and stored scores
    quantization     quantization of operands, forward and backward
    expert_products  products of routed experts
    tensor_comm      exposed collectives of tensor parallelism
    token_exchange   all-to-all and permutation of tokens for experts
    recomputation    recomputed forward passes and the pass of a reference
    unpacking        unpacking of frozen weights of less than 8 bit
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
    quantization: float
    expert_products: float
    tensor_comm: float
    token_exchange: float
    unpacking: float
    recomputation: float
    host_wait: float
    head: float
    sharding: float
    bubble: float
    once_a_step: float


class ShardingTime(Struct, frozen=True):
    """Time of sharded states, in seconds.

    gather_s  gathers and scatters of a micro-batch
    once_s    reduction of gradients, optimizer and constant, once a step
    """

    gather_s: float
    once_s: float


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
    link_bytes_s = work_counts.link_bytes_s * coefficients.link
    network_bytes_s = work_counts.network_bytes_s * coefficients.network
    part_times_s = _part_times(work_counts, coefficients)
    accelerator_s = (
        # `unlike` is the factor of an architecture with unusual layers.
        coefficients.unlike * sum(part_times_s.values())
        + _context_time(
            work_counts, coefficients, link_bytes_s, network_bytes_s
        )
        + _hop_time(work_counts, coefficients, link_bytes_s, network_bytes_s)
    )
    busy_s = _busy_time(work_counts, coefficients, accelerator_s)
    stage_head_s = _stage_head_time(work_counts, coefficients)
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


def _part_times(
    work_counts: RankWork, coefficients: TrainingCoefficients
) -> dict[str, float]:
    """Return the parts of a micro-batch that the factor `unlike` applies to, in seconds."""
    forward_pass = forward_time(work_counts, coefficients)
    return {
        # Forward, gradient of inputs and, if trained, that of weights.
        "products": work_counts.pass_count * forward_pass.gemm,
        "expert_products": (work_counts.pass_count + work_counts.slow_passes)
        * forward_pass.expert,
        "attention": (1 + BACKWARD_PASSES)
        * (forward_pass.attention + forward_pass.scan),
        "traffic": TRAINING_PASSES
        * (forward_pass.scores + forward_pass.traffic),
        "quantization": forward_pass.quantizing
        + quantization_time(
            work_counts.quantized_gradient_bytes,
            work_counts.quantized_expert_gradient_bytes,
            work_counts,
            coefficients,
        ),
        # Backward sends as much as forward: two passes.
        "tensor_comm": 2 * forward_pass.tensor,
        "token_exchange": 2 * (forward_pass.exchange + forward_pass.permute),
        "unpacking": _unpack_time(work_counts, coefficients),
        "recomputation": _recompute_time(
            work_counts, coefficients, forward_pass
        ),
    }


def _unpack_time(
    work_counts: RankWork, coefficients: TrainingCoefficients
) -> float:
    """Return the time to unpack frozen weights in a micro-batch, in seconds.

    unpack * bytes * (passes + recomputed share) / memory bandwidth

    Every pass over the products unpacks them again, since nothing keeps them in 16 bit.
    """
    return (
        coefficients.unpack
        * work_counts.unpacked_bytes
        * (work_counts.pass_count + work_counts.recomputed_gemm)
        / work_counts.memory_bytes_s
    )


def _recompute_time(
    work_counts: RankWork,
    coefficients: TrainingCoefficients,
    forward_pass: ForwardTime,
) -> float:
    """Return the time of recomputation in a micro-batch, in seconds.

    stated level + pass of a reference + forced * forced_share^forced_power * forward pass
    """
    expert_s = (
        forward_pass.expert + forward_pass.exchange + forward_pass.permute
    )
    stated_s = (
        work_counts.recomputed_gemm
        * (forward_pass.gemm + forward_pass.tensor + forward_pass.scan)
        + work_counts.recomputed_experts * expert_s
        + work_counts.recomputed_attention
        * (forward_pass.attention + forward_pass.scores)
    )
    forced_s: float = (
        coefficients.forced
        # An exponent above 1: cheap operations are recomputed first.
        * work_counts.forced_share**coefficients.forced_power
        * forward_pass.total
    )
    return (
        stated_s
        + work_counts.recomputed_traffic
        * (forward_pass.traffic + forward_pass.quantizing)
        + forced_s
    )


def _context_time(
    work_counts: RankWork,
    coefficients: TrainingCoefficients,
    link_bytes_s: float,
    network_bytes_s: float,
) -> float:
    """Return the exposed exchange of keys and values between context ranks, in seconds.

    context * 3 * (context bytes / bandwidth + latency): of the link where ranks share one,
    else of the network
    """
    ring_s = (
        _wire_time(
            work_counts.context_bytes,
            work_counts.context_on_network,
            link_bytes_s,
            network_bytes_s,
        )
        + work_counts.context_latency_s
    )
    return coefficients.context * TRAINING_PASSES * ring_s


def _wire_time(
    sent_bytes: float,
    is_on_network: float,
    link_bytes_s: float,
    network_bytes_s: float,
) -> float:
    """Return the time of bytes over the link, or over the network where `is_on_network` is 1."""
    # An indicator in place of a branch: values may be arrays.
    return sent_bytes * (
        is_on_network / network_bytes_s + (1 - is_on_network) / link_bytes_s
    )


def _hop_time(
    work_counts: RankWork,
    coefficients: TrainingCoefficients,
    link_bytes_s: float,
    network_bytes_s: float,
) -> float:
    """Return the exposed transfers between stages, forward and backward, in seconds.

    hops * 2 * (pipeline bytes / bandwidth + latency): of the link where ranks share one, else
    of the network
    """
    hop_s = (
        _wire_time(
            work_counts.pipeline_bytes,
            work_counts.pipeline_on_network,
            link_bytes_s,
            network_bytes_s,
        )
        + work_counts.pipeline_latency_s
    )
    return coefficients.hops * 2 * hop_s


def _busy_time(
    work_counts: RankWork,
    coefficients: TrainingCoefficients,
    accelerator_s: float,
) -> float:
    """Return the time of accelerator and host in a micro-batch, in seconds.

    (accelerator^q + host^q)^(1 / q), with the exponent `host_power` as q
    """
    host_s = (
        work_counts.moe_layers * coefficients.moe_host
        + work_counts.dense_layers * coefficients.dense_host
        + work_counts.local_experts * coefficients.local_expert
    )
    # Host and accelerator overlap in part: a norm of both.
    busy_s: float = (
        accelerator_s**coefficients.host_power + host_s**coefficients.host_power
    ) ** (1 / coefficients.host_power)
    return busy_s


def _stage_head_time(
    work_counts: RankWork, coefficients: TrainingCoefficients
) -> float:
    """Return the time of head and loss that a micro-batch adds to a stage, in seconds.

    head / stages + head_last * head * (1 - 1 / stages), the latter with a pipeline
    """
    head_s = _head_time(work_counts, coefficients)
    return (
        # Mean over the stages, and a share for the imbalance of the last.
        head_s / work_counts.stage_count
        + coefficients.head_last
        * head_s
        * work_counts.is_pipelined
        * (1 - 1 / work_counts.stage_count)
    )


def _head_time(
    work_counts: RankWork, coefficients: TrainingCoefficients
) -> float:
    """Return the time of head and loss of a micro-batch in 16 bit, in seconds."""
    flop_per_s = (
        work_counts.flop_s_16bit
        * coefficients.products
        * clock_share(work_counts, coefficients)
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
             + latency of the network
    once   = zero * (network time + link time of the reduction + latency of the network)
             + optimizer bytes / memory_bytes_s + step

    `link_bytes_s` and `network_bytes_s` are the bandwidths that collectives reach.
    """
    gather_s = (
        larger(
            work_counts.shard_network_bytes / network_bytes_s,
            work_counts.shard_link_bytes / link_bytes_s,
        )
        + coefficients.latency * work_counts.shard_calls
        + work_counts.shard_latency_s
    )
    reduce_s = (
        work_counts.reduce_network_bytes / network_bytes_s
        + work_counts.reduce_link_bytes / link_bytes_s
        + work_counts.reduce_latency_s
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

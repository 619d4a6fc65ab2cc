"""Time of one forward pass of a micro-batch on one pipeline stage, in seconds.

Every number may be an array with one element for each of many jobs, so no branch depends on a
value.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct

from planner.perf.serving.step import larger

if TYPE_CHECKING:
    from planner.perf.training.coefficients import TrainingCoefficients
    from planner.perf.training.work import RankWork

TRAINING_PASSES: Final = 3.0  # forward and twice as much backward


class ForwardTime(Struct, frozen=True, kw_only=True):
    """Time of one forward pass of a micro-batch on one stage, in seconds.

    gemm       dense products
    expert     products of routed experts
    attention  attention kernels
    scan       scans of state-space layers
    scores     traffic of a stored score matrix
    traffic    other element-wise traffic
    quantizing  quantization of inputs
    tensor     exposed collectives of tensor parallelism
    exchange   exposed all-to-all of tokens
    permute    permutation of tokens
    """

    gemm: float
    expert: float
    attention: float
    scan: float
    scores: float
    traffic: float
    quantizing: float
    tensor: float
    exchange: float
    permute: float

    @property
    def total(self) -> float:
        """Return the time of the whole pass, in seconds."""
        movement_s = (
            self.scores
            + self.traffic
            + self.quantizing
            + self.tensor
            + self.exchange
            + self.permute
        )
        return self.gemm + self.expert + self.attention + self.scan + movement_s


def forward_time(
    work_counts: RankWork, coefficients: TrainingCoefficients
) -> ForwardTime:
    """Return the time of one forward pass of a micro-batch on one stage."""
    # Of a peak that products reach in the precision of their data sheet.
    reached_share = (
        coefficients.precision
        * coefficients.products
        * clock_share(work_counts, coefficients)
    )
    return ForwardTime(
        gemm=(
            work_counts.gemm_flop
            # What starts and ends a sum costs as much as so much more depth.
            + coefficients.depth * work_counts.gemm_sum_flop
        )
        / (work_counts.peak_flop_s * reached_share)
        + work_counts.gemm_bytes / work_counts.memory_bytes_s,
        expert=_expert_time(work_counts, coefficients, reached_share),
        attention=_attention_time(work_counts, coefficients),
        scan=_scan_time(work_counts, coefficients),
        scores=coefficients.scores
        * work_counts.score_bytes
        / work_counts.memory_bytes_s,
        traffic=_traffic_time(work_counts, coefficients),
        quantizing=quantization_time(
            work_counts.quantized_input_bytes,
            work_counts.quantized_expert_input_bytes,
            work_counts,
            coefficients,
        ),
        tensor=_tensor_time(work_counts, coefficients),
        exchange=_exchange_time(work_counts, coefficients),
        permute=coefficients.permute
        # `permute` counts the passes of forward and backward together.
        / 2
        * work_counts.permuted_bytes
        / work_counts.memory_bytes_s,
    )


def clock_share(
    work_counts: RankWork, coefficients: TrainingCoefficients
) -> float:
    """Return the sustained rate over that of the data sheet.

    power_ratio^clock * speed: clocks fall when board power is low for the peak rate.
    """
    sustained_share: float = (
        work_counts.power_ratio**coefficients.clock * coefficients.speed
    )
    return sustained_share


def _expert_time(
    work_counts: RankWork,
    coefficients: TrainingCoefficients,
    reached_share: float,
) -> float:
    """Return the time of products of routed experts, in seconds.

    (FLOP + depth * FLOP of depth 1) / rate + bytes / memory bandwidth

    `reached_share` is that of a peak which dense products reach.
    """
    return (
        work_counts.expert_flop
        + coefficients.depth * work_counts.expert_sum_flop
    ) / (
        work_counts.expert_peak_flop_s
        * reached_share
        * coefficients.expert_precision
        * coefficients.expert_products
    ) + work_counts.expert_bytes / work_counts.memory_bytes_s


def _attention_time(
    work_counts: RankWork, coefficients: TrainingCoefficients
) -> float:
    """Return the time of attention kernels, in seconds.

    FLOP / rate + softmax * exponentials / their rate
    """
    return (
        work_counts.attention_flop
        # The rate of attention is a share of the 16-bit peak.
        / (
            work_counts.flop_s_16bit
            * coefficients.attention
            * clock_share(work_counts, coefficients)
        )
        # Exponentials of the softmax run on their own units.
        + coefficients.softmax
        * work_counts.exponentials
        / work_counts.exponentials_s
    )


def _scan_time(
    work_counts: RankWork, coefficients: TrainingCoefficients
) -> float:
    """Return the time of scans of state-space layers, in seconds.

    FLOP / (scan * 32-bit peak) + bytes / memory bandwidth

    Published kernels gain as little by a newer accelerator as its 32-bit units do.
    """
    return (
        work_counts.scan_flop / (coefficients.scan * work_counts.flop_s_32bit)
        + work_counts.scan_bytes / work_counts.memory_bytes_s
    )


def _traffic_time(
    work_counts: RankWork, coefficients: TrainingCoefficients
) -> float:
    """Return the time of element-wise traffic without stored scores, in seconds.

    traffic * bytes / memory bandwidth
    """
    traffic_bytes = (
        work_counts.traffic_bytes
        + coefficients.expert_traffic * work_counts.expert_traffic_bytes
    )
    return coefficients.traffic * traffic_bytes / work_counts.memory_bytes_s


def quantization_time(
    usual_bytes: float,
    expert_bytes: float,
    work_counts: RankWork,
    coefficients: TrainingCoefficients,
) -> float:
    """Return the time that quantizes operands of products, in seconds.

    quantizing * (bytes + expert_quantizing * bytes of experts) / memory bandwidth
    """
    quantized_bytes = (
        usual_bytes + coefficients.expert_quantizing * expert_bytes
    )
    return (
        coefficients.quantizing * quantized_bytes / work_counts.memory_bytes_s
    )


def _tensor_time(
    work_counts: RankWork, coefficients: TrainingCoefficients
) -> float:
    """Return the exposed collectives of tensor parallelism, in seconds.

    tensor * (max(bytes / link, bytes through a NIC / its bandwidth) + latency)

    All hops of a ring work at once: the slowest wire sets the pace.
    """
    ring_s = larger(
        work_counts.tensor_bytes
        / (work_counts.link_bytes_s * coefficients.link),
        work_counts.tensor_network_bytes
        / (work_counts.network_bytes_s * coefficients.network),
    )
    return coefficients.tensor * (ring_s + work_counts.tensor_latency_s)


def _exchange_time(
    work_counts: RankWork, coefficients: TrainingCoefficients
) -> float:
    """Return the exposed all-to-all of tokens, dispatch and combine, in seconds.

    2 * exchange * (link bytes / link + exchange_network * (network bytes / network + latency))
    """
    # An all-to-all reaches less bandwidth than other collectives.
    link_bytes_s = work_counts.link_bytes_s * coefficients.exchange_rate
    network_bytes_s = work_counts.network_bytes_s * coefficients.exchange_rate
    sending_s = (
        work_counts.exchange_link_bytes / link_bytes_s
        + coefficients.exchange_network
        * (
            work_counts.exchange_network_bytes / network_bytes_s
            + work_counts.exchange_latency_s
        )
    )
    return 2 * coefficients.exchange * sending_s

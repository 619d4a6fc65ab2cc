"""Fitted coefficients of serving."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from planner.perf.common.coefficient_table import CoefficientTable


class Coefficients(Struct, frozen=True, kw_only=True):
    """The coefficients that apply to one replica.

    The file planner/perf/data/coefficients.csv gives the unit and the meaning of each field.
    """

    # Values are products of keyed factors and depend on the year.
    answer_longest: float
    answer_share: float
    answer_variance: float
    expert_bytes: float
    expert_flops: float
    expert_imbalance: float
    expert_padding: float
    expert_width: float
    first_token: float
    first_wave: float
    flops: float
    gather_bandwidth: float
    gather_latency: float
    hop_latency: float
    interference: float
    kv_bandwidth: float
    latent_flops: float
    latent_overhead: float
    layer_overhead: float
    link_bandwidth: float
    link_latency: float
    link_latency_growth: float
    link_phase: float
    memory_share: float
    moe_overhead: float
    network_bandwidth: float
    overhead: float
    overlap: float
    prompt_attention: float
    prompt_base: float
    prompt_full: float
    prompt_queue: float
    prompt_share: float
    prompt_step: float
    reserve_gib: float
    run_time: float
    sampling: float
    sequence_overhead: float
    server_time: float
    step_overhead: float
    step_wait: float
    stream: float
    stream_wait: float
    unpack_experts: float
    unpack_flops: float
    wave: float
    weight_bandwidth: float


# One table for all engines; keys select what applies to a replica.
SERVING: Final = CoefficientTable(Coefficients, "coefficients.csv")

"""Predicted metrics of a serving fleet, each with its 90 % band and its basis."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Final

from planner.perf.common import memory
from planner.perf.common.constant import constant
from planner.perf.serving.error_band import Band, assess_novelty, error_band
from planner.solve.serving.sizing import expected_service, saturation_rps
from planner.solve.solution import BandedPrediction
from planner.units import BYTES_PER_GIB, MS_PER_S

if TYPE_CHECKING:
    from planner.perf.serving.error_band import Basis
    from planner.solve.serving.requirement import ServingRequirement
    from planner.solve.serving.sizing import FleetSizing

PERCENTILES: Final = (50, 90, 95, 99)


def predict_serving(
    requirement: ServingRequirement, sizing: FleetSizing
) -> dict[str, BandedPrediction]:
    """Return the metrics of a fleet at peak, with all peak groups up.

    all modes: `memory_gib_per_accelerator`, `memory_fraction`, `output_tokens_per_s`,
               `requests_per_s`
    batch:     `duration_days`
    open:      `busy_fraction`, the requests that arrive of those that the fleet could complete
    others:    `ttft_pNN_ms`, `tpot_pNN_ms`, `e2e_pNN_ms` for percentiles 50, 90, 95 and 99
    An open load is served as it arrives, so its rates have no band.
    """
    novelties, basis = assess_novelty(
        requirement.llm,
        sizing.layout,
        sizing.replica.node.accelerator,
        sizing.replica.engine.kind,
        load_kind="offline" if requirement.mode == "batch" else None,
        unstated_settings=requirement.has_draft,
    )
    replica_count = sizing.replicas_per_group * sizing.peak_groups
    service = expected_service(requirement, sizing)
    throughput_band = error_band("throughput", "offline", novelties, basis)
    # Start-up logs have the formats of the measured rates, and pipelines too.
    memory_basis: Basis = (
        "physics" if "precision" in novelties else "calibrated"
    )
    # Work / throughput: its factors are the reciprocals.
    inverse_band = Band(
        1 / throughput_band.high, 1 / throughput_band.low, basis
    )
    predictions = predict_memory(
        requirement, sizing, sizing.service.in_flight, memory_basis
    )
    rate_band = throughput_band
    if requirement.mode == "open":
        rate_band = Band(1.0, 1.0, basis)
        predictions["busy_fraction"] = apply_band(
            service.rate_per_s / saturation_rps(sizing.replica.predicted),
            inverse_band,
        )
    for metric_name, metric_value in (
        ("output_tokens_per_s", service.output_tokens_per_s),
        ("requests_per_s", service.rate_per_s),
    ):
        predictions[metric_name] = apply_band(
            # The metric of one replica * equal replicas.
            metric_value * replica_count,
            rate_band,
        )
    if requirement.mode == "batch":
        predictions["duration_days"] = apply_band(
            sizing.duration_hours / 24, inverse_band
        )
        return predictions
    latency_bands = {
        metric: sizing.replica.band(metric) for metric in ("ttft", "tpot")
    }
    # e2e has no band of its own: it takes the wider of its two parts.
    latency_bands["e2e"] = wider_band(*latency_bands.values())
    for metric, percentile in itertools.product(
        sorted(latency_bands), PERCENTILES
    ):
        metric_value = service.quantile(metric, percentile) * MS_PER_S
        predictions[f"{metric}_p{percentile}_ms"] = apply_band(
            metric_value, latency_bands[metric]
        )
    return predictions


def predict_memory(
    requirement: ServingRequirement,
    sizing: FleetSizing,
    in_flight: float,
    basis: Basis,
) -> dict[str, BandedPrediction]:
    """Return the memory of an accelerator with a mean number of requests in a replica."""
    memory_budget = sizing.replica.startup_memory
    kv_cache_gib = (
        # Mean requests in flight * KV bytes at the mean decode context.
        in_flight
        * memory.kv_bytes(
            sizing.replica.stored_llm,
            sizing.layout,
            requirement.load.decode_context_tokens,
        )
        / BYTES_PER_GIB
    )
    used_gib = (
        memory_budget.weights_gib
        + memory_budget.overhead_gib
        # The KV pool of the engine caps the cache.
        + min(kv_cache_gib, memory_budget.kv_gib)
    )
    # Half width of the 90 % band, from constants.csv.
    error_share = constant("memory_error", "used")
    memory_band = Band(1 - error_share, 1 + error_share, basis)
    return {
        "memory_gib_per_accelerator": apply_band(used_gib, memory_band),
        "memory_fraction": apply_band(
            used_gib / memory_budget.total_gib, memory_band
        ),
    }


def wider_band(first_band: Band, second_band: Band) -> Band:
    """Return the band that covers both."""
    return Band(
        min(first_band.low, second_band.low),
        max(first_band.high, second_band.high),
        first_band.basis,
    )


def apply_band(metric_value: float, band: Band) -> BandedPrediction:
    """Return a number with its band, whose ends are factors."""
    return BandedPrediction(
        metric_value,
        metric_value * band.low,
        metric_value * band.high,
        band.basis,
    )

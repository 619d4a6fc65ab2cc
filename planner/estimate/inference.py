"""Prediction of one deployment: throughput, latency and batch, with band and basis."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from planner.estimate.names import RefusedError
from planner.perf.common.constant import constant
from planner.perf.serving import load_shape, open_run, tail
from planner.perf.serving.error_band import (
    Band,
    Basis,
    assess_novelty,
    error_band,
    extrapolation,
    is_unmeasured_release,
    load_of_accelerator,
    load_of_engine,
)
from planner.perf.serving.served_rate import served_rate
from planner.units import BYTES_PER_GIB, MS_PER_S

if TYPE_CHECKING:
    from planner.perf.serving.deployment import Deployment, LoadKind
    from planner.perf.serving.load_shape import MeanLatency, ReplicaRates

P99: Final = 0.99
COLUMNS: Final = (
    "output_tok_s",
    "req_throughput_rps",
    "ttft_ms_mean",
    "ttft_ms_p99",
    "tpot_ms_mean",
    "tpot_ms_p99",
    "e2e_ms_mean",
    "max_batch",
    "served_rps",
)


class BandedValue(Struct, frozen=True):
    """A predicted number with the limits of its 90 % band, in the same unit."""

    value: float
    low: float
    high: float


class Estimate(Struct, frozen=True):
    """Predicted numbers of one row.

    basis    what the prediction rests on
    columns  value and band by column name; a column that does not apply is absent
    doubt    why what is answered may not run, or nothing
    """

    basis: Basis
    columns: dict[str, BandedValue]
    doubt: str = ""


class _Bands(Struct, frozen=True):
    throughput: Band
    tpot: Band
    ttft: Band


def predict_inference(deployment: Deployment) -> Estimate:
    """Predict a deployment; raises RefusedError when it cannot run.

    Units by column:
        output_tok_s        output tokens per second of the whole deployment
        req_throughput_rps  requests per second of the whole deployment
        *_ms_*              milliseconds
        max_batch           requests that fit in the memory of one replica
        served_rps          most requests per second of the whole deployment, in Poisson arrivals,
                            within the limits on both 99th percentiles, where they are given
    """
    replica_rates = deployment.replica_rates()
    _check_fit(deployment, replica_rates)
    load_kind = deployment.demand.load_kind
    unmeasured_traits, band_basis = _novelty(deployment, load_kind)
    doublings = _doublings_outside(deployment)
    metric_bands = _Bands(
        *(
            error_band(
                metric,
                *load_of_accelerator(
                    metric,
                    load_kind,
                    deployment.engine.kind,
                    deployment.node.accelerator,
                    unmeasured_traits,
                ),
                band_basis,
                doublings,
            )
            for metric in ("throughput", "tpot", "ttft")
        )
    )
    column_predictor = {
        "offline": _offline_columns,
        "static": _static_columns,
        "burst": _burst_columns,
        "closed": _closed_columns,
        "open": _open_columns,
    }[load_kind]
    columns = column_predictor(deployment, replica_rates, metric_bands)
    max_batch = float(math.floor(replica_rates.max_batch))
    # Half width of the 90 % band: an assumption, not a measurement.
    error_share = constant("memory_error", "batch")
    columns["max_batch"] = BandedValue(
        max_batch, max_batch * (1 - error_share), max_batch * (1 + error_share)
    )
    limits = deployment.demand.limits
    if limits is not None:
        pace = error_band(
            "served",
            load_of_engine("open", deployment.engine.kind),
            *_novelty(deployment, "open"),
            doublings,
        )
        # Near a limit a pace that is off by a tenth may halve a rate, or leave none.
        columns["served_rps"] = BandedValue(
            *(
                served_rate(replica_rates, limits, factor)
                * deployment.replica_count
                for factor in (1.0, pace.low, pace.high)
            )
        )
    return Estimate(band_basis, columns, _rate_doubt(deployment, replica_rates))


def _novelty(
    deployment: Deployment, load_kind: LoadKind
) -> tuple[frozenset[str], Basis]:
    """Return what is new about a deployment under a kind of load, and what it rests on."""
    return assess_novelty(
        deployment.llm,
        deployment.layout,
        deployment.node.accelerator,
        deployment.engine.kind,
        load_kind=load_kind,
        # Published rows do not state all settings of drafts and split pools.
        unstated_settings=_has_unstated_parts(deployment),
        unmeasured_release=is_unmeasured_release(deployment.engine),
    )


def _check_fit(deployment: Deployment, replica_rates: ReplicaRates) -> None:
    """Raise RefusedError where the weights leave no memory for a request."""
    if replica_rates.max_batch < 1:
        weights_gib = deployment.profile.weight_bytes / BYTES_PER_GIB
        memory_gib = deployment.node.memory_gib
        raise RefusedError(
            f"does not fit: weights take {weights_gib:,.1f} of {memory_gib:,.1f} GiB on each"
        )
    if (
        deployment.prefill_workers
        and deployment.prefill_profile.weight_bytes
        > deployment.prefill_profile.memory_bytes
    ):
        raise RefusedError(
            "does not fit: a prefill worker cannot hold the weights"
        )


def _doublings_outside(deployment: Deployment) -> int:
    """Return the number of doublings beyond the measured ranges.

    Raises RefusedError when there are more than the constant `too_far`.
    """
    demand = deployment.demand
    doublings, feature = extrapolation(
        prompt=demand.prompt_tokens,
        answer=demand.answer_tokens,
        active=deployment.llm.active_params,
        accelerators=deployment.layout.accelerators,
        batch=max(1.0, demand.user_count / deployment.replica_count),
    )
    if doublings > constant("too_far"):
        raise RefusedError(
            f"far outside what was measured: {feature}, by {doublings} doublings"
        )
    return doublings


def _has_unstated_parts(deployment: Deployment) -> bool:
    return (
        deployment.speculative
        or deployment.prefill_workers is not None
        # A model that is known by its size alone.
        or deployment.llm.is_assumed
    )


def _offline_columns(
    deployment: Deployment, replica_rates: ReplicaRates, metric_bands: _Bands
) -> dict[str, BandedValue]:
    return _throughput_columns(
        deployment,
        load_shape.offline_throughput(replica_rates) * deployment.replica_count,
        metric_bands.throughput,
    )


def _static_columns(
    deployment: Deployment, replica_rates: ReplicaRates, metric_bands: _Bands
) -> dict[str, BandedValue]:
    replica_users = max(
        1.0, deployment.demand.user_count / deployment.replica_count
    )
    batch_size = min(replica_users, replica_rates.max_batch)
    columns = _throughput_columns(
        deployment,
        load_shape.static_throughput(replica_rates, batch_size)
        * deployment.replica_count,
        metric_bands.throughput,
    )
    mean_tpot_s = (
        load_shape.tpot_at_batch(replica_rates, batch_size)
        # All prompts come first, so none interrupts a decode step.
        - replica_rates.interference_share
        * batch_size
        * replica_rates.prompt_busy_s
        / replica_rates.answer_tokens
    )
    # Requests above the batch limit run in waves after the first.
    later_waves = replica_users / batch_size - 1
    # On average a request waits for half of the later waves.
    mean_ttft_s = load_shape.static_ttft(
        replica_rates, batch_size
    ) + later_waves / 2 * (
        batch_size * replica_rates.prompt_busy_s
        + deployment.demand.answer_tokens * mean_tpot_s
    )
    return columns | _mean_latency(
        deployment, mean_ttft_s, mean_tpot_s, metric_bands
    )


def _burst_columns(
    deployment: Deployment, replica_rates: ReplicaRates, metric_bands: _Bands
) -> dict[str, BandedValue]:
    replica_requests = max(
        1.0, deployment.demand.user_count / deployment.replica_count
    )
    run = load_shape.burst_latency(replica_rates, replica_requests)
    return _throughput_columns(
        deployment,
        deployment.demand.user_count
        * deployment.demand.answer_tokens
        / run.run_s,
        metric_bands.throughput,
    ) | _mean_latency(deployment, run.ttft_s, run.tpot_s, metric_bands)


def _closed_columns(
    deployment: Deployment, replica_rates: ReplicaRates, metric_bands: _Bands
) -> dict[str, BandedValue]:
    replica_users = deployment.demand.user_count / deployment.replica_count
    mean_load = load_shape.closed_latency(replica_rates, replica_users)
    # Time of one request; the first token is part of TTFT.
    request_time_s = (
        mean_load.ttft_s
        + (deployment.demand.answer_tokens - 1) * mean_load.tpot_s
    )
    # Little's law: requests in flight / time of a request, in tokens.
    output_tok_s = (
        deployment.demand.user_count
        * deployment.demand.answer_tokens
        / request_time_s
    )
    # Throughput of a closed loop is 1 / time, so its band is that of TPOT.
    return _throughput_columns(
        deployment, output_tok_s, metric_bands.tpot, inverse=True
    ) | _latency_with_tail(deployment, replica_rates, mean_load, metric_bands)


def _open_columns(
    deployment: Deployment, replica_rates: ReplicaRates, metric_bands: _Bands
) -> dict[str, BandedValue]:
    demand = deployment.demand
    replica_rps = demand.rate_per_s / deployment.replica_count
    replica_requests = demand.request_count / deployment.replica_count
    capacity_rps = open_run.capacity(replica_rates)
    _check_rate(deployment, capacity_rps, metric_bands.throughput)
    answered_tok_s = (
        open_run.answered_rate(replica_rates, replica_rps, replica_requests)
        * deployment.replica_count
        * demand.answer_tokens
    )
    backlog_s = open_run.mean_backlog_wait(
        replica_rates, replica_rps, replica_requests
    )
    latency_columns = _latency_over_capacities(
        deployment,
        replica_rates,
        replica_rps,
        metric_bands,
        # A queue without end has no mean: the times are those if the rate is served after all.
        backlog_s=backlog_s if math.isfinite(backlog_s) else 0.0,
    )
    throughput_band = metric_bands.throughput
    # What arrives is served: only the end of the run is uncertain.
    if replica_rps < capacity_rps:
        # Half width of the 90 % band, from 98 published open-loop rows.
        served_error = constant("served_error")
        throughput_band = Band(1 - served_error, 1 + served_error, "physics")
    return (
        _throughput_columns(deployment, answered_tok_s, throughput_band)
        | latency_columns
    )


def _check_rate(
    deployment: Deployment, capacity_rps: float, throughput_band: Band
) -> None:
    """Raise RefusedError where more arrives without end than the band of capacity holds."""
    demand = deployment.demand
    total_capacity_rps = capacity_rps * deployment.replica_count
    if (
        math.isinf(demand.request_count)
        and demand.rate_per_s > throughput_band.high * total_capacity_rps
    ):
        raise RefusedError(
            f"cannot keep up: at most about {total_capacity_rps:,.1f} requests a second"
        )


def _rate_doubt(deployment: Deployment, replica_rates: ReplicaRates) -> str:
    """Return what is doubtful about a rate within the band of capacity, or nothing."""
    total_capacity_rps = (
        open_run.capacity(replica_rates) * deployment.replica_count
    )
    if deployment.demand.rate_per_s <= total_capacity_rps:
        return ""
    return (
        f"above its capacity of about {total_capacity_rps:,.1f} requests a second: "
        "first tokens wait ever longer, unless it serves that after all"
    )


def _latency_over_capacities(
    deployment: Deployment,
    replica_rates: ReplicaRates,
    replica_rps: float,
    metric_bands: _Bands,
    *,
    backlog_s: float,
) -> dict[str, BandedValue]:
    """Return latency at a rate, averaged over the uncertainty of the capacity.

    All of them wait for what was sent above capacity, `backlog_s` in the mean.

    Near saturation a time grows as 1 / (1 - load), so an error of capacity is amplified. The
    latency is computed at the low limit, the middle and the high limit of throughput.
        value         = geometric mean of the three
        half width^2  = half width of the metric^2 + (ln distance to the extreme capacity)^2
    """
    throughput_band = metric_bands.throughput
    capacity_cases = [
        _latency_with_tail(
            deployment,
            replica_rates,
            load_shape.poisson_latency(
                # More capacity has the same effect as a lower rate.
                replica_rates,
                replica_rps / capacity_factor,
            ),
            metric_bands,
            backlog_s=backlog_s,
        )
        for capacity_factor in (throughput_band.high, 1.0, throughput_band.low)
    ]
    return {
        column: _merge_capacities(
            [capacity_case[column] for capacity_case in capacity_cases]
        )
        for column in capacity_cases[0]
    }


def _merge_capacities(capacity_cases: list[BandedValue]) -> BandedValue:
    fast_log, expected_log, slow_log = (
        math.log(quantity.value) for quantity in capacity_cases
    )
    mean_log = (fast_log + expected_log + slow_log) / 3
    low_half_width, high_half_width = (
        math.log(quantity / capacity_cases[1].value)
        for quantity in (capacity_cases[1].low, capacity_cases[1].high)
    )
    # Errors of latency and of capacity are independent.
    low_half_width = math.hypot(low_half_width, mean_log - fast_log)
    high_half_width = math.hypot(high_half_width, slow_log - mean_log)
    return BandedValue(
        *(
            math.exp(quantity)
            for quantity in (
                mean_log,
                mean_log - low_half_width,
                mean_log + high_half_width,
            )
        )
    )


def _latency_with_tail(
    deployment: Deployment,
    replica_rates: ReplicaRates,
    mean_load: MeanLatency,
    metric_bands: _Bands,
    *,
    backlog_s: float = 0.0,
) -> dict[str, BandedValue]:
    columns = _mean_latency(
        deployment,
        mean_load.ttft_s + backlog_s,
        mean_load.tpot_s,
        metric_bands,
    )
    tail_ttft_s = tail.ttft_quantile(replica_rates, mean_load, P99)
    # The wait grows evenly from nothing to twice its mean.
    tail_ttft_s += P99 * 2 * backlog_s
    if deployment.demand.load_kind == "closed":
        replica_users = deployment.demand.user_count / deployment.replica_count
        tail_ttft_s = max(
            tail_ttft_s,
            tail.first_wave_quantile(
                replica_rates, mean_load, replica_users, P99
            ),
        )
    tail_ttft_ms = tail_ttft_s * MS_PER_S
    columns["ttft_ms_p99"] = _apply_band(
        tail_ttft_ms, _tail_band(metric_bands.ttft, "ttft")
    )
    # An answer of one token has no time per output token.
    if "tpot_ms_mean" in columns:
        tail_tpot_ms = (
            tail.tpot_quantile(
                replica_rates,
                mean_load,
                P99,
                arriving=deployment.demand.load_kind == "open",
            )
            * MS_PER_S
        )
        columns["tpot_ms_p99"] = _apply_band(
            tail_tpot_ms, _tail_band(metric_bands.tpot, "tpot")
        )
    return columns


def _tail_band(mean_band: Band, metric: str) -> Band:
    """Return the band of a 99th percentile.

    For each limit, in ln:
        half width^2 = half width of the mean^2 + tail_error^2
    """
    tail_error = constant("tail_error", metric)
    low_factor, high_factor = (
        # Error of the mean and of the ratio p99 / mean, in quadrature.
        math.exp(math.hypot(math.log(factor), tail_error))
        for factor in (mean_band.low, mean_band.high)
    )
    return Band(1 / low_factor, high_factor, mean_band.basis)


def _mean_latency(
    deployment: Deployment, ttft_s: float, tpot_s: float, metric_bands: _Bands
) -> dict[str, BandedValue]:
    """Return mean TTFT, TPOT and end-to-end time in ms, with bands.

    e2e = ttft + (answer - 1) * tpot

    The errors of the two terms of e2e are added in quadrature.
    """
    ttft_ms = _apply_band(ttft_s * MS_PER_S, metric_bands.ttft)
    tpot_ms = _apply_band(tpot_s * MS_PER_S, metric_bands.tpot)
    later_tokens = deployment.demand.answer_tokens - 1
    mean_e2e_ms = ttft_ms.value + later_tokens * tpot_ms.value
    low_error_ms, high_error_ms = (
        math.hypot(
            ttft_limit_ms - ttft_ms.value,
            later_tokens * (tpot_limit_ms - tpot_ms.value),
        )
        for ttft_limit_ms, tpot_limit_ms in (
            (ttft_ms.low, tpot_ms.low),
            (ttft_ms.high, tpot_ms.high),
        )
    )
    columns = {
        "ttft_ms_mean": ttft_ms,
        "e2e_ms_mean": BandedValue(
            mean_e2e_ms, mean_e2e_ms - low_error_ms, mean_e2e_ms + high_error_ms
        ),
    }
    return columns | ({"tpot_ms_mean": tpot_ms} if later_tokens else {})


def _throughput_columns(
    deployment: Deployment,
    output_tok_s: float,
    value_band: Band,
    *,
    inverse: bool = False,
) -> dict[str, BandedValue]:
    """Return output tokens and requests per second, with bands.

    With `inverse` the band is that of a time, and its reciprocal applies.
    """
    if inverse:
        # The high limit of a time is the low limit of a rate.
        value_band = Band(
            1 / value_band.high, 1 / value_band.low, value_band.basis
        )
    requests_per_s = output_tok_s / deployment.demand.answer_tokens
    return {
        "output_tok_s": _apply_band(output_tok_s, value_band),
        "req_throughput_rps": _apply_band(requests_per_s, value_band),
    }


def _apply_band(predicted: float, value_band: Band) -> BandedValue:
    return BandedValue(
        predicted, predicted * value_band.low, predicted * value_band.high
    )

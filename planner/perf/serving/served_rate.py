"""The highest rate of arrivals at which the 99th percentiles of latency keep two limits.

Every number may be an array with one value for each configuration.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct

from planner.numeric import bisect_up
from planner.perf.serving import load_shape, tail
from planner.perf.serving.step import smaller

if TYPE_CHECKING:
    from planner.perf.serving.load_shape import ReplicaRates

P99: Final = 0.99
BISECTION_STEPS: Final = 24
LEAST_BATCH: Final = 1e-3  # requests under way of a server that is almost idle


class LatencyLimits(Struct, frozen=True):
    """Limits on the 99th percentiles of the time to first token and of that per token, s."""

    ttft_p99_s: float
    tpot_p99_s: float


def rate_at_batch(rates: ReplicaRates, batch_size: float) -> float:
    """Return the requests a second that keep `batch_size` of them under way.

    rate = batch / (answer * server_time * tpot(batch)), Little's law
    """
    return batch_size / (
        rates.answer_tokens
        * rates.coefficients.server_time
        * load_shape.tpot_at_batch(rates, batch_size)
    )


def limit_slack(
    rates: ReplicaRates, batch_size: float, limits: LatencyLimits
) -> float:
    """Return how far the limits are kept with `batch_size` requests under way.

        min(ttft limit / ttft p99, tpot limit / tpot p99) - 1

    It is at least 0 where both are kept.
    """
    tpot_s = rates.coefficients.server_time * load_shape.tpot_at_batch(
        rates, batch_size
    )
    latency = load_shape.open_latency(
        rates, rate_at_batch(rates, batch_size), tpot_s
    )
    ttft_p99_s = tail.ttft_quantile(rates, latency, P99)
    tpot_p99_s = tail.tpot_quantile(rates, latency, P99, arriving=True)
    return (
        smaller(limits.ttft_p99_s / ttft_p99_s, limits.tpot_p99_s / tpot_p99_s)
        - 1.0
    )


def limits_at(limits: LatencyLimits, pace: float) -> LatencyLimits:
    """Return what a server has to keep so that one `pace` times as fast keeps some limits."""
    return LatencyLimits(pace * limits.ttft_p99_s, pace * limits.tpot_p99_s)


def served_rate(
    rates: ReplicaRates, limits: LatencyLimits, pace: float = 1.0
) -> float:
    """Return the most requests a second of a replica within both limits, 0 if there are none.

    Both percentiles grow with the batch, and so does the rate: the batch is found by bisection.
    The replica is `pace` times as fast as its rates say: all that takes it a second passes in
    1 / pace.
        rate at a pace within limits = pace * rate within (pace * limits)
    """
    limits = limits_at(limits, pace)
    if limit_slack(rates, LEAST_BATCH, limits) < 0.0:
        return 0.0
    # The bisection finds where the limits are first missed.
    batch_size = bisect_up(
        lambda batch: limit_slack(rates, batch, limits) < 0.0,
        LEAST_BATCH,
        rates.max_batch,
        BISECTION_STEPS,
    )
    return pace * rate_at_batch(rates, batch_size)

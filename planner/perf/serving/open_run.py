"""A run of requests that are sent at a rate: how many are answered a second, and who waits.

What is sent above capacity queues until the run ends. Rates are requests a second of one replica,
times are in seconds.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from planner.numeric import maximize
from planner.perf.serving.load_shape import offline_throughput, poisson_latency

if TYPE_CHECKING:
    from planner.perf.serving.load_shape import ReplicaRates

# Rates that are tried lie between this share of capacity and all of it.
LEAST_LOAD: Final = 1e-3
# Each step leaves 0.62 of the bracket: 30 leave a millionth.
SEARCH_STEPS: Final = 30


def capacity(rates: ReplicaRates) -> float:
    """Return the most requests a second that a replica answers, those of a full batch."""
    return offline_throughput(rates) / rates.answer_tokens


def answered_rate(
    rates: ReplicaRates, rate_per_s: float, request_count: float
) -> float:
    """Return the requests a second that a run answers, at most `capacity`.

        request_count / least over r <= rate of (request_count / r + time of a request at r)

    A benchmark divides by the time until the last answer ends. Who sends sooner is not done later:
    the answered rate never falls with the rate that is sent.
    """
    capacity_per_s = capacity(rates)
    if math.isinf(request_count):
        return min(rate_per_s, capacity_per_s)

    def run_s(log_rate: float) -> float:
        sent_per_s = math.exp(log_rate)
        latency = poisson_latency(rates, sent_per_s)
        request_s = latency.ttft_s + (rates.answer_tokens - 1) * latency.tpot_s
        return request_count / sent_per_s + request_s

    # The first term falls ever slower with the rate, and the second one grows ever faster.
    soonest = maximize(
        lambda log_rate: -run_s(log_rate),
        math.log(LEAST_LOAD * capacity_per_s),
        math.log(capacity_per_s),
        SEARCH_STEPS,
    )
    return min(
        capacity_per_s,
        request_count / run_s(min(math.log(rate_per_s), soonest)),
    )


def mean_backlog_wait(
    rates: ReplicaRates, rate_per_s: float, request_count: float
) -> float:
    """Return the mean seconds that requests wait for those that were sent above capacity.

        request_count / 2 * (1 / capacity - 1 / rate)

    The queue grows as long as requests are sent, and the last one waits twice as long. It is 0 up
    to capacity, and infinite above it in a run without end.
    """
    late_s = 1 / capacity(rates) - 1 / rate_per_s
    return request_count / 2 * late_s if late_s > 0 else 0.0

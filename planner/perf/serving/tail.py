"""Percentiles of a replica's latency around the means of a load shape.

A wait behind other prompts is zero or exponential; what else delays first tokens varies in
proportion. The time per token of a request varies with the prompts that happen to come in while
it answers, and with the batch, which its own answer averages. Both are taken as gamma
distributions of that mean and variance. As in physics, every number may be an array.
"""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import TYPE_CHECKING

from planner.perf.common.constant import constant
from planner.perf.serving.load_shape import MAX_UTILIZATION, tpot_at_batch
from planner.perf.serving.step import larger, smaller

if TYPE_CHECKING:
    from planner.perf.serving.load_shape import MeanLatency, ReplicaRates


def gamma_quantile(mean: float, variance: float, probability: float) -> float:
    """Quantile of a gamma distribution (Wilson and Hilferty, PNAS 17, 1931).

    mean * (1 - 1 / 9k + z / (3 sqrt k))^3 with k = mean^2 / variance.
    """
    relative_variance = variance / (mean * mean)
    z_score = NormalDist().inv_cdf(probability)
    return (
        mean
        * larger(
            1 - relative_variance / 9 + z_score * relative_variance**0.5 / 3,
            0.0,
        )
        ** 3
    )


def gamma_exceedance(threshold: float, mean: float, variance: float) -> float:
    """Chance that a gamma distribution exceeds x (the same approximation, turned around)."""
    relative_variance = variance / (mean * mean)
    z_score = (
        ((threshold / mean) ** (1 / 3) - 1 + relative_variance / 9)
        * 3
        / math.sqrt(relative_variance)
    )
    return math.erfc(z_score / math.sqrt(2)) / 2


def ttft_quantile(
    rates: ReplicaRates, latency: MeanLatency, probability: float
) -> float:
    """Seconds within which this share of requests has its first token.

    Variance: w^2 (2 b - b^2) of a wait that is exponential with mean w in a share b of cases,
    b * w being the mean wait, and the share of the mean that neither explains.
    """
    utilization = smaller(
        latency.batch_size
        * rates.prompt_busy_s
        / (rates.answer_tokens * latency.tpot_s),
        MAX_UTILIZATION,
    )
    mean_wait_s = latency.queue_s / utilization
    unexplained_s = constant("late_ttft") * latency.ttft_s
    return gamma_quantile(
        latency.ttft_s,
        mean_wait_s
        * mean_wait_s
        * (2 * utilization - utilization * utilization)
        + unexplained_s**2,
        probability,
    )


def tpot_quantile(
    rates: ReplicaRates,
    latency: MeanLatency,
    probability: float,
    *,
    arriving: bool,
) -> float:
    """Seconds per token that this share of requests stays within.

    Prompts come in as a Poisson process at batch / (answer * tpot): variance
    batch * (k * busy)^2 * E[1 / answer] / answer. `arriving` requests meet a Poisson batch too.
    """
    length_factor = 1 + rates.coefficients.answer_variance
    variance = (
        latency.batch_size
        * (rates.interference_share * rates.prompt_busy_s) ** 2
        * length_factor
        / (rates.answer_tokens * rates.answer_tokens)
    )
    if arriving:
        batch_slope_s = (
            tpot_at_batch(rates, latency.batch_size * 1.1)
            - tpot_at_batch(rates, latency.batch_size)
        ) / (latency.batch_size * 0.1)
        scaled_slope_s = rates.coefficients.server_time * batch_slope_s
        variance += (
            constant("late_batch")
            * latency.batch_size
            * scaled_slope_s
            * scaled_slope_s
        )
    return gamma_quantile(latency.tpot_s, variance, probability)

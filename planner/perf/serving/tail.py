"""Percentiles of latency around the means of `load_shape`.

A prompt waits for earlier ones not at all or for an exponential time. The rest of the time to
first token varies in proportion to its mean. The time per token varies with the prompts that
arrive during an answer and with the batch. Both times are taken as gamma distributions with
the computed mean and variance. Every number may be an array.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from planner.numeric import normal_quantile
from planner.perf.common.constant import constant
from planner.perf.serving.load_shape import (
    MAX_UTILIZATION,
    prompt_step_share,
    tpot_at_batch,
)
from planner.perf.serving.step import larger, smaller

if TYPE_CHECKING:
    from planner.perf.serving.load_shape import MeanLatency, ReplicaRates


def gamma_quantile(mean: float, variance: float, probability: float) -> float:
    """Return the quantile of a gamma distribution (Wilson and Hilferty, PNAS 17, 1931).

    mean * (1 - 1 / (9 k) + z / (3 sqrt(k)))^3   with k = mean^2 / variance
    """
    # 1 / k, with k the shape of the gamma distribution.
    relative_variance = variance / (mean * mean)
    z_score = normal_quantile(probability)
    return (
        mean
        * larger(
            1 - relative_variance / 9 + z_score * relative_variance**0.5 / 3,
            # The approximation is negative far below the mean.
            0.0,
        )
        ** 3
    )


def gamma_exceedance(threshold: float, mean: float, variance: float) -> float:
    """Return the probability that a gamma variable exceeds `threshold`.

    It is the inverse of `gamma_quantile`, the approximation of Wilson and Hilferty.
    """
    relative_variance = variance / (mean * mean)
    z_score = (
        # The cube root of a gamma variable is almost normal.
        ((threshold / mean) ** (1 / 3) - 1 + relative_variance / 9)
        * 3
        / math.sqrt(relative_variance)
    )
    return math.erfc(z_score / math.sqrt(2)) / 2


def ttft_quantile(
    rates: ReplicaRates, latency: MeanLatency, probability: float
) -> float:
    """Return the quantile of the time to first token, in seconds.

        variance = w^2 (2 b - b^2) + (late_ttft * mean)^2

    The wait is exponential with mean w with probability b, so its mean is b * w. The second
    term is the variation that neither queue nor length explains.
    """
    utilization = smaller(
        latency.batch_size
        * rates.prompt_busy_s
        / (rates.answer_tokens * latency.tpot_s),
        MAX_UTILIZATION,
    )
    # Mean of the waits that are not zero.
    mean_wait_s = latency.queue_s / utilization
    # Measured on rows of MLPerf Server.
    unexplained_s = constant("late_ttft") * latency.ttft_s
    return gamma_quantile(
        latency.ttft_s,
        mean_wait_s
        * mean_wait_s
        * (2 * utilization - utilization * utilization)
        + unexplained_s**2,
        probability,
    )


def first_wave_quantile(
    rates: ReplicaRates,
    latency: MeanLatency,
    user_count: float,
    probability: float,
) -> float:
    """Return the quantile of first tokens of a closed loop whose latest are its first requests.

    All users send their first prompts at once, which take turns. They are `first_share` of the
    requests of the run:

        place    = (1 - (1 - probability) / first_share) * users
        quantile = first token + first_wave + prompt + min(place, slots) * turn
                   + max(place / slots - 1, 0) * (answer * tpot + prompt)

    It is 0 where more requests than those are later than the quantile. Takes numbers, no arrays.
    """
    late_share = 1 - probability
    if rates.first_share <= late_share:
        return 0.0
    place = (1 - late_share / rates.first_share) * user_count
    slots = min(user_count, rates.max_batch)
    turn_s = rates.prompt_busy_s * prompt_step_share(rates, latency.batch_size)
    request_s = rates.answer_tokens * latency.tpot_s + rates.prompt_busy_s
    return (
        rates.coefficients.first_token
        + rates.coefficients.first_wave
        + rates.idle_prompt_s
        + min(place, slots) * turn_s
        + max(place / slots - 1, 0.0) * request_s
    )


def tpot_quantile(
    rates: ReplicaRates,
    latency: MeanLatency,
    probability: float,
    *,
    arriving: bool,
) -> float:
    """Return the quantile of the time per output token, in seconds.

    Prompts arrive as a Poisson process with rate batch / (answer * tpot). Their variance is
        batch * (k * prompt_busy)^2 * E[1 / answer] / answer
    With `arriving` the variance of a Poisson batch is added:
        late_batch * batch * (d tpot / d batch)^2
    """
    # E[1 / answer] * mean answer of lognormal lengths is 1 + c^2.
    length_factor = 1 + rates.coefficients.answer_variance
    variance = (
        latency.batch_size
        * (rates.interference_share * rates.prompt_busy_s) ** 2
        * length_factor
        / (rates.answer_tokens * rates.answer_tokens)
    )
    if arriving:
        # Numerical derivative of the time per token by the batch.
        batch_slope_s = (
            tpot_at_batch(rates, latency.batch_size * 1.1)
            - tpot_at_batch(rates, latency.batch_size)
        ) / (latency.batch_size * 0.1)
        scaled_slope_s = rates.coefficients.server_time * batch_slope_s
        variance += (
            # Share of the batch variance left after averaging over an answer.
            constant("late_batch")
            * latency.batch_size
            * scaled_slope_s
            * scaled_slope_s
        )
    return gamma_quantile(latency.tpot_s, variance, probability)

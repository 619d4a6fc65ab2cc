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

from planner.perf.constant import constant
from planner.perf.physics import least, most
from planner.perf.shape import BUSIEST, pace

if TYPE_CHECKING:
    from planner.perf.shape import Mean, Server


def gamma(mean: float, variance: float, share: float) -> float:
    """Quantile of a gamma distribution (Wilson and Hilferty, PNAS 17, 1931).

    mean * (1 - 1 / 9k + z / (3 sqrt k))^3 with k = mean^2 / variance.
    """
    inverse = variance / (mean * mean)
    z = NormalDist().inv_cdf(share)
    return mean * most(1 - inverse / 9 + z * inverse**0.5 / 3, 0.0) ** 3


def above(x: float, mean: float, variance: float) -> float:
    """Chance that a gamma distribution exceeds x (the same approximation, turned around)."""
    share = variance / (mean * mean)
    z = ((x / mean) ** (1 / 3) - 1 + share / 9) * 3 / math.sqrt(share)
    return math.erfc(z / math.sqrt(2)) / 2


def ttft(s: Server, mean: Mean, share: float) -> float:
    """Seconds within which this share of requests has its first token.

    Variance: w^2 (2 b - b^2) of a wait that is exponential with mean w in a share b of cases,
    b * w being the mean wait, and the share of the mean that neither explains.
    """
    busy = least(mean.batch * s.busy / (s.answer * mean.tpot), BUSIEST)
    wait = mean.queue / busy
    unexplained = constant("late_ttft") * mean.ttft
    return gamma(
        mean.ttft,
        wait * wait * (2 * busy - busy * busy) + unexplained**2,
        share,
    )


def tpot(s: Server, mean: Mean, share: float, *, arriving: bool) -> float:
    """Seconds per token that this share of requests stays within.

    Prompts come in as a Poisson process at batch / (answer * tpot): variance
    batch * (k * busy)^2 * E[1 / answer] / answer. `arriving` requests meet a Poisson batch too.
    """
    longer = 1 + s.coefficients.answer_variance
    variance = (
        mean.batch * (s.share * s.busy) ** 2 * longer / (s.answer * s.answer)
    )
    if arriving:
        slope = (pace(s, mean.batch * 1.1) - pace(s, mean.batch)) / (
            mean.batch * 0.1
        )
        factor = s.coefficients.server_time * slope
        variance += constant("late_batch") * mean.batch * factor * factor
    return gamma(mean.tpot, variance, share)

"""Searches and quantiles. Each exists here once; none knows what its numbers mean."""

from __future__ import annotations

import math
from decimal import Decimal
from functools import cache
from statistics import NormalDist
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

# Share that the upper end of a two-sided 90 % band bounds.
BAND_END: Final = 0.95
Z_OF_90_PERCENT_BAND: Final = NormalDist().inv_cdf(BAND_END)
EVEN_ODDS: Final = 0.5  # a chance at which something holds as often as not
STUDENT_STEPS: Final = 48  # halvings of the angle of a quantile
OWEN_STEPS: Final = 64  # intervals of an integral; an even number

SampleT = TypeVar("SampleT", float, Decimal)


def normal_quantile(probability: float) -> float:
    """Return the quantile of the standard normal distribution."""
    return NormalDist().inv_cdf(probability)


def normal_share(z_score: float) -> float:
    """Return the share of the standard normal distribution up to a value; all up to infinity."""
    return (1 + math.erf(z_score / math.sqrt(2))) / 2


def nearest_rank(sorted_samples: Sequence[SampleT], share: float) -> SampleT:
    """Return the smallest sample that at least `share` of all samples do not exceed."""
    rank = math.ceil(share * len(sorted_samples))
    return sorted_samples[min(len(sorted_samples), max(1, rank)) - 1]


def bisect_up(
    is_enough: Callable[[float], bool], low: float, high: float, steps: int
) -> float:
    """Return the least number that is enough, from above, to 2^-steps of the interval.

    `is_enough` is false below that number and true above; `high` must be enough.
    """
    for _ in range(steps):
        middle = (low + high) / 2
        if is_enough(middle):
            high = middle
        else:
            low = middle
    return high


def last_true(is_within: Callable[[int], bool], low: int, high: int) -> int:
    """Return the last whole number from `low` to `high` that is within; `low` counts as it.

    `is_within` is true up to that number and false above.
    """
    while low < high:
        middle = (low + high + 1) // 2
        if is_within(middle):
            low = middle
        else:
            high = middle - 1
    return low


def maximize(
    objective: Callable[[float], float], low: float, high: float, steps: int
) -> float:
    """Return where a function with one maximum on an interval has it: golden-section search."""
    golden_ratio = (math.sqrt(5) - 1) / 2
    for _ in range(steps):
        left = high - golden_ratio * (high - low)
        right = low + golden_ratio * (high - low)
        if objective(left) < objective(right):
            low = left
        else:
            high = right
    return (low + high) / 2


@cache
def student_quantile(probability: float, freedom: int) -> float:
    """Return the quantile of Student's t distribution for whole degrees of freedom.

    With theta = atan(t / sqrt(freedom)), P(|T| <= t) is a finite sum (Abramowitz and Stegun,
    26.7.3 and 26.7.4); it grows with theta, which is bisected.
    """
    if probability < 1 / 2:
        return -student_quantile(1 - probability, freedom)
    central_share = 2 * probability - 1
    angle = bisect_up(
        lambda theta: _student_central_share(theta, freedom) >= central_share,
        0.0,
        math.pi / 2,
        STUDENT_STEPS,
    )
    return math.sqrt(freedom) * math.tan(angle)


def _student_central_share(theta: float, freedom: int) -> float:
    sine, cosine = math.sin(theta), math.cos(theta)
    is_odd = freedom % 2
    # First term of the sum, and the factors by which the next ones follow.
    term = sine * cosine if is_odd else sine
    total = theta if is_odd else 0.0
    for index in range(2 + is_odd, freedom + 1, 2):
        total += term
        term *= (index - 1) / index * cosine**2
    return total * 2 / math.pi if is_odd else total


def both_below(limit: float, correlation: float) -> float:
    """Return the chance that two standard normal numbers are both at most `limit`.

        Phi(h) - 2 T(h, sqrt((1 - r) / (1 + r)))

    r is their correlation and T the function of Owen, in the form
    T(h, a) = 1 / (2 pi) * integral of exp(-h^2 / (2 cos^2)) from 0 to atan(a).
    """
    end_angle = math.atan2(
        math.sqrt(1 - correlation), math.sqrt(1 + correlation)
    )
    step = end_angle / OWEN_STEPS
    # Simpson's rule: weights 1, 4, 2, 4, ..., 4, 1.
    integral = (
        sum(
            (2 + 2 * (index % 2) - (index in (0, OWEN_STEPS)))
            * math.exp(-((limit / math.cos(index * step)) ** 2) / 2)
            for index in range(OWEN_STEPS + 1)
        )
        * step
        / 3
    )
    return NormalDist().cdf(limit) - integral / math.pi

"""Searches and quantiles. Each exists here once; none knows what its numbers mean."""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

# One-sided quantile that bounds a two-sided 90 % band from above.
Z_OF_90_PERCENT_BAND: Final = NormalDist().inv_cdf(0.95)

SampleT = TypeVar("SampleT", bound=float)


def normal_quantile(probability: float) -> float:
    """Return the quantile of the standard normal distribution."""
    return NormalDist().inv_cdf(probability)


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

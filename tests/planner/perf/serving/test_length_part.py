"""Parts of distributions of lengths, against the truncated lognormal of scipy."""

from __future__ import annotations

import math
import statistics

import pytest
from scipy.integrate import quad
from scipy.stats import lognorm, norm

from planner.perf.serving.length_part import LengthPart
from planner.perf.serving.load import (
    LengthDistribution,
    ServingLoad,
    bin_mean,
)
from planner.perf.serving.monte_carlo import draw_requests

WHOLES = [
    LengthDistribution(mean_tokens=1000, p95_tokens=2500),
    LengthDistribution(mean_tokens=2000, p95_tokens=8800),
]
ENDS = [(0, 700), (0, 9000), (700, math.inf), (700, 4000), (12_000, math.inf)]


def power_mean(
    whole: LengthDistribution, ends: tuple[float, float], power: int
) -> float:
    """E[X^power] between two lengths, integrated over the logarithm of the length."""
    mu, sigma = whole.log_mean, whole.sigma
    reach = (power * sigma + 12) * sigma
    low = math.log(ends[0]) if ends[0] else mu - 12 * sigma
    high = min(mu + reach, math.log(ends[1]))
    weighted, _ = quad(
        lambda x: math.exp(power * x) * norm.pdf(x, mu, sigma), low, high
    )
    total, _ = quad(lambda x: norm.pdf(x, mu, sigma), low, high)
    return float(weighted / total)


@pytest.mark.parametrize("whole", WHOLES)
@pytest.mark.parametrize("ends", ENDS)
def test_a_part_has_the_moments_of_a_truncated_lognormal(
    whole: LengthDistribution, ends: tuple[float, float]
) -> None:
    part = LengthPart(whole=whole, above_tokens=ends[0], up_to_tokens=ends[1])
    oracle = lognorm(whole.sigma, scale=math.exp(whole.log_mean))
    low, high = oracle.cdf(ends)
    assert part.share == pytest.approx(high - low, rel=1e-6)
    mean, square = (power_mean(whole, ends, power) for power in (1, 2))
    assert part.mean_tokens == pytest.approx(mean, rel=1e-4)
    assert part.variation == pytest.approx(square / mean**2 - 1, rel=1e-3)
    assert part.p95_tokens == pytest.approx(
        oracle.ppf(low + 0.95 * (high - low)), rel=1e-6
    )
    assert bin_mean(part.bin_lengths()) == pytest.approx(part.mean_tokens)
    load = ServingLoad(prompt_lengths=part, answer_lengths=whole)
    drawn = [
        request.prompt_tokens
        for request in draw_requests(load, 4000, 1, 1.0, 1.0)
    ]
    assert all(ends[0] - 1 <= tokens <= ends[1] + 1 for tokens in drawn)
    error = 5 * math.sqrt(part.variation / len(drawn)) + 1 / mean
    assert statistics.fmean(drawn) == pytest.approx(mean, rel=error)


@pytest.mark.parametrize("whole", WHOLES)
def test_two_parts_are_the_whole(whole: LengthDistribution) -> None:
    parts = [
        LengthPart(whole=whole, up_to_tokens=3000),
        LengthPart(whole=whole, above_tokens=3000),
    ]
    assert sum(part.share for part in parts) == pytest.approx(1)
    assert sum(
        part.share * part.mean_tokens for part in parts
    ) == pytest.approx(whole.mean_tokens)

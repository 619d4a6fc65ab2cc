"""What traffic asks of a replica: lengths as distributions, arrivals by their variation."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from statistics import NormalDist
from typing import Final

POINTS: Final = 16
Z95: Final = NormalDist().inv_cdf(0.95)
QUANTILES: Final = tuple(NormalDist().inv_cdf((i + 0.5) / POINTS) for i in range(POINTS))


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """A lognormal distribution of tokens, given by its mean and 95th percentile."""

    mean: float
    p95: float

    @property
    def sigma(self) -> float:
        """Standard deviation of the logarithm.

        From ln(p95 / mean) = z * sigma - sigma^2 / 2; ratios above exp(z^2 / 2) have no solution
        and take sigma = z.
        """
        ratio = math.log(max(1.0, self.p95 / self.mean))
        return Z95 - math.sqrt(max(0.0, Z95**2 - 2 * ratio))

    @property
    def variation(self) -> float:
        """Squared coefficient of variation: exp(sigma^2) - 1."""
        return math.exp(self.sigma**2) - 1

    def points(self) -> tuple[float, ...]:
        """Equally likely lengths that stand for the distribution; their mean is the mean."""
        return _points(self)


@cache
def _points(lengths: Lengths) -> tuple[float, ...]:
    drawn = [math.exp(lengths.sigma * z) for z in QUANTILES]
    scale = lengths.mean * POINTS / sum(drawn)
    return tuple(max(1.0, x * scale) for x in drawn)


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Prompt and answer lengths, arrivals, and the share of prompts found in the prefix cache.

    `rate` is requests a second of the whole service at peak; `concurrency` instead makes it a
    closed loop. `variation` is the squared coefficient of variation of inter-arrival times.
    """

    prompt: Lengths
    answer: Lengths
    rate: float = 0.0
    concurrency: int = 0
    variation: float = 1.0
    prefix_hit: float = 0.0
    context: int = 0

    @property
    def held(self) -> float:
        """Mean tokens of context while a request decodes."""
        return self.prompt.mean + self.answer.mean / 2

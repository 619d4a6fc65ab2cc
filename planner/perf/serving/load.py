"""What traffic asks of a replica: lengths as distributions, arrivals by their variation."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from statistics import NormalDist
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Sequence

Routing: TypeAlias = Literal["random", "round-robin", "least-loaded"]
Arrival: TypeAlias = (
    "tuple[float, float, float]"  # seconds, prompt and answer in tokens
)
# Bins of a distribution as (quantile that stands for it, share). Around the percentiles that an
# SLA may name they are narrow, and that percentile itself stands for its bin.
LENGTH_BINS: Final = (
    (0.05, 0.10),
    (0.15, 0.10),
    (0.25, 0.10),
    (0.35, 0.10),
    (0.435, 0.07),
    (0.50, 0.06),
    (0.565, 0.07),
    (0.65, 0.10),
    (0.75, 0.10),
    (0.835, 0.07),
    (0.90, 0.06),
    (0.95, 0.03),
    (0.97, 0.02),
    (0.99, 0.015),
    (0.998, 0.005),
)
Z95: Final = NormalDist().inv_cdf(0.95)
BIN_SHARES: Final = tuple(bin_share for _, bin_share in LENGTH_BINS)
_BIN_Z_SCORES: Final = tuple(
    NormalDist().inv_cdf(quantile) for quantile, _ in LENGTH_BINS
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthDistribution:
    """A lognormal distribution of tokens, given by its mean and 95th percentile."""

    mean_tokens: float
    p95_tokens: float

    @property
    def sigma(self) -> float:
        """Standard deviation of the logarithm.

        From ln(p95 / mean) = z * sigma - sigma^2 / 2; ratios above exp(z^2 / 2) have no solution
        and take sigma = z.
        """
        log_ratio = math.log(max(1.0, self.p95_tokens / self.mean_tokens))
        return Z95 - math.sqrt(max(0.0, Z95**2 - 2 * log_ratio))

    @property
    def variation(self) -> float:
        """Squared coefficient of variation: exp(sigma^2) - 1."""
        return math.exp(self.sigma**2) - 1

    def bin_lengths(self) -> tuple[float, ...]:
        """Lengths that stand for the bins; their mean, by SHARES, is the mean."""
        return _bin_lengths(self)


def bin_mean(bin_values: Sequence[float]) -> float:
    """Mean of values that stand for the bins."""
    return sum(
        bin_value * bin_share
        for bin_value, bin_share in zip(bin_values, BIN_SHARES, strict=True)
    )


def percentile_bin(percentile: int) -> int:
    """Index of the bin that holds a percentile."""
    cumulative = 0.0
    for bin_index, bin_share in enumerate(BIN_SHARES):
        cumulative += bin_share
        if cumulative >= percentile / 100 - 1e-9:
            return bin_index
    return len(BIN_SHARES) - 1


@cache
def _bin_lengths(lengths: LengthDistribution) -> tuple[float, ...]:
    bin_tokens = [
        math.exp(lengths.sigma * z_score) for z_score in _BIN_Z_SCORES
    ]
    mean_scale = lengths.mean_tokens / bin_mean(bin_tokens)
    return tuple(
        max(1.0, length_tokens * mean_scale) for length_tokens in bin_tokens
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingLoad:
    """Prompt and answer lengths, arrivals, and the share of prompts found in the prefix cache.

    `rate_per_s` is requests a second of the whole service at peak; `concurrency` instead makes it a
    closed loop. `arrival_variation` is the squared coefficient of variation of inter-arrival times,
    `routing` how a router spreads requests over replicas.
    """

    prompt_lengths: LengthDistribution
    answer_lengths: LengthDistribution
    rate_per_s: float = 0.0
    concurrency: int = 0
    arrival_variation: float = 1.0
    prefix_hit: float = 0.0
    max_context_tokens: int = 0
    routing: Routing = "random"

    def thinned_variation(self, arrival_share: float) -> float:
        """Variation of a part of all arrivals, taken at random: 1 + part * (variation - 1)."""
        return 1 + arrival_share * (self.arrival_variation - 1)

    def replica_variation(self, replica_count: int) -> float:
        """Variation of the arrivals at each of some replicas.

        Every n-th request of a renewal process: variation / n. Joining the least loaded replica
        is taken as that, since it waits no longer.
        """
        if self.routing == "random":
            return self.thinned_variation(1 / replica_count)
        return self.arrival_variation / replica_count

    @property
    def decode_context_tokens(self) -> float:
        """Mean tokens of context while requests decode; long answers do so for longer."""
        return (
            self.prompt_lengths.mean_tokens
            + self.answer_lengths.mean_tokens
            / 2
            * (1 + self.answer_lengths.variation)
        )

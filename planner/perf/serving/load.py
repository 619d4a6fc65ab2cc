"""Load of a service: length distributions, arrival variation and routing."""

from __future__ import annotations

import math
import operator
from functools import cache
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from planner.facts.serving_engine import DEFAULT_ENGINE
from planner.numeric import Z_OF_90_PERCENT_BAND, normal_quantile

if TYPE_CHECKING:
    from collections.abc import Sequence

    from planner.perf.serving.drafting import Drafting
    from planner.perf.serving.length_part import LengthPart

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
BIN_SHARES: Final = tuple(bin_share for _, bin_share in LENGTH_BINS)
_BIN_Z_SCORES: Final = tuple(
    normal_quantile(quantile) for quantile, _ in LENGTH_BINS
)


class LengthDistribution(Struct, frozen=True, kw_only=True):
    """A lognormal distribution of tokens, defined by its mean and 95th percentile."""

    mean_tokens: float
    p95_tokens: float

    @property
    def sigma(self) -> float:
        """Standard deviation of ln(length).

        Solves ln(p95 / mean) = z * sigma - sigma^2 / 2 with z = z(0.95). There is no solution
        for ln(p95 / mean) > z^2 / 2; sigma is z then.
        """
        log_ratio = math.log(max(1.0, self.p95_tokens / self.mean_tokens))
        # The smaller root: it is 0 when p95 equals the mean.
        return Z_OF_90_PERCENT_BAND - math.sqrt(
            max(0.0, Z_OF_90_PERCENT_BAND**2 - 2 * log_ratio)
        )

    @property
    def variation(self) -> float:
        """Squared coefficient of variation: exp(sigma^2) - 1."""
        return math.exp(self.sigma**2) - 1

    @property
    def log_mean(self) -> float:
        """Mean of ln(length): that of a lognormal with this mean is ln(mean) - sigma^2 / 2."""
        return math.log(self.mean_tokens) - self.sigma**2 / 2

    def bin_lengths(self) -> tuple[float, ...]:
        """Return one representative length for each bin, in tokens.

        Their mean, weighted by `BIN_SHARES`, is `mean_tokens`.
        """
        return _bin_lengths(self)


def bin_mean(bin_values: Sequence[float]) -> float:
    """Return the mean of one value for each bin, weighted by `BIN_SHARES`."""
    mean: float = sum(map(operator.mul, bin_values, BIN_SHARES))
    return mean


def percentile_bin(percentile: int) -> int:
    """Return the index of the bin that contains a percentile."""
    cumulative = 0.0
    for bin_index, bin_share in enumerate(BIN_SHARES):
        cumulative += bin_share
        # The tolerance absorbs the rounding of the summed shares.
        if cumulative >= percentile / 100 - 1e-9:
            return bin_index
    return len(BIN_SHARES) - 1


@cache
def _bin_lengths(lengths: LengthDistribution) -> tuple[float, ...]:
    bin_tokens = [
        # Lognormal quantiles with median 1.
        math.exp(lengths.sigma * z_score)
        for z_score in _BIN_Z_SCORES
    ]
    # Scaling by the bins' own mean makes the discrete mean exact.
    mean_scale = lengths.mean_tokens / bin_mean(bin_tokens)
    return tuple(
        max(1.0, length_tokens * mean_scale) for length_tokens in bin_tokens
    )


class ServingLoad(Struct, frozen=True, kw_only=True):
    """Lengths, arrivals and prefix-cache hits of the requests of a whole service.

    rate_per_s          requests per second at peak
    concurrency         requests in flight of a closed loop; 0 for an open load
    arrival_variation   squared coefficient of variation of interarrival times; 1 is Poisson
    prefix_hit          share of prompt tokens found in the prefix cache
    max_context_tokens  longest context that must fit, in tokens
    routing             how the router assigns requests to replicas
    token_budget        most tokens of one engine step; 0 is the engine's default
    drafting            speculative decoding, None without it
    engine              what serves, by its name in perf/data/engines.csv
    """

    prompt_lengths: LengthDistribution | LengthPart
    answer_lengths: LengthDistribution
    rate_per_s: float = 0.0
    concurrency: int = 0
    arrival_variation: float = 1.0
    prefix_hit: float = 0.0
    max_context_tokens: int = 0
    routing: Routing = "random"
    token_budget: int = 0
    drafting: Drafting | None = None
    engine: str = DEFAULT_ENGINE

    @property
    def shape(self) -> ServingLoad:
        """The load without how much of it there is: what a single replica depends on."""
        return replace(self, rate_per_s=0.0, concurrency=0)

    @property
    def lengths(self) -> ServingLoad:
        """The load without when requests arrive and who answers them: what is in them."""
        return replace(
            self.shape,
            arrival_variation=1.0,
            routing="random",
            token_budget=0,
            drafting=None,
            engine=DEFAULT_ENGINE,
        )

    def thinned_variation(self, arrival_share: float) -> float:
        """Return the arrival variation of a random share of all arrivals.

        variation = 1 + share * (arrival_variation - 1); a small share is almost Poisson.
        """
        return 1 + arrival_share * (self.arrival_variation - 1)

    def replica_variation(self, replica_count: float) -> float:
        """Return the arrival variation at one of `replica_count` replicas.

        random        1 + (arrival_variation - 1) / n
        round-robin   arrival_variation / n: every n-th request of a renewal process
        least-loaded  taken as round-robin, whose waits are at least as long
        """
        # Random routing thins the arrivals with share 1 / n.
        if self.routing == "random":
            return self.thinned_variation(1 / replica_count)
        return self.arrival_variation / replica_count

    @property
    def decode_context_tokens(self) -> float:
        """Mean context of a decode step, in tokens.

        prompt + E[answer^2] / (2 E[answer]) = prompt + answer / 2 * (1 + answer variation)
        """
        return (
            self.prompt_lengths.mean_tokens
            + self.answer_lengths.mean_tokens
            / 2
            # Long answers are in flight for more steps: length-biased mean.
            * (1 + self.answer_lengths.variation)
        )

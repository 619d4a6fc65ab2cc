"""A part of a distribution of lengths: what is left of it between two lengths."""

from __future__ import annotations

import math
from functools import cache
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from planner.numeric import normal_quantile, normal_share
from planner.perf.serving.load import LENGTH_BINS, bin_mean

if TYPE_CHECKING:
    from collections.abc import Callable

    from planner.perf.serving.load import LengthDistribution

# A share of nothing or of everything has no quantile.
EDGE_SHARE: Final = 1e-12
P95: Final = 0.95


class LengthPart(Struct, frozen=True, kw_only=True):
    """A lognormal distribution without what is shorter or longer than two lengths, in tokens."""

    whole: LengthDistribution
    above_tokens: float = 0.0
    up_to_tokens: float = math.inf

    @property
    def share(self) -> float:
        """Share of all lengths that is in the part."""
        low, high = _shares(self)
        return high - low

    @property
    def mean_tokens(self) -> float:
        """Mean length of the part, in tokens.

        mean of the whole * (Phi(z of the upper end - sigma) - Phi(z of the lower end - sigma))
        / share: that of a lognormal between two values
        """
        return _power_mean(self, 1)

    @property
    def p95_tokens(self) -> float:
        """95th percentile of the part, in tokens."""
        return self.quantile(P95)

    @property
    def variation(self) -> float:
        """Squared coefficient of variation of the part: E[X^2] / E[X]^2 - 1."""
        return max(0.0, _power_mean(self, 2) / _power_mean(self, 1) ** 2 - 1)

    def quantile(self, share: float) -> float:
        """Return the length that a share of the part does not exceed, in tokens."""
        return self.quantiles()(share)

    def bin_lengths(self) -> tuple[float, ...]:
        """Return one representative length for each bin, in tokens, as those of the whole."""
        return _bin_lengths(self)

    def quantiles(self) -> Callable[[float], float]:
        """Return what gives a length by the share of the part that does not exceed it."""
        low, high = _shares(self)
        log_mean, sigma = self.whole.log_mean, self.whole.sigma

        def quantile(share: float) -> float:
            whole_share = low + share * (high - low)
            inner_share = min(1 - EDGE_SHARE, max(EDGE_SHARE, whole_share))
            return math.exp(log_mean + sigma * normal_quantile(inner_share))

        return quantile


@cache
def _shares(part: LengthPart) -> tuple[float, float]:
    """Return the shares of the whole up to the lower and up to the upper end."""
    return (
        normal_share(_z_score(part.whole, part.above_tokens, 0)),
        normal_share(_z_score(part.whole, part.up_to_tokens, 0)),
    )


def _z_score(whole: LengthDistribution, tokens: float, power: int) -> float:
    """Return the z of a length among those that are weighted by a power of themselves."""
    if tokens in (0, math.inf):
        return math.inf if tokens else -math.inf
    return (math.log(tokens) - whole.log_mean) / whole.sigma - (
        power * whole.sigma
    )


@cache
def _power_mean(part: LengthPart, power: int) -> float:
    """Return E[X^power] of the part, in tokens to that power."""
    whole = part.whole
    weighted_share = normal_share(
        _z_score(whole, part.up_to_tokens, power)
    ) - normal_share(_z_score(whole, part.above_tokens, power))
    # E[X^k] of a lognormal is exp(k mu + k^2 sigma^2 / 2).
    whole_mean = math.exp(
        power * whole.log_mean + (power * whole.sigma) ** 2 / 2
    )
    return whole_mean * weighted_share / part.share


@cache
def _bin_lengths(part: LengthPart) -> tuple[float, ...]:
    bin_tokens = [part.quantile(quantile) for quantile, _ in LENGTH_BINS]
    mean_scale = part.mean_tokens / bin_mean(bin_tokens)
    return tuple(
        max(1.0, length_tokens * mean_scale) for length_tokens in bin_tokens
    )

"""What a benchmark of one deployment teaches: factors on its predicted times.

The logarithm of measured over predicted is a line in three features, of which the prior knows how
far they may be from 0. Each point moves the belief (recursive least squares, which is ridge
regression shrunk to the prior); what is left of the doubt gives the band.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from planner.perf.band import TAIL, Band
from planner.perf.constant import constant

if TYPE_CHECKING:
    from collections.abc import Iterable

    from planner.perf.band import Basis

Vector: TypeAlias = tuple[float, ...]
BATCH: Final = 16.0
CONTEXT: Final = 2000.0
FEATURES: Final = ("constant", "batch", "context")
ENOUGH: Final = 5  # points from which a deployment counts as measured


def features(batch: float, context: float) -> Vector:
    """1, ln(batch / 16), ln(context / 2000)."""
    return (
        1.0,
        math.log(max(batch, 1.0) / BATCH),
        math.log(max(context, 1.0) / CONTEXT),
    )


@dataclass(frozen=True, slots=True)
class Belief:
    """Weights of the features, their covariance, and the noise of one measurement."""

    weights: Vector
    covariance: tuple[Vector, ...]
    noise: float

    def told(self, at: Vector, value: float) -> Belief:
        """Return the belief after one measured log ratio.

        K = P x / (x' P x + noise^2);  w += K (value - x' w);  P -= K x' P.
        """
        moved = tuple(_dot(row, at) for row in self.covariance)
        doubt = _dot(moved, at) + self.noise**2
        gain = tuple(m / doubt for m in moved)
        miss = value - _dot(self.weights, at)
        weights = tuple(
            w + g * miss for w, g in zip(self.weights, gain, strict=True)
        )
        covariance = tuple(
            tuple(p - g * m for p, m in zip(row, moved, strict=True))
            for row, g in zip(self.covariance, gain, strict=True)
        )
        return Belief(weights, covariance, self.noise)

    def mean(self, at: Vector) -> float:
        """The expected log ratio."""
        return _dot(self.weights, at)

    def spread(self, at: Vector) -> float:
        """Its standard deviation, with the noise of one more measurement."""
        return math.sqrt(
            _dot(tuple(_dot(row, at) for row in self.covariance), at)
            + self.noise**2
        )


def prior(metric: str) -> Belief:
    """Return what is believed of ttft or tpot before any measurement."""
    spreads = tuple(constant(f"prior_{name}", metric) for name in FEATURES)
    covariance = tuple(
        tuple(s * s if i == j else 0.0 for j in range(len(spreads)))
        for i, s in enumerate(spreads)
    )
    return Belief(
        (0.0,) * len(spreads), covariance, constant("point_noise", metric)
    )


def learned(metric: str, points: Iterable[tuple[Vector, float]]) -> Belief:
    """Return the belief after all points."""
    belief = prior(metric)
    for at, value in points:
        belief = belief.told(at, value)
    return belief


@dataclass(frozen=True, slots=True, kw_only=True)
class Correction:
    """What was learned of a model on an accelerator in a precision, from so many points.

    `tp` is the layout that was measured; others of the same deployment are corrected too, but
    count as calibrated only. `sha256` is that of the file that it was read from.
    """

    model: str
    accelerator: str
    precision: str
    tp: int
    points: int
    beliefs: dict[str, Belief]
    sha256: str = ""

    def applies(self, model: str, accelerator: str, precision: str) -> bool:
        """Whether it was learned of this model on this accelerator in this precision."""
        return (self.model, self.accelerator, self.precision) == (
            model,
            accelerator,
            precision,
        )

    def factor(self, metric: str, batch: float, context: float) -> float:
        """The factor on a predicted time."""
        return math.exp(self.beliefs[metric].mean(features(batch, context)))

    def band(self, metric: str, batch: float, context: float, tp: int) -> Band:
        """The 90 % band around the corrected time; twice as wide on another layout."""
        measured = tp == self.tp and self.points >= ENOUGH
        basis: Basis = "measured" if measured else "calibrated"
        spread = self.beliefs[metric].spread(features(batch, context))
        half = TAIL * spread * (1 if tp == self.tp else 2)
        return Band(math.exp(-half), math.exp(half), basis)


def _dot(a: Vector, b: Vector) -> float:
    return sum(x * y for x, y in zip(a, b, strict=True))

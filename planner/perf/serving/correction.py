"""What a benchmark of one deployment teaches: factors on its predicted times.

The logarithm of measured over predicted is a line in three features, of which the prior knows how
far they may be from 0. Each point moves the belief (recursive least squares, which is ridge
regression shrunk to the prior); what is left of the doubt gives the band.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from planner.perf.common.constant import constant
from planner.perf.serving.error_band import BAND_Z_SCORE, Band

if TYPE_CHECKING:
    from collections.abc import Iterable

    from planner.perf.serving.error_band import Basis

FeatureVector: TypeAlias = tuple[float, ...]
REFERENCE_BATCH: Final = 16.0
REFERENCE_CONTEXT: Final = 2000.0
FEATURE_NAMES: Final = ("constant", "batch", "context")
MEASURED_POINTS: Final = 5  # points from which a deployment counts as measured


def feature_vector(batch_size: float, context_tokens: float) -> FeatureVector:
    """1, ln(batch / 16), ln(context / 2000)."""
    return (
        1.0,
        math.log(max(batch_size, 1.0) / REFERENCE_BATCH),
        math.log(max(context_tokens, 1.0) / REFERENCE_CONTEXT),
    )


@dataclass(frozen=True, slots=True)
class BiasModel:
    """Weights of the features, their covariance, and the noise of one measurement."""

    weights: FeatureVector
    covariance: tuple[FeatureVector, ...]
    noise_sigma: float

    def update(
        self, feature_values: FeatureVector, log_ratio: float
    ) -> BiasModel:
        """Return the belief after one measured log ratio.

        K = P x / (x' P x + noise^2);  w += K (value - x' w);  P -= K x' P.
        """
        projections = tuple(
            _dot_product(covariance_row, feature_values)
            for covariance_row in self.covariance
        )
        total_variance = (
            _dot_product(projections, feature_values) + self.noise_sigma**2
        )
        kalman_gain = tuple(
            projection / total_variance for projection in projections
        )
        residual = log_ratio - _dot_product(self.weights, feature_values)
        updated_weights = tuple(
            weight + row_gain * residual
            for weight, row_gain in zip(self.weights, kalman_gain, strict=True)
        )
        updated_covariance = tuple(
            tuple(
                covariance_entry - row_gain * projection
                for covariance_entry, projection in zip(
                    covariance_row, projections, strict=True
                )
            )
            for covariance_row, row_gain in zip(
                self.covariance, kalman_gain, strict=True
            )
        )
        return BiasModel(updated_weights, updated_covariance, self.noise_sigma)

    def mean(self, feature_values: FeatureVector) -> float:
        """The expected log ratio."""
        return _dot_product(self.weights, feature_values)

    def deviation(self, feature_values: FeatureVector) -> float:
        """Its standard deviation, with the noise of one more measurement."""
        return math.sqrt(
            _dot_product(
                tuple(
                    _dot_product(covariance_row, feature_values)
                    for covariance_row in self.covariance
                ),
                feature_values,
            )
            + self.noise_sigma**2
        )


def prior(metric: str) -> BiasModel:
    """Return what is believed of ttft or tpot before any measurement."""
    prior_sigmas = tuple(
        constant(f"prior_{feature_name}", metric)
        for feature_name in FEATURE_NAMES
    )
    covariance = tuple(
        tuple(
            prior_sigma * prior_sigma if row_index == column_index else 0.0
            for column_index in range(len(prior_sigmas))
        )
        for row_index, prior_sigma in enumerate(prior_sigmas)
    )
    return BiasModel(
        (0.0,) * len(prior_sigmas), covariance, constant("point_noise", metric)
    )


def posterior(
    metric: str, log_ratios: Iterable[tuple[FeatureVector, float]]
) -> BiasModel:
    """Return the belief after all points."""
    bias_model = prior(metric)
    for feature_values, log_ratio in log_ratios:
        bias_model = bias_model.update(feature_values, log_ratio)
    return bias_model


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
    bias_models: dict[str, BiasModel]
    sha256: str = ""

    def applies(self, model: str, accelerator: str, precision: str) -> bool:
        """Whether it was learned of this model on this accelerator in this precision."""
        return (self.model, self.accelerator, self.precision) == (
            model,
            accelerator,
            precision,
        )

    def factor(
        self, metric: str, batch_size: float, context_tokens: float
    ) -> float:
        """The factor on a predicted time."""
        return math.exp(
            self.bias_models[metric].mean(
                feature_vector(batch_size, context_tokens)
            )
        )

    def band(
        self, metric: str, batch_size: float, context_tokens: float, tp: int
    ) -> Band:
        """The 90 % band around the corrected time; twice as wide on another layout."""
        is_measured = tp == self.tp and self.points >= MEASURED_POINTS
        basis: Basis = "measured" if is_measured else "calibrated"
        log_sigma = self.bias_models[metric].deviation(
            feature_vector(batch_size, context_tokens)
        )
        half_width = BAND_Z_SCORE * log_sigma * (1 if tp == self.tp else 2)
        return Band(math.exp(-half_width), math.exp(half_width), basis)


def _dot_product(left: FeatureVector, right: FeatureVector) -> float:
    return sum(
        left_entry * right_entry
        for left_entry, right_entry in zip(left, right, strict=True)
    )

"""Correction of predicted times from a benchmark of one deployment.

    ln(measured / predicted) = w0 + w1 * ln(batch / 16) + w2 * ln(context / 2000) + noise

The weights have normal priors with mean 0. Each measured point updates them by recursive least
squares, which equals ridge regression shrunk to the prior. The posterior variance gives the
error band.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, TypeAlias

from msgspec import Struct

from planner.facts.serving_engine import DEFAULT_ENGINE
from planner.numeric import Z_OF_90_PERCENT_BAND
from planner.perf.common.constant import constant
from planner.perf.serving.error_band import Band

if TYPE_CHECKING:
    from collections.abc import Iterable

    from planner.perf.common.layout import ReplicaLayout
    from planner.perf.serving.error_band import Basis

FeatureVector: TypeAlias = tuple[float, ...]
# Batch and context at which the constant feature alone is the bias.
REFERENCE_BATCH: Final = 16.0
REFERENCE_CONTEXT: Final = 2000.0
METRICS: Final = ("tpot", "ttft")  # the times that are measured and corrected
FEATURE_NAMES: Final = ("constant", "batch", "context")
MEASURED_POINTS: Final = 5  # points from which a deployment counts as measured


def feature_vector(batch_size: float, context_tokens: float) -> FeatureVector:
    """Return (1, ln(batch / 16), ln(context / 2000))."""
    return (
        1.0,
        math.log(max(batch_size, 1.0) / REFERENCE_BATCH),
        math.log(max(context_tokens, 1.0) / REFERENCE_CONTEXT),
    )


class BiasModel(Struct, frozen=True):
    """Normal distribution of the weights of ln(measured / predicted time).

    weights      posterior mean of each feature's weight, ln per feature
    covariance   posterior covariance of the weights
    noise_sigma  standard deviation of one measured log ratio
    """

    weights: FeatureVector
    covariance: tuple[FeatureVector, ...]
    noise_sigma: float

    def update(
        self, feature_values: FeatureVector, log_ratio: float
    ) -> BiasModel:
        """Return the posterior after one measured log ratio.

        K = P x / (x' P x + noise^2);  w += K (log_ratio - x' w);  P -= K x' P

        P is `covariance`, w is `weights`, x is `feature_values`.
        """
        # P x: covariance of each weight with the predicted log ratio.
        projections = tuple(
            _dot_product(covariance_row, feature_values)
            for covariance_row in self.covariance
        )
        # x' P x + noise^2: variance of the measured log ratio.
        total_variance = (
            _dot_product(projections, feature_values) + self.noise_sigma**2
        )
        kalman_gain = tuple(
            projection / total_variance for projection in projections
        )
        # The part of the measurement that the weights do not explain.
        residual = log_ratio - _dot_product(self.weights, feature_values)
        updated_weights = tuple(
            weight + row_gain * residual
            for weight, row_gain in zip(self.weights, kalman_gain, strict=True)
        )
        # P - K x' P: the measurement reduces the variance along x.
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
        """Return the expected log ratio."""
        return _dot_product(self.weights, feature_values)

    def deviation(self, feature_values: FeatureVector) -> float:
        """Return the standard deviation of a new log ratio, noise included."""
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
    """Return the prior of ttft or tpot, before any measurement."""
    prior_sigmas = tuple(
        constant(f"prior_{feature_name}", metric)
        for feature_name in FEATURE_NAMES
    )
    # The prior weights of the features are independent: a diagonal matrix.
    covariance = tuple(
        tuple(
            prior_sigma * prior_sigma if row_index == column_index else 0.0
            for column_index in range(len(prior_sigmas))
        )
        for row_index, prior_sigma in enumerate(prior_sigmas)
    )
    return BiasModel(
        # Mean 0: without measurements the prediction is not corrected.
        (0.0,) * len(prior_sigmas),
        covariance,
        constant("point_noise", metric),
    )


def posterior(
    metric: str, log_ratios: Iterable[tuple[FeatureVector, float]]
) -> BiasModel:
    """Return the posterior after all measured points."""
    bias_model = prior(metric)
    for feature_values, log_ratio in log_ratios:
        bias_model = bias_model.update(feature_values, log_ratio)
    return bias_model


class Correction(Struct, frozen=True, kw_only=True):
    """Correction of one model on one accelerator in one precision.

    engine       kind of the engine that was measured
    tp           tensor-parallel size of the measured layout; another layout has the basis
                 `calibrated`
    points       number of measured points
    tpot, ttft   posteriors of the two times
    sha256       hash of the calibration file
    """

    model: str
    accelerator: str
    precision: str
    tp: int
    points: int
    tpot: BiasModel
    ttft: BiasModel
    engine: str = DEFAULT_ENGINE
    sha256: str = ""

    def applies(
        self, model: str, accelerator: str, precision: str, engine: str
    ) -> bool:
        """Return whether it is of this model, accelerator, precision and kind of engine."""
        return (self.model, self.accelerator, self.precision, self.engine) == (
            model,
            accelerator,
            precision,
            engine,
        )

    def measured(self, layout: ReplicaLayout) -> bool:
        """Return whether the benchmark was of this layout, which has one stage."""
        return layout.tp == self.tp and layout.pp == 1

    def bias_model(self, metric: str) -> BiasModel:
        """Return the posterior of tpot or ttft."""
        return {"tpot": self.tpot, "ttft": self.ttft}[metric]

    def factor(
        self, metric: str, batch_size: float, context_tokens: float
    ) -> float:
        """Return the factor exp(mean log ratio) on a predicted time."""
        return math.exp(
            self.bias_model(metric).mean(
                feature_vector(batch_size, context_tokens)
            )
        )

    def band(
        self,
        metric: str,
        batch_size: float,
        context_tokens: float,
        layout: ReplicaLayout,
    ) -> Band:
        """Return the 90 % band around the corrected time.

        half width in ln = z(0.95) * deviation; doubled for another layout than the measured one.
        """
        is_same_layout = self.measured(layout)
        # Few points leave the prior visible, so they count as calibrated.
        is_measured = is_same_layout and self.points >= MEASURED_POINTS
        basis: Basis = "measured" if is_measured else "calibrated"
        log_sigma = self.bias_model(metric).deviation(
            feature_vector(batch_size, context_tokens)
        )
        # Bias carries over to another layout only in part: twice the width.
        half_width = (
            Z_OF_90_PERCENT_BAND * log_sigma * (1 if is_same_layout else 2)
        )
        return Band(math.exp(-half_width), math.exp(half_width), basis)


def _dot_product(left: FeatureVector, right: FeatureVector) -> float:
    return sum(
        left_entry * right_entry
        for left_entry, right_entry in zip(left, right, strict=True)
    )

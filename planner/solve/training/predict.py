"""Predictions for a training run, each with its 90 % band and its basis."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from planner.perf.training.correction import corrected_band
from planner.perf.training.error_band import prediction_basis
from planner.perf.training.memory import peak_half_width_ln
from planner.perf.training.mfu import mfu
from planner.solve.solution import BandedPrediction
from planner.solve.training.cluster import P50_SHARE
from planner.units import SECONDS_PER_DAY

if TYPE_CHECKING:
    from planner.perf.serving.error_band import Basis
    from planner.solve.training.cluster import Cluster


def predict_run(cluster: Cluster) -> dict[str, BandedPrediction]:
    """Return the predictions of a run by metric name.

    Bands are 90 %, `estimate * exp(+-half width)`. The upper end of the duration is at least
    the end that holds with the required confidence.
    """
    training_job = cluster.timed_layout.job
    timed_layout = cluster.timed_layout
    correction = cluster.requirement.correction
    bias_ln, _ = corrected_band(training_job, correction)
    band_width, basis = _speed_band(cluster)
    trained_step_s = timed_layout.step_time.total * math.exp(bias_ln)
    # A step takes as long as its data where accelerators wait for these.
    step_s = max(trained_step_s, cluster.data_step_s)
    tokens_per_s = (
        cluster.accelerator_tokens_per_s * timed_layout.step_time.total / step_s
    )

    def with_band(
        estimate: float, log_width: float = band_width
    ) -> BandedPrediction:
        return BandedPrediction(
            estimate,
            estimate * math.exp(-log_width),
            estimate * math.exp(log_width),
            basis,
        )

    capacity_gib = training_job.chip.memory_gib
    # The error of memory does not follow from that of speed.
    memory_width = peak_half_width_ln(training_job)
    # Median speed and median luck, so the band is around the middle.
    median_days = (
        cluster.at_median_speed.end_quantile_s(P50_SHARE) / SECONDS_PER_DAY
    )
    lost_share = 1 - cluster.goodput
    return {
        "tokens_per_s_per_accelerator": with_band(tokens_per_s),
        "step_time_s": with_band(step_s),
        "mfu": with_band(mfu(training_job, tokens_per_s)),
        "memory_gib_per_accelerator": with_band(
            timed_layout.peak_gib, memory_width
        ),
        "memory_fraction": with_band(
            timed_layout.peak_gib / capacity_gib, memory_width
        ),
        "duration_days": BandedPrediction(
            median_days,
            median_days * math.exp(-band_width),
            max(
                median_days * math.exp(band_width),
                # The end at the required confidence may exceed the band.
                cluster.estimated_end_s / SECONDS_PER_DAY,
            ),
            basis,
        ),
        "goodput": BandedPrediction(
            1 - lost_share,
            # A factor of four on the lost time: reclaim rates are uncertain.
            max(0.0, 1 - 4 * lost_share),
            1 - lost_share / 4,
            "physics",
        ),
    }


def _speed_band(cluster: Cluster) -> tuple[float, Basis]:
    """Return the half width of the 90 % band of the speed, ln, and its basis.

    Host cores that feed a job too slowly have a band of their own.
    """
    training_job = cluster.timed_layout.job
    correction = cluster.requirement.correction
    _, band_width = corrected_band(training_job, correction)
    if cluster.waits_for_cores:
        loader = cluster.requirement.loader_work.loader
        return max(band_width, loader.half_width_ln), "physics"
    if correction is not None and correction.applies_to(training_job):
        return band_width, "measured"
    return band_width, prediction_basis(training_job)

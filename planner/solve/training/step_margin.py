"""Margin on the step time for a required confidence."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from planner.numeric import Z_OF_90_PERCENT_BAND, normal_quantile
from planner.perf.training.correction import corrected_band

if TYPE_CHECKING:
    from planner.perf.training.job import Job
    from planner.solve.training.requirement import TrainingRequirement


def margin_factor(requirement: TrainingRequirement, training_job: Job) -> float:
    """Factor on the step time for the required confidence; below even odds it is less than 1.

    `exp(bias + half width * z(confidence) / z(0.95))`, with the half width of a two-sided 90 %
    band, and the bias that runs of one's own taught.
    """
    bias_ln, half_ln = corrected_band(training_job, requirement.correction)
    z_score = normal_quantile(requirement.confidence)
    return math.exp(bias_ln + half_ln * z_score / Z_OF_90_PERCENT_BAND)

"""What short runs of one's own teach about the time of a step.

The bias b = ln(measured / predicted time) is common to runs of one kind: model, accelerator,
kernels, precision, method and sequence. Prior and noise are normal:

b            ~ N(0, s^2)
run i, b_i   ~ N(b, n^2)

s^2 + n^2 is the variance of the 90 % band without runs; `train_shared` of it is s^2.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct

from planner.numeric import Z_OF_90_PERCENT_BAND
from planner.perf.common.constant import constant
from planner.perf.training.error_band import half_width_ln

if TYPE_CHECKING:
    from collections.abc import Sequence

    from planner.perf.training.job import Job


class RunKind(NamedTuple):
    """What runs have in common that share a bias; `frozen_bytes` is 0 when all weights train."""

    model: str
    accelerator: str
    kernels: str
    precision: str
    sequence_tokens: int
    frozen_bytes: float


def run_kind(job: Job) -> RunKind:
    """Return the kind of a job."""
    return RunKind(
        model=job.llm.model,
        accelerator=job.chip.accelerator,
        kernels=job.software.kernels,
        precision=job.software.precision_text,
        sequence_tokens=job.sequence_tokens,
        frozen_bytes=job.frozen_bytes,
    )


class TrainingCorrection(Struct, frozen=True, kw_only=True):
    """What runs taught about the step time of a model on an accelerator.

    kind      what ran
    runs      number of runs
    bias_ln   posterior mean of ln(measured / predicted time)
    half_ln   half width of the 90 % band of another run, ln
    sha256    of the calibration file
    """

    kind: RunKind
    runs: int
    bias_ln: float
    half_ln: float
    sha256: str = ""

    def applies_to(self, job: Job) -> bool:
        """Whether a job is of the kind that ran."""
        return self.kind == run_kind(job)


def learn_bias(
    log_ratios: Sequence[float], prior_half_ln: float
) -> tuple[float, float]:
    """Return the posterior mean of the bias and the half width of another run, in ln.

    mean   = r * k s^2 / (k s^2 + n^2)
    spread = sqrt(s^2 n^2 / (k s^2 + n^2) + n^2)

    r, k   mean and number of `log_ratios`
    """
    run_count = len(log_ratios)
    variance = (prior_half_ln / Z_OF_90_PERCENT_BAND) ** 2
    prior_variance = constant("train_shared") * variance
    noise_variance = variance - prior_variance
    evidence = run_count * prior_variance + noise_variance
    mean_ratio = sum(log_ratios) / run_count
    bias_ln = mean_ratio * run_count * prior_variance / evidence
    left_variance = prior_variance * noise_variance / evidence + noise_variance
    return bias_ln, Z_OF_90_PERCENT_BAND * math.sqrt(left_variance)


def corrected_band(
    job: Job, correction: TrainingCorrection | None
) -> tuple[float, float]:
    """Return the bias of the step time of a job and the half width of its band, in ln.

    Without a correction of this job the bias is 0 and the band is that of the fit.
    """
    if correction is None or not correction.applies_to(job):
        return 0.0, half_width_ln(job)
    return correction.bias_ln, correction.half_ln

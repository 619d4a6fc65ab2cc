"""Correction of predicted training speed from short runs of one's own.

A table of runs has the columns of `estimate --table` and what was measured: `step_time_s`, or
`tokens_per_s_per_gpu`. Each run is shown with its prediction by the others.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import math
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from planner.errors import Place, Problem, UsageError
from planner.estimate.cell import read_cell, read_number
from planner.estimate.names import RefusedError
from planner.estimate.spelling import typed_row
from planner.estimate.training_row import parse_job
from planner.perf.training.coefficients import training_coefficients
from planner.perf.training.correction import (
    RunKind,
    TrainingCorrection,
    learn_bias,
    run_kind,
)
from planner.perf.training.error_band import half_width_ln
from planner.perf.training.step import step_time
from planner.perf.training.work import rank_work

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from planner.perf.training.job import Job

SCHEMA: Final = "tonnage.training-calibration/1"
MEASURED_COLUMNS: Final = ("step_time_s", "tokens_per_s_per_gpu")
RUN_COLUMNS: Final = frozenset({"model", "gpu", "seq_len", "micro_batch"})
DIGITS: Final = 9
MAX_BIAS_LN: Final = 3.0  # a logarithm that no correction reaches


class MeasuredRun(Struct, frozen=True, kw_only=True):
    """One run: its job, and its time of a step as measured and as predicted, seconds."""

    place: str
    job: Job
    measured_s: float
    predicted_s: float

    @property
    def log_ratio(self) -> float:
        """Logarithm of measured over predicted time."""
        return math.log(self.measured_s / self.predicted_s)


class TrainingReport(Struct, frozen=True, kw_only=True):
    """A correction with the runs that taught it.

    after_s  time of a step of each run as predicted with the other runs, seconds; None for the
             only run
    """

    correction: TrainingCorrection
    runs: tuple[MeasuredRun, ...]
    after_s: tuple[float | None, ...]
    warnings: tuple[str, ...]


def is_training_table(text: str) -> bool:
    """Whether a file is a table of training runs with what was measured."""
    header = next(csv.reader(io.StringIO(text)), [])
    return frozenset(header) >= RUN_COLUMNS and any(
        column in header for column in MEASURED_COLUMNS
    )


def read_runs(text: str, source_path: str) -> list[MeasuredRun]:
    """Return the runs of a table; raises UsageError for a row that is none."""
    runs = []
    for line, row in enumerate(csv.DictReader(io.StringIO(text)), 2):
        place = f"{source_path}:{line}"
        try:
            runs.append(_measured_run(row, place))
        except RefusedError as refusal:
            raise _run_error(
                str(refusal), Place(source_path, line, 1)
            ) from None
    return runs


def _measured_run(row: Mapping[str, str], place: str) -> MeasuredRun:
    job = parse_job(typed_row("training", row)).job
    work = rank_work(job)
    predicted_s = step_time(work, training_coefficients(job)).total
    measured_s = read_number(row, "step_time_s")
    speed = read_number(row, "tokens_per_s_per_gpu")
    if not measured_s and not speed:
        raise RefusedError(
            "neither step_time_s nor tokens_per_s_per_gpu says how fast it was"
        )
    return MeasuredRun(
        place=read_cell(row, "row_id") or place,
        job=job,
        measured_s=measured_s or work.tokens / speed,
        predicted_s=predicted_s,
    )


def calibrate_training(runs: Sequence[MeasuredRun]) -> TrainingReport:
    """Return the correction that runs of one model, accelerator and software give.

    Runs of others than the first are left out with a warning. Raises UsageError without a run.
    """
    if not runs:
        raise _run_error("the table has no run", None)
    first = runs[0]
    kind = run_kind(first.job)
    alike = [run for run in runs if run_kind(run.job) == kind]
    warnings = tuple(
        f"{run.place} differs in model, accelerator, software, precision, method or "
        "sequence: it is left out"
        for run in runs
        if run_kind(run.job) != kind
    )
    prior_half_ln = half_width_ln(first.job)
    bias_ln, half_ln = learn_bias(
        [run.log_ratio for run in alike], prior_half_ln
    )
    return TrainingReport(
        correction=TrainingCorrection(
            kind=kind,
            runs=len(alike),
            bias_ln=bias_ln,
            half_ln=half_ln,
        ),
        runs=tuple(alike),
        after_s=tuple(
            _by_others(place, alike, prior_half_ln)
            for place in range(len(alike))
        ),
        warnings=warnings,
    )


def _by_others(
    place: int, runs: Sequence[MeasuredRun], prior_half_ln: float
) -> float | None:
    """Return the time of a step that the other runs predict, seconds."""
    others = [run.log_ratio for i, run in enumerate(runs) if i != place]
    if not others:
        return None
    bias_ln, _ = learn_bias(others, prior_half_ln)
    return runs[place].predicted_s * math.exp(bias_ln)


def dump_training(
    correction: TrainingCorrection, source_hashes: Mapping[str, str]
) -> str:
    """Return the calibration as JSON; `source_hashes` maps each file to its SHA-256."""
    document = {
        "schema": SCHEMA,
        **correction.kind._asdict(),
        "runs": correction.runs,
        "bias_ln": round(correction.bias_ln, DIGITS),
        "half_ln": round(correction.half_ln, DIGITS),
        "sources": dict(source_hashes),
    }
    return json.dumps(document, indent=2, sort_keys=True) + "\n"


def parse_training(
    file_bytes: bytes, source_path: str
) -> TrainingCorrection | None:
    """Return the correction of a file, None where it is a calibration of something else.

    Raises UsageError for a damaged one.
    """
    try:
        document: dict[str, Any] = json.loads(file_bytes)
        if document["schema"] != SCHEMA:
            return None
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    try:
        correction = TrainingCorrection(
            kind=RunKind(
                model=str(document["model"]),
                accelerator=str(document["accelerator"]),
                kernels=str(document["kernels"]),
                precision=str(document["precision"]),
                sequence_tokens=int(document["sequence_tokens"]),
                frozen_bytes=float(document["frozen_bytes"]),
            ),
            runs=int(document["runs"]),
            bias_ln=float(document["bias_ln"]),
            half_ln=float(document["half_ln"]),
            sha256=hashlib.sha256(file_bytes).hexdigest(),
        )
        _check_numbers(correction)
    except (ValueError, KeyError, TypeError) as parse_error:
        problem = Problem(
            code="calibration",
            message="is no calibration of this program",
            place=Place(source_path),
            next_step="make one: tonnage calibrate RUNS.csv -o FILE",
        )
        raise UsageError(problem) from parse_error
    return correction


def _check_numbers(correction: TrainingCorrection) -> None:
    """Raise ValueError for numbers that no runs teach."""
    if not (
        abs(correction.bias_ln) < MAX_BIAS_LN
        and 0 < correction.half_ln < MAX_BIAS_LN
        and correction.runs >= 1
    ):
        raise ValueError(correction)


def _run_error(message: str, place: Place | None) -> UsageError:
    return UsageError(
        Problem(
            code="benchmark",
            message=message,
            place=place,
            next_step="write it with the columns of docs/estimate.md",
        )
    )

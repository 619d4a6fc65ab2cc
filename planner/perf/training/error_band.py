"""Error bands of predicted training speed: half widths of the 90 % band, in ln.

A half width is a quantile of the errors on families, models and accelerators that were left
out of the fit (planner/perf/data/train_bands.csv). Of several kinds the widest counts. Missing
measurements multiply it; each doubling beyond the measured range adds to it in quadrature.
"""

from __future__ import annotations

import math
from functools import cache
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from planner.facts import table
from planner.perf.common.constant import constant
from planner.perf.common.release import release_key
from planner.perf.training.measured import covered_names

if TYPE_CHECKING:
    from planner.perf.serving.error_band import Basis
    from planner.perf.training.job import Job

NEWER: Final = "newer"  # kind of the width that a newer release adds


class NewestRelease(Struct, frozen=True, kw_only=True):
    """The newest measured release of a framework, or the newest run of a class of kernels.

    version  release of a framework, or nothing where no measured run states one
    year     of the newest run
    """

    version: str
    year: float


@cache
def _newest_releases() -> dict[tuple[str, str], NewestRelease]:
    column_types = {
        "kind": table.one_of("framework", "kernels"),
        "name": table.nonempty_text,
        "version": table.any_text,
        "year": table.real_between(2000, 2100),
        "rows": table.integer_between(1, 100_000),
        **table.SOURCE_COLUMNS,
    }
    return {
        (row["kind"], row["name"]): NewestRelease(
            version=row["version"], year=row["year"]
        )
        for row in table.load_rows(
            "planner.perf", "train_releases.csv", column_types
        )
    }


def is_newer_release(
    framework: str, kernels: str, version: str, year: float
) -> bool:
    """Return whether a release came after all that were measured.

    A stated release is compared with those of its framework, where measured runs state theirs.
    Else a stated year (0 is none) is compared with the newest run of the framework and of its
    class of kernels. Without a year nothing tells how old a release is of which no run was
    measured, so it counts as newer.
    """
    newest = _newest_releases()
    of_framework = newest.get(("framework", framework))
    if version and of_framework is not None and of_framework.version:
        return release_key(version) > release_key(of_framework.version)
    if version and of_framework is not None and not year:
        return True
    measured_years = [
        release.year
        for release in (of_framework, newest.get(("kernels", kernels)))
        if release is not None
    ]
    return bool(measured_years) and year > max(measured_years)


@cache
def half_widths() -> dict[str, float]:
    """Return the half widths of planner/perf/data/train_bands.csv by kind, in ln."""
    column_types = {
        "kind": table.nonempty_text,
        "half": table.real_between(0.01, 3),
        "rows": table.integer_between(1, 100_000),
        **table.SOURCE_COLUMNS,
    }
    table_rows = table.load_rows(
        "planner.perf", "train_bands.csv", column_types
    )
    return {row["kind"]: row["half"] for row in table_rows}


def error_kinds(job: Job, *, assumed: bool) -> frozenset[str]:
    """Return the kinds of a run on which its error depends.

    `assumed` means that accelerators, sequence or layout of the run are assumed, not stated.
    """
    language_model = job.llm
    accelerator = job.chip
    base_kinds = {"moe" if language_model.experts else "dense"}
    kind_conditions = {
        # Each of these kinds errs more than its base kind.
        "assumed": assumed,
        "unseen": job.is_unseen,
        "whole run": job.software.is_whole_run,
        "hybrid": bool(language_model.state_layers),
        "sparse": bool(language_model.sparse),
        "latent": bool(language_model.kv_lora_rank),
        # Few published runs are on accelerators of other vendors.
        accelerator.vendor: accelerator.vendor != "nvidia",
        # GDDR memory marks workstation, inference and consumer cards.
        "consumer": accelerator.memory_type.startswith("GDDR"),
    }
    return frozenset(
        base_kinds
        | {kind_name for kind_name, is_met in kind_conditions.items() if is_met}
    )


def half_width_ln(job: Job, *, assumed: bool = False) -> float:
    """Return the half width of the 90 % band, in ln.

    half width = hypot(w * u1 * u2, beyond * doublings, newer)

    w          widest half width of the kinds of the run
    u1         `unseen` when accelerator or model family has no measurement, else 1
    u2         `unseen` when the architecture of the accelerator has none, else 1
    doublings  `_excess_doublings`
    newer      what a release adds that came after all that were measured, else 0
    """
    widths = half_widths()
    half_width = max(
        # A kind without measured errors has the half width `unknown`.
        widths.get(error_kind, widths["unknown"])
        for error_kind in error_kinds(job, assumed=assumed)
    )
    measured = covered_names()
    both_covered = ("GPU", job.chip.accelerator) in measured and (
        "family",
        job.llm.family,
    ) in measured
    # Factor of the error where nothing was measured: `unseen`.
    half_width *= 1.0 if both_covered else constant("unseen")
    half_width *= (
        1.0
        if ("architecture", job.chip.architecture) in measured
        else constant("unseen")
    )
    # Independent errors add in quadrature.
    return math.hypot(
        half_width,
        constant("beyond", "training") * _excess_doublings(job),
        widths[NEWER] if job.software.is_newer else 0.0,
    )


def _excess_doublings(job: Job) -> float:
    """Return the doublings of a run beyond the measured range.

    Largest of those of accelerators, tokens of a sequence and billions of parameters. It is 0
    within the range.
    """
    job_features = {
        "accelerators": job.layout.accelerators,
        "sequence": job.sequence_tokens,
        # The table of measured ranges counts parameters in billions.
        "parameters": job.llm.params / 1e9,
    }
    measured_maxima = dict(_measured_maxima())
    return max(
        0.0,
        *(
            math.log2(feature_value / measured_maxima[feature_name])
            for feature_name, feature_value in job_features.items()
        ),
    )


@cache
def _measured_maxima() -> tuple[tuple[str, float], ...]:
    column_types = {
        "feature": table.nonempty_text,
        "low": table.real_between(0, 1e15),
        "high": table.real_between(0, 1e15),
        **table.SOURCE_COLUMNS,
    }
    table_rows = table.load_rows(
        "planner.perf", "train_ranges.csv", column_types
    )
    return tuple((row["feature"], row["high"]) for row in table_rows)


def prediction_basis(job: Job, *, assumed: bool = False) -> Basis:
    """Return the basis of a prediction.

    calibrated  accelerator and family are measured; plain dense or mixture-of-experts run
    physics     the architecture is measured; accelerator, family, kind or release is not
    spec        the architecture has no measurement: only the data sheet is known
    """
    measured = covered_names()
    if ("architecture", job.chip.architecture) not in measured:
        return "spec"
    both_covered = ("GPU", job.chip.accelerator) in measured and (
        "family",
        job.llm.family,
    ) in measured
    # Other kinds have too few measured runs to count as calibrated.
    unusual_kinds = error_kinds(job, assumed=assumed) - {"dense", "moe"}
    is_usual = not unusual_kinds and not job.software.is_newer
    return "calibrated" if both_covered and is_usual else "physics"

"""How far a predicted training speed may be off: 90 % half widths in ln, and what they rest on.

They are quantiles of errors on left-out families, models and accelerators. A run may belong to
several kinds, of which the widest counts. A family or an accelerator without measurements widens
it, an architecture without any once more; every doubling beyond what was measured adds to it.
"""

from __future__ import annotations

import math
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

from planner.facts import table
from planner.perf.common.constant import constant

if TYPE_CHECKING:
    from planner.perf.serving.error_band import Basis
    from planner.perf.training.job import Job


@cache
def _half_widths() -> dict[str, float]:
    column_types = {
        "kind": table.nonempty_text,
        "half": table.real_between(0.01, 3),
        "rows": table.integer_between(1, 100_000),
        **table.SOURCE_COLUMNS,
    }
    table_rows = table.read_rows(
        _data_text("train_bands.csv"), "train_bands.csv", column_types
    )
    return {row["kind"]: row["half"] for row in table_rows}


@cache
def _covered_names() -> frozenset[tuple[str, str]]:
    column_types = {
        "kind": table.nonempty_text,
        "name": table.nonempty_text,
        "rows": table.integer_between(1, 100_000),
        **table.SOURCE_COLUMNS,
    }
    table_rows = table.read_rows(
        _data_text("train_covered.csv"), "train_covered.csv", column_types
    )
    return frozenset((row["kind"], row["name"]) for row in table_rows)


def error_kinds(job: Job, *, assumed: bool) -> frozenset[str]:
    """What a run is, as far as its error depends on it."""
    language_model = job.llm
    accelerator = job.chip
    base_kinds = {"moe" if language_model.experts else "dense"}
    kind_conditions = {
        "assumed": assumed,
        "hybrid": bool(language_model.state_layers),
        "sparse": bool(language_model.sparse),
        "latent": bool(language_model.kv_lora_rank),
        accelerator.vendor: accelerator.vendor != "nvidia",
        "consumer": accelerator.memory_type.startswith("GDDR"),
    }
    return frozenset(
        base_kinds
        | {kind_name for kind_name, is_met in kind_conditions.items() if is_met}
    )


def half_width_ln(job: Job, *, assumed: bool = False) -> float:
    """Half width of the 90 % band in ln."""
    half_widths = _half_widths()
    half_width = max(
        half_widths.get(error_kind, half_widths["unknown"])
        for error_kind in error_kinds(job, assumed=assumed)
    )
    covered_names = _covered_names()
    both_covered = ("GPU", job.chip.accelerator) in covered_names and (
        "family",
        job.llm.family,
    ) in covered_names
    half_width *= 1.0 if both_covered else constant("unseen")
    half_width *= (
        1.0
        if ("architecture", job.chip.architecture) in covered_names
        else constant("unseen")
    )
    return math.hypot(
        half_width, constant("beyond", "training") * _excess_doublings(job)
    )


def _excess_doublings(job: Job) -> float:
    """Doublings of accelerators, sequence and parameters beyond what was measured."""
    job_features = {
        "accelerators": job.layout.accelerators,
        "sequence": job.sequence_tokens,
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
    table_rows = table.read_rows(
        _data_text("train_ranges.csv"), "train_ranges.csv", column_types
    )
    return tuple((row["feature"], row["high"]) for row in table_rows)


def prediction_basis(job: Job, *, assumed: bool = False) -> Basis:
    """What a prediction rests on: calibrated, or physics where something is new, or a sheet."""
    covered_names = _covered_names()
    if ("architecture", job.chip.architecture) not in covered_names:
        return "spec"
    both_covered = ("GPU", job.chip.accelerator) in covered_names and (
        "family",
        job.llm.family,
    ) in covered_names
    unusual_kinds = error_kinds(job, assumed=assumed) - {"dense", "moe"}
    return "calibrated" if both_covered and not unusual_kinds else "physics"


def _data_text(file_name: str) -> str:
    return (
        files("planner.perf")
        .joinpath("data", file_name)
        .read_text(encoding="utf-8")
    )

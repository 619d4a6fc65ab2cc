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
from planner.perf.constant import constant

if TYPE_CHECKING:
    from planner.perf.band import Basis
    from planner.perf.train.job import Job


@cache
def _halves() -> dict[str, float]:
    columns = {
        "kind": table.text,
        "half": table.real(0.01, 3),
        "rows": table.whole(1, 100_000),
        **table.SOURCED,
    }
    rows = table.rows(_text("train_bands.csv"), "train_bands.csv", columns)
    return {row["kind"]: row["half"] for row in rows}


@cache
def _measured() -> frozenset[tuple[str, str]]:
    columns = {
        "kind": table.text,
        "name": table.text,
        "rows": table.whole(1, 100_000),
        **table.SOURCED,
    }
    rows = table.rows(_text("train_covered.csv"), "train_covered.csv", columns)
    return frozenset((row["kind"], row["name"]) for row in rows)


def kinds(job: Job, *, assumed: bool) -> frozenset[str]:
    """What a run is, as far as its error depends on it."""
    llm, chip = job.llm, job.chip
    found = {"moe" if llm.experts else "dense"}
    marks = {
        "assumed": assumed,
        "hybrid": bool(llm.state_layers),
        "sparse": bool(llm.sparse),
        "latent": bool(llm.kv_lora_rank),
        chip.vendor: chip.vendor != "nvidia",
        "consumer": chip.memory_type.startswith("GDDR"),
    }
    return frozenset(found | {name for name, holds in marks.items() if holds})


def half(job: Job, *, assumed: bool = False) -> float:
    """Half width of the 90 % band in ln."""
    known = _halves()
    wide = max(
        known.get(kind, known["unknown"])
        for kind in kinds(job, assumed=assumed)
    )
    seen = _measured()
    known_part = ("GPU", job.chip.accelerator) in seen and (
        "family",
        job.llm.family,
    ) in seen
    wide *= 1.0 if known_part else constant("unseen")
    wide *= (
        1.0
        if ("architecture", job.chip.architecture) in seen
        else constant("unseen")
    )
    return math.hypot(wide, constant("beyond", "training") * _beyond(job))


def _beyond(job: Job) -> float:
    """Doublings of accelerators, sequence and parameters beyond what was measured."""
    asked = {
        "accelerators": job.spread.accelerators,
        "sequence": job.sequence,
        "parameters": job.llm.params / 1e9,
    }
    most = dict(_measured_most())
    return max(
        0.0, *(math.log2(value / most[name]) for name, value in asked.items())
    )


@cache
def _measured_most() -> tuple[tuple[str, float], ...]:
    columns = {
        "feature": table.text,
        "low": table.real(0, 1e15),
        "high": table.real(0, 1e15),
        **table.SOURCED,
    }
    rows = table.rows(_text("train_ranges.csv"), "train_ranges.csv", columns)
    return tuple((row["feature"], row["high"]) for row in rows)


def rests(job: Job, *, assumed: bool = False) -> Basis:
    """What a prediction rests on: calibrated, or physics where something is new, or a sheet."""
    seen = _measured()
    if ("architecture", job.chip.architecture) not in seen:
        return "spec"
    usual = ("GPU", job.chip.accelerator) in seen and (
        "family",
        job.llm.family,
    ) in seen
    odd = kinds(job, assumed=assumed) - {"dense", "moe"}
    return "calibrated" if usual and not odd else "physics"


def _text(name: str) -> str:
    return (
        files("planner.perf").joinpath("data", name).read_text(encoding="utf-8")
    )

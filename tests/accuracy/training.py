"""Training runs: the measured rows, the fit, what is left out in turn, and the bands."""

from __future__ import annotations

import csv
import math
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import attrgetter
from pathlib import Path
from typing import Any, Final, get_args

import numpy as np

from planner.estimate.cell import read_version, read_year
from planner.estimate.names import RefusedError
from planner.estimate.software import kernel_class, training_framework
from planner.estimate.training_row import ParsedJob, parse_job
from planner.perf.common.release import release_key
from planner.perf.training.coefficients import TRAINING_TABLE, coefficient_keys
from planner.perf.training.error_band import NEWER, error_kinds
from planner.perf.training.job import Task
from planner.perf.training.measured import MIXTURE_KERNELS, task_kernels
from planner.perf.training.step import tokens_per_s
from planner.perf.training.work import RankWork, rank_work
from tests.accuracy.adapter import training_row
from tests.accuracy.least import (
    Array,
    Problem,
    coefficients,
    current,
    design,
    save,
    solve,
    write,
)

TRUTH: Final = Path(__file__).parents[1] / "data" / "truth" / "training.csv"
# Runs that no fit sees.
APART: Final = TRUTH.with_name("training_apart.csv")
CELL: Final = (
    "model",
    "gpu",
    "precision",
    "tp",
    "pp",
    "ep",
    "n_gpus",
    "seq_len",
    "micro_batch",
    "act_ckpt",
    "task",
)
FAMILIES: Final = ("megatron_bridge", "mlperf", "llm_foundry", "torchtitan")
ODD: Final = "torchtune_readme"  # rows that exceed the peak of their chip: scored, not fitted
WEIGHT: Final = {"A": 1.0, "B": 0.12, "C": 0.0}
# Rows of a cell are worth their number to the power of 1 - this.
SHARED: Final = 0.4
SOFT: Final = 0.06
FEWEST: Final = 8
WIDER: Final = 1.4  # the structure was chosen while looking at these errors: new sources err more
# Kinds of which too few rows are measured: judged, and wide.
JUDGED: Final = {
    "sparse": 0.8,
    "latent": 0.6,
    "consumer": 0.5,
    "aws": 0.5,
    "intel": 0.8,
    "unknown": 0.8,
    "unseen": 0.45,
    "whole run": 0.35,
}
# Whose releases the truth names, one after the other, and what it tells of each recipe.
RELEASED: Final = "Megatron-Bridge (NeMo container)"
RELEASE_TRAITS: Final = (
    "cuda_graphs",
    "exchange",
    "exchange_overlap",
    "slow_kernel",
)
FLOOR: Final = 0.01  # the least width that the table takes
SOURCE: Final = "cross-validation on published training runs (tests/data/truth/training.csv)"
APART_SOURCE: Final = (
    "errors of runs that are kept apart (tests/data/truth/training_apart.csv)"
)
AS_OF: Final = "2026-11"


@dataclass(frozen=True, slots=True)
class Run:
    """One measured run with its job; `speed` is tokens a second of one accelerator, or NaN."""

    row: dict[str, str]
    read: ParsedJob
    speed: float

    @property
    def family(self) -> str:
        """The family of its source."""
        group = self.row["source_group"]
        return next(
            (name for name in FAMILIES if group.startswith(name)), group
        )


LEAVES: Final[Mapping[str, Callable[[Run], str]]] = {
    "family": attrgetter("family"),
    "model": lambda run: run.row["model"],
    "GPU": lambda run: run.row["gpu"],
}


def load(path: Path = TRUTH) -> tuple[list[Run], list[str]]:
    """Read the runs, and the reasons of those that are refused."""
    runs = []
    refused = []
    for row in csv.DictReader(path.read_text(encoding="utf-8").splitlines()):
        try:
            runs.append(Run(row, parse_job(training_row(row)), _measured(row)))
        except RefusedError as error:
            refused.append(str(error))
    return runs, refused


def _measured(row: Mapping[str, str]) -> float:
    """Tokens a second; where only FLOP are stated, those of 6 N a token."""
    if row["tokens_per_s_per_gpu"]:
        return float(row["tokens_per_s_per_gpu"])
    if row["model_tflops_per_gpu"]:
        return (
            float(row["model_tflops_per_gpu"])
            * 1e3
            / 6
            / float(row["params_b"])
        )
    return float("nan")


class Batch:
    """Runs as arrays."""

    def __init__(self, runs: Sequence[Run]) -> None:
        self.runs = list(runs)
        jobs = [run.read.job for run in runs]
        counted = [rank_work(made) for made in jobs]
        columns: dict[str, Array] = {
            name: np.array([getattr(x, name) for x in counted], float)
            for name in RankWork.__struct_fields__
        }
        self.work = RankWork(**columns)
        self.speed = np.array([run.speed for run in runs])
        self.quality = np.array([run.row["quality"] for run in runs])
        self.kinds = [
            error_kinds(run.read.job, assumed=run.read.is_assumed)
            for run in runs
        ]
        self._design = design(
            TRAINING_TABLE,
            [coefficient_keys(made) for made in jobs],
            [2025.5] * len(jobs),
        )

    def ratios(self, parameters: Array) -> Array:
        """Log of predicted over measured speed, NaN where none was measured."""
        c = coefficients(TRAINING_TABLE, self._design, parameters)
        return np.log(tokens_per_s(self.work, c) / self.speed)

    def of(self, kind: str) -> Array:
        """Rows of quality A of a kind: dense and moe exclude hybrids."""
        hybrid = np.array(["hybrid" in k for k in self.kinds])
        here = np.array([kind in k for k in self.kinds]) & (self.quality == "A")
        return (
            here
            & (hybrid if kind == "hybrid" else ~hybrid)
            & np.isfinite(self.speed)
        )


def problem(batch: Batch, train: Array) -> Problem:
    """The fit to the rows of `train`."""
    cells = [tuple(run.row[name] for name in CELL) for run in batch.runs]
    count = Counter(c for c, used in zip(cells, train, strict=True) if used)
    each = np.array([max(1, count[c]) ** -SHARED for c in cells])
    each *= np.array([WEIGHT[run.row["quality"]] for run in batch.runs])
    each *= np.array([run.row["source_group"] != ODD for run in batch.runs])
    weight = np.where(train & np.isfinite(batch.speed), each, 0.0)
    return Problem(
        TRAINING_TABLE, weight, lambda p: np.nan_to_num(batch.ratios(p)), SOFT
    )


def leave(batch: Batch, name: str) -> tuple[Array, Array]:
    """Log ratios of all rows with their own group left out of the fit, and the groups."""
    groups = np.array([LEAVES[name](run) for run in batch.runs])
    found = np.full(len(groups), np.nan)
    for group in sorted(set(groups[batch.quality == "A"])):
        fitted = solve(problem(batch, groups != group))
        found = np.where(groups == group, batch.ratios(fitted), found)
    return found, groups


def schemes(batch: Batch, fitted: Array) -> dict[str, tuple[Array, Array]]:
    """All schemes: with all data, and with a family, a model and an accelerator left out."""
    every = {"all": (batch.ratios(fitted), np.array(["all"] * len(batch.runs)))}
    return every | {name: leave(batch, name) for name in LEAVES}


def newer_errors(batch: Batch) -> tuple[Array, list[int]]:
    """Log ratios of the runs of each release, predicted by what was known before it.

    The fit has no run of that release or a later one, the rows name the release before, and
    nothing is told that only came with theirs. Also the places of the runs.
    """
    releases = [
        run.row["framework_version"] if run.row["framework"] == RELEASED else ""
        for run in batch.runs
    ]
    known = sorted({x for x in releases if x}, key=release_key)
    ratios = []
    places: list[int] = []
    for before, release in pairwise(known):
        earlier = np.array(
            [not x or release_key(x) < release_key(release) for x in releases]
        )
        fitted = solve(problem(batch, earlier))
        here = [
            place
            for place, run in enumerate(batch.runs)
            if releases[place] == release and run.row["quality"] == "A"
        ]
        blind = [_as_of_release(batch.runs[place], before) for place in here]
        ratios.append(Batch(blind).ratios(fitted))
        places += here
    return np.concatenate(ratios), places


def _as_of_release(run: Run, release: str) -> Run:
    """The run as a row that names an earlier release, and nothing that came later."""
    row = (
        run.row
        | dict.fromkeys(RELEASE_TRAITS, "")
        | {
            "framework_version": release,
            "source_date": "",
        }
    )
    return Run(row, parse_job(training_row(row)), run.speed)


def newer_half(
    batch: Batch, found: Mapping[str, tuple[Array, Array]]
) -> tuple[float, int]:
    """What a newer release adds to the error of a left-out source, in quadrature, and its runs."""
    ratios, places = newer_errors(batch)
    apart = np.abs(found["family"][0][places])
    newer = np.quantile(np.abs(ratios), 0.9)
    known = np.quantile(apart[np.isfinite(apart)], 0.9)
    return float(np.sqrt(max(0.0, newer**2 - known**2))), len(places)


def halves(
    batch: Batch, found: Mapping[str, tuple[Array, Array]], fitted: Array
) -> Iterator[dict[str, Any]]:
    """Yield the half width of each kind: 90 % quantiles of left-out errors and more, or judged."""
    left_out = [ratio for name, (ratio, _) in found.items() if name != "all"]
    plain = np.array([k <= {"dense", "moe"} for k in batch.kinds])
    for kind in ("dense", "moe", "assumed", "amd", "google"):
        here = batch.of(kind) & plain
        if kind not in ("dense", "moe"):
            here = np.array([kind in k for k in batch.kinds]) & np.isfinite(
                batch.speed
            )
        errors = np.concatenate([np.abs(ratio[here]) for ratio in left_out])
        errors = errors[np.isfinite(errors)]
        if len(errors) >= FEWEST:
            wide = float(np.quantile(errors, 0.9))
            yield _row(
                "kind", kind, half=f"{WIDER * wide:.3f}", rows=int(here.sum())
            )
    hybrids, _ = load(APART)
    apart = Batch([run for run in hybrids if run.read.job.llm.state_layers])
    wide = float(np.quantile(np.abs(apart.ratios(fitted)), 0.9))
    yield _row(
        "kind",
        "hybrid",
        half=f"{WIDER * wide:.3f}",
        rows=len(apart.runs),
        source=APART_SOURCE,
    )
    added, rows = newer_half(batch, found)
    yield _row("kind", NEWER, half=f"{max(FLOOR, added):.3f}", rows=rows)
    for kind, wide in JUDGED.items():
        yield _row("kind", kind, half=f"{wide:.3f}", rows=1)


def _row(
    column: str, cell: str, source: str = SOURCE, **values: object
) -> dict[str, Any]:
    return {column: cell, **values, "source": source, "as_of": AS_OF}


def covered(batch: Batch) -> Iterator[dict[str, Any]]:
    """Yield what was measured, with its number of rows."""
    jobs = [run.read.job for run in batch.runs if run.row["quality"] != "C"]
    kinds: Mapping[str, Sequence[str]] = {
        "family": [x.llm.family for x in jobs],
        "GPU": [x.chip.accelerator for x in jobs],
        "architecture": [x.chip.architecture for x in jobs],
        "framework": _frameworks(),
        MIXTURE_KERNELS: [x.software.kernels for x in jobs if x.llm.experts],
        **{
            task_kernels(task): [
                x.software.kernels for x in jobs if x.task == task
            ]
            for task in get_args(Task)
        },
    }
    for kind, names in kinds.items():
        for name, number in sorted(Counter(names).items()):
            yield _row("kind", kind, name=name, rows=number)


def releases() -> Iterator[dict[str, Any]]:
    """Yield the newest release of each framework, and the newest run of each class of kernels."""
    newest: dict[tuple[str, str], list[tuple[float, str]]] = defaultdict(list)
    for row in csv.DictReader(TRUTH.read_text(encoding="utf-8").splitlines()):
        typed = training_row(row)
        framework = training_framework(typed)
        if row["quality"] == "C" or not framework:
            continue
        ran = (read_year(typed, "date", 0.0), read_version(typed, "version"))
        newest["framework", framework].append(ran)
        newest["kernels", kernel_class(typed)].append(ran)
    for (kind, name), runs in sorted(newest.items()):
        versions = {version for _, version in runs if version}
        yield _row(
            "kind",
            kind,
            name=name,
            version=max(versions, key=release_key, default="")
            if kind == "framework"
            else "",
            # Rounded up, so that the newest run is not newer than itself.
            year=f"{math.ceil(1e3 * max(year for year, _ in runs)) / 1e3:.3f}",
            rows=len(runs),
        )


def _frameworks() -> list[str]:
    """The frameworks of all runs of quality A and B, by their typed names."""
    found = []
    for row in csv.DictReader(TRUTH.read_text(encoding="utf-8").splitlines()):
        framework = training_framework(training_row(row))
        if framework and row["quality"] != "C":
            found.append(framework)
    return found


def ranges(batch: Batch) -> Iterator[dict[str, Any]]:
    """Yield the least and the most that was measured of what may lie outside."""
    jobs = [run.read.job for run in batch.runs if run.row["quality"] != "C"]
    for name, found in (
        ("accelerators", [float(x.layout.accelerators) for x in jobs]),
        ("sequence", [float(x.sequence_tokens) for x in jobs]),
        ("parameters", [x.llm.params / 1e9 for x in jobs]),
    ):
        yield _row(
            "feature", name, low=f"{min(found):.5g}", high=f"{max(found):.5g}"
        )


def refit() -> None:
    """Fit the table of training, then its bands, and write all of them."""
    runs, _ = load()
    batch = Batch(runs)
    fitted = solve(problem(batch, np.ones(len(runs), bool)))
    save(TRAINING_TABLE, fitted)
    found = schemes(batch, fitted)
    write("train_bands.csv", list(halves(batch, found, fitted)))
    write("train_covered.csv", list(covered(batch)))
    write("train_ranges.csv", list(ranges(batch)))
    write("train_releases.csv", list(releases()))
    sys.stderr.write(
        f"fitted {len(TRAINING_TABLE.rows)} rows to {len(runs)} training runs\n"
    )


def now() -> tuple[Batch, dict[str, tuple[Array, Array]], list[str]]:
    """The runs and all schemes with the table as it stands, and what is refused."""
    runs, refused = load()
    batch = Batch(runs)
    return batch, schemes(batch, current(TRAINING_TABLE)), refused

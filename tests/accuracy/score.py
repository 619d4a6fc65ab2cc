"""Scores of cross-validations: errors by cell, coverage of bands, order of accelerators."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final

import numpy as np

from tests.accuracy.bands import engines, own_engines, spread, widest
from tests.accuracy.cross import Scheme
from tests.accuracy.least import Array
from tests.accuracy.sample import Batch, Sample

OPTIMISTIC: Final = 0.2
APART: Final = 0.15
FEWEST: Final = 8
MEASURES: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "throughput, offline maximum": ("throughput", ("offline",)),
    "throughput, static batch": ("throughput", ("static",)),
    "throughput, all at once": ("throughput", ("burst",)),
    "TPOT, closed loop": ("tpot", ("closed",)),
    "TPOT, low Poisson rates": ("tpot", ("open",)),
    "TTFT, idle": ("ttft", ("static",)),
    "TTFT, all at once": ("ttft", ("burst",)),
    "TTFT, closed loop": ("ttft", ("closed",)),
    "rate served at the measured TPOT": ("served", ("server",)),
    "rate within both limits": ("within", ("server",)),
}
# Numbers that have a band, each with the name of what it is a band of in a scheme.
BANDED: Final = {
    "tpot": "tpot",
    "throughput": "throughput",
    "ttft": "ttft",
    "served_rps": "pace",
}
LOADS: Final = (
    ("offline",),
    ("static",),
    ("burst",),
    ("closed",),
    ("open", "server"),
)
SETTING: Final = (
    "source_group",
    "model",
    "weight_precision",
    "tp",
    "pp",
    "ep",
    "n_gpus",
    "framework",
    "load_kind",
    "concurrency",
    "input_len",
    "output_len",
)


@dataclass(frozen=True, slots=True)
class Score:
    """Error over rows of quality A: median over cells, mean over rows, and how many of both."""

    cells: float
    rows: float
    cell_count: int
    row_count: int


def ratios(
    batch: Batch, scheme: Scheme, measure: str, *, earlier: bool = False
) -> Array:
    """Log of predicted over measured for the rows of a measure, NaN elsewhere.

    With `earlier` only for those that the table had before it grew.
    """
    target, groups = MEASURES[measure]
    found = scheme.ratio(target)
    here = np.isin(batch.group, groups) & (batch.quality == "A")
    if earlier:
        here &= batch.earlier
    return np.where(here, found, np.nan)


def score(batch: Batch, ratio: Array) -> Score:
    """Return the error of the rows that have a ratio."""
    by_cell: dict[tuple[str, ...], list[float]] = defaultdict(list)
    for place in np.flatnonzero(np.isfinite(ratio)):
        by_cell[batch.samples[place].cell].append(
            abs(float(np.expm1(ratio[place])))
        )
    every = [error for errors in by_cell.values() for error in errors]
    middle = float(np.median([np.mean(errors) for errors in by_cell.values()]))
    return Score(middle, float(np.mean(every)), len(by_cell), len(every))


def optimistic(
    batch: Batch,
    scheme: Scheme,
    target: str,
    groups: Sequence[str],
    *,
    earlier: bool = False,
) -> float:
    """Share of rows predicted better than measured by more than a fifth."""
    found = scheme.ratio(target)
    here = (
        np.isin(batch.group, groups)
        & (batch.quality == "A")
        & np.isfinite(found)
    )
    if earlier:
        here &= batch.earlier
    better = found if target == "throughput" else -found
    return float(np.mean(better[here] > np.log(1 + OPTIMISTIC)))


@dataclass(frozen=True, slots=True)
class Coverage:
    """Share of rows inside bands that were made without their group, and the bands' width."""

    inside: float
    width: float
    rows: int


def coverage(
    batch: Batch,
    scheme: Scheme,
    target: str,
    loads: Sequence[Sequence[str]],
    *,
    earlier: bool = False,
    most_wider: float | None = None,
) -> Coverage:
    """Band each left-out group by the errors of the other left-out groups.

    An engine with a band of its own is banded by its own rows, but where engines are left out.
    Few groups widen a band by `most_wider` at most, where it is given.
    """
    ratio = scheme.ratio(target)
    inside: list[bool] = []
    widths: list[float] = []
    for load in loads:
        here = (
            np.isin(batch.group, load)
            & (batch.quality == "A")
            & np.isfinite(ratio)
        )
        if earlier:
            here &= batch.earlier
        of_engines = [(here, here)]
        if scheme.name != "engine":
            of_engines = list(_by_engine(batch, here))
        for judged, peers in of_engines:
            for group in sorted(set(scheme.groups[judged])):
                own = judged & (scheme.groups == group)
                others = peers & (scheme.groups != group)
                low, high, _ = spread(
                    batch,
                    ratio,
                    others if others.sum() >= FEWEST else peers,
                    scheme.groups,
                    most_wider or widest(target),
                )
                inside += [bool(low <= -x <= high) for x in ratio[own]]
                widths += [float(np.exp(high - low))] * int(own.sum())
    if not inside:
        return Coverage(0.0, 0.0, 0)
    return Coverage(
        float(np.mean(inside)), float(np.median(widths)), len(inside)
    )


def inside(found: Sequence[Coverage]) -> float:
    """Return the share of all rows that are inside their bands."""
    return sum(x.inside * x.rows for x in found) / sum(x.rows for x in found)


def _by_engine(batch: Batch, here: Array) -> Iterator[tuple[Array, Array]]:
    """Yield the rows of each band, and the rows that the band is made of."""
    kinds = engines(batch)
    owners = own_engines(batch, here)
    for engine in owners:
        own = here & (kinds == engine)
        yield own, own
    yield here & ~np.isin(kinds, owners), here


def order(batch: Batch, scheme: Scheme) -> tuple[float, int]:
    """Share of pairs of accelerators under one workload that are put in the measured order.

    Only pairs that measured more than 15 % apart, each predicted without its own accelerator.
    """
    right = 0
    count = 0
    for target, measured in (
        ("throughput", batch.throughput),
        ("tpot", batch.tpot),
    ):
        ratio = scheme.ratio(target)
        for one, other in _pairs(
            batch.samples, np.isfinite(ratio) & (batch.quality == "A")
        ):
            apart = float(np.log(measured[one] / measured[other]))
            if abs(apart) < np.log(1 + APART):
                continue
            count += 1
            right += (apart + ratio[one] - ratio[other]) * apart > 0
    return right / count, count


def _pairs(samples: Sequence[Sample], here: Array) -> Iterator[tuple[int, int]]:
    places: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for place in np.flatnonzero(here).tolist():
        places[tuple(samples[place].row[name] for name in SETTING)].append(
            place
        )
    for found in places.values():
        for one, other in combinations(found, 2):
            if samples[one].row["gpu"] != samples[other].row["gpu"]:
                yield one, other


def worst(
    batch: Batch, scheme: Scheme, measure: str, most: int
) -> list[tuple[float, str, int]]:
    """The cells that are predicted worst: their bias, what they are, and their rows."""
    ratio = ratios(batch, scheme, measure)
    by_cell: dict[str, list[float]] = defaultdict(list)
    for place in np.flatnonzero(np.isfinite(ratio)):
        row = batch.samples[place].row
        wide = row["tp"] or row["n_gpus"]
        name = f"{row['source_group']}, {row['model']}, {row['gpu']} x {wide}"
        by_cell[name].append(float(ratio[place]))
    found = [
        (float(np.expm1(np.mean(x))), name, len(x))
        for name, x in by_cell.items()
    ]
    return sorted(found, key=lambda cell: (-abs(np.log1p(cell[0])), cell[1]))[
        :most
    ]

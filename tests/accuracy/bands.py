"""Bands from the cross-validations, and the list of what the measurements cover."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import numpy as np

from planner.numeric import Z_OF_90_PERCENT_BAND, student_quantile
from planner.perf.serving.error_band import APART, load_of_engine
from tests.accuracy import apart
from tests.accuracy.cross import RELEASE, WHOLE, Scheme
from tests.accuracy.least import Array, write
from tests.accuracy.sample import Batch

SOURCE: Final = "cross-validation on published measurements (tests/data/truth)"
AS_OF: Final = "2026-11"
# Kinds of load, each of the groups of rows that have it.
LOADS: Final[Mapping[str, tuple[str, ...]]] = {
    "offline": ("offline",),
    "static": ("static",),
    "burst": ("burst",),
    "closed": ("closed",),
    "open": ("open", "server"),
}
# Targets of the table, and of the schemes.
TARGETS: Final = {
    "throughput": "throughput",
    "tpot": "tpot",
    "ttft": "ttft",
    "served": "pace",
}
FEWEST: Final = 8
# Rows of an engine under a kind of load that have a band of their own.
FEWEST_OF_ENGINE: Final = 100
FEWEST_FEW: Final = 2  # of vendors and releases, of which there are few
TAIL: Final = 0.05
# By few groups: a third or fourth source is not a surprise without end. Bands that may grow by so
# much hold nine tenths of what is left out, over all numbers (docs/accuracy.md, "Coverage").
MOST_WIDER: Final = 1.25
MOST_WIDER_OF: Final = {
    # Many sources measured throughput, and hardly more is needed.
    "throughput": 1.05,
    # Rates within limits are known of three families in three rounds: all that three groups ask
    # for, t(0.95, 2) / z(0.95) * sqrt(1 + 1 / 3).
    "pace": 2.05,
}


def spread(
    batch: Batch,
    ratio: Array,
    rows: Array,
    groups: Array,
    most_wider: float = MOST_WIDER,
) -> tuple[float, float, int]:
    """5 % and 95 % quantiles of ln(measured / predicted), cells counting equally, and the cells.

    Few cells say little: the half width grows by 2 / cells. Few groups say little of the next
    one: it grows too by `group_factor`, by `most_wider` at most. `groups` are what was left out
    together.
    """
    places = np.flatnonzero(rows & np.isfinite(ratio))
    weight, cells = _weights(batch, places)
    low, high = _quantiles(-ratio[places], weight)
    factor = min(
        most_wider, group_factor(-ratio[places], weight, groups[places])
    )
    half = factor * (high - low) * (1 / 2 + 1 / cells)
    middle = (low + high) / 2
    return middle - half, middle + half, cells


def reach(batch: Batch, ratio: Array, rows: Array) -> tuple[float, float, int]:
    """5 % and 95 % quantiles as they are, of rows that are compared with themselves in a fit."""
    places = np.flatnonzero(rows & np.isfinite(ratio))
    weight, cells = _weights(batch, places)
    return *_quantiles(-ratio[places], weight), cells


def _weights(batch: Batch, places: Array) -> tuple[Array, int]:
    """Return what each row counts, cells counting equally, and the number of cells."""
    cells = [batch.samples[i].cell for i in places]
    count = Counter(cells)
    return np.array([1 / count[cell] ** 0.5 for cell in cells]), len(count)


def _quantiles(errors: Array, weight: Array) -> tuple[float, float]:
    order = np.argsort(errors)
    share = (np.cumsum(weight[order]) - weight[order] / 2) / weight.sum()
    low, high = (
        float(np.interp(q, share, errors[order])) for q in (TAIL, 1 - TAIL)
    )
    return low, high


def group_factor(errors: Array, weight: Array, groups: Array) -> float:
    """Return how much wider a band is for a group that is none of these.

        sqrt(1 + between * (f^2 - 1)),   f = t(0.95, groups - 1) / z(0.95) * sqrt(1 + 1 / groups)

    `between` is the share of the variance that lies between groups: only of that do few groups
    say little. Of a single group nothing tells how the next one differs: it is infinite, unless no
    row was left out.
    """
    names = sorted(set(groups))
    if names == [WHOLE]:
        return 1.0
    if len(names) == 1:
        return math.inf
    student = student_quantile(1 - TAIL, len(names) - 1) / Z_OF_90_PERCENT_BAND
    squared = student**2 * (1 + 1 / len(names))
    mean = np.average(errors, weights=weight)
    total = np.average((errors - mean) ** 2, weights=weight)
    between = 0.0
    for name in names:
        own = groups == name
        own_mean = np.average(errors[own], weights=weight[own])
        between += weight[own].sum() / weight.sum() * (own_mean - mean) ** 2
    share = min(1.0, float(between / total))
    return math.sqrt(1 + share * (squared - 1))


def widest(target: str) -> float:
    """Return by how much the band of a target of a scheme grows at most by few groups."""
    return MOST_WIDER_OF.get(target, MOST_WIDER)


def of_load(batch: Batch, load: str) -> Array:
    """Whether each row is of a kind of load, by one engine where the load names it."""
    kind, _, engine = load.partition(" ")
    here = np.isin(batch.group, LOADS[kind])
    return here & (engines(batch) == engine) if engine else here


def engines(batch: Batch) -> Array:
    """Return the kind of the engine of each row."""
    return np.array([sample.setup.engine.kind for sample in batch.samples])


def own_engines(batch: Batch, here: Array) -> list[str]:
    """Return the engines with a band of their own among these rows, which are of one load."""
    found = Counter(engines(batch)[here].tolist())
    return sorted(x for x, n in found.items() if n >= FEWEST_OF_ENGINE)


def loads(batch: Batch) -> list[str]:
    """Return the kinds of load that bands are of, of all engines and of single ones."""
    sure = (batch.quality == "A") & ~loose(batch)
    return [
        *LOADS,
        *(
            f"{kind} {engine}"
            for kind in LOADS
            for engine in own_engines(batch, sure & of_load(batch, kind))
        ),
    ]


def loose(batch: Batch) -> Array:
    """Whether each row has drafts or prefill workers of its own, whose settings are unstated."""
    return batch.speculative | (batch.split > 0)


def sources_of_loads(batch: Batch) -> dict[tuple[str, str], set[str]]:
    """Return the sources of the rows of quality A of each vendor and kind of load."""
    found = defaultdict(set)
    for sample in batch.samples:
        if sample.row["quality"] == "A":
            vendor = sample.setup.node.accelerator.vendor
            found[vendor, sample.group].add(sample.row["source_group"])
    return found


def of_few_sources(batch: Batch) -> Array:
    """Whether each row is of a vendor of which no load was measured by several sources.

    With its source left out nothing of such a vendor is left in a load.
    """
    known = {
        vendor
        for (vendor, _), sources in sources_of_loads(batch).items()
        if len(sources) > 1
    }
    return np.array(
        [x.setup.node.accelerator.vendor not in known for x in batch.samples]
    )


def few_rows(
    batch: Batch, fitted: Scheme, schemes: Iterable[Scheme]
) -> Iterator[dict[str, Any]]:
    """Yield the rows of vendors and releases: left out, and the same rows in the fit."""
    by_name = {scheme.name: scheme for scheme in schemes}
    source, release = by_name["source"], by_name[RELEASE]
    for kind, left_out, here in (
        ("vendor", source, of_few_sources(batch)),
        ("release", release, release.groups != ""),
    ):
        sure = here & (batch.quality == "A") & ~loose(batch)
        for scheme, new in ((left_out, kind), (fitted, f"{kind} fitted")):
            for target in TARGETS:
                for load in loads(batch):
                    ratio = scheme.ratio(TARGETS[target])
                    rows_of = sure & of_load(batch, load) & np.isfinite(ratio)
                    if rows_of.sum() >= FEWEST_FEW:
                        low, high, cells = reach(batch, ratio, rows_of)
                        number = int(rows_of.sum())
                        yield _table_row(
                            (target, load, new), (low, high), cells, number
                        )


def rows(batch: Batch, schemes: Iterable[Scheme]) -> Iterator[dict[str, Any]]:
    """Yield the rows of the table: rows of quality A, and for loose settings all that are so."""
    schemes = list(schemes)
    for scheme in (x for x in schemes if x.name != RELEASE):
        for target in TARGETS:
            for load in loads(batch):
                here = of_load(batch, load)
                sure = here & (batch.quality == "A") & ~loose(batch)
                new = "none" if scheme.name == WHOLE else scheme.name
                yield from _row(batch, scheme, (target, load, new), sure)
                if scheme.name == "source":
                    yield from _row(
                        batch,
                        scheme,
                        (target, load, "loose"),
                        here & loose(batch),
                    )
    yield from few_rows(batch, schemes[0], schemes)
    yield from apart_rows()


def apart_rows() -> Iterator[dict[str, Any]]:
    """Yield the times per token of architectures that are kept apart, deployments left out.

    Of first tokens and of throughput the rows support nothing of their own (docs/decisions/0108).
    """
    batch, scheme = apart.load(), apart.left_out()
    kinds = apart.architectures()
    loops = apart.scored(batch) & (batch.group == "closed")
    for kind in sorted(set(kinds)):
        here = loops & (kinds == kind)
        measured = here & np.isfinite(scheme.found.tpot)
        cells = {batch.samples[x].cell for x in np.flatnonzero(measured)}
        if len(cells) >= FEWEST:
            yield from _row(
                batch, scheme, ("tpot", f"closed {kind}", "source"), here
            )


def _row(
    batch: Batch, scheme: Scheme, name: tuple[str, str, str], here: Array
) -> Iterator[dict[str, Any]]:
    ratio = scheme.ratio(TARGETS[name[0]])
    number = int(np.sum(here & np.isfinite(ratio)))
    if number < FEWEST:
        return
    low, high, cells = spread(
        batch, ratio, here, scheme.groups, widest(TARGETS[name[0]])
    )
    yield _table_row(name, (low, high), cells, number)


def _table_row(
    name: tuple[str, str, str],
    quantiles: tuple[float, float],
    cells: int,
    number: int,
) -> dict[str, Any]:
    return {
        "target": name[0],
        "load": name[1],
        "new": name[2],
        "low": f"{quantiles[0]:.3f}",
        "high": f"{quantiles[1]:.3f}",
        "cells": cells,
        "rows": number,
        "source": SOURCE,
        "as_of": AS_OF,
    }


def covered(batch: Batch) -> Iterator[dict[str, Any]]:
    """Yield what is measured, with its number of rows."""
    setups = [sample.setup for sample in batch.samples]
    kinds: Mapping[str, list[str]] = {
        "family": [x.llm.family for x in setups],
        "GPU": [x.node.accelerator.accelerator for x in setups],
        "architecture": [x.node.accelerator.architecture for x in setups],
        "engine": [x.engine.kind for x in setups],
        "load": [
            load_of_engine(load, x.engine.kind)
            for load in LOADS
            for x, is_sure in zip(
                setups,
                of_load(batch, load) & (batch.quality == "A"),
                strict=True,
            )
            if is_sure
        ],
        "pipeline": [x.engine.kind for x in setups if x.layout.pp > 1],
        # A format that only rows of quality B have is as good as unmeasured.
        "precision": [
            x.layout.precision
            for x, quality in zip(setups, batch.quality, strict=True)
            if quality == "A"
        ],
        "vendor": [
            x.node.accelerator.vendor
            for x, is_few in zip(setups, of_few_sources(batch), strict=True)
            if not is_few
        ],
    }
    in_fit = set(kinds["architecture"])
    others = [x for x in apart.architectures() if x not in in_fit]
    kinds = {**kinds, APART: others}
    for kind, names in kinds.items():
        for name, number in sorted(Counter(names).items()):
            yield {
                "kind": kind,
                "name": name,
                "rows": number,
                "source": SOURCE,
                "as_of": AS_OF,
            }


def ranges(batch: Batch) -> Iterator[dict[str, Any]]:
    """Yield the least and the most that was measured of what may lie outside."""
    setups = [sample.setup for sample in batch.samples]
    features: Mapping[str, list[float]] = {
        "prompt": [x.demand.prompt_tokens for x in setups],
        "answer": [x.demand.answer_tokens for x in setups],
        "active": [x.llm.active_params for x in setups],
        "accelerators": [x.layout.accelerators for x in setups],
        "batch": [
            max(1.0, x.demand.user_count / x.replica_count) for x in setups
        ],
    }
    for name, found in features.items():
        low, high = (f"{x:.5g}" for x in (min(found), max(found)))
        yield _range_row(name, low, high)
    for name, years in _release_years(batch).items():
        yield _range_row(name, f"{min(years):.4f}", f"{max(years):.4f}")


def _range_row(name: str, low: str, high: str) -> dict[str, Any]:
    return {
        "feature": name,
        "low": low,
        "high": high,
        "source": SOURCE,
        "as_of": AS_OF,
    }


def _release_years(batch: Batch) -> dict[str, list[float]]:
    """Return the ages of the releases of each engine, of rows of quality A."""
    found = defaultdict(list)
    for sample in batch.samples:
        if sample.row["quality"] == "A":
            engine = sample.setup.engine
            found[f"release {engine.kind}"].append(engine.software_year)
    return dict(sorted(found.items()))


def save(batch: Batch, schemes: Iterable[Scheme]) -> None:
    """Write the tables whole."""
    tables = {
        "bands": rows(batch, schemes),
        "covered": covered(batch),
        "ranges": ranges(batch),
    }
    for name, found in tables.items():
        write(f"{name}.csv", list(found))

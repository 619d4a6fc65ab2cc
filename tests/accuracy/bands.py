"""Bands from the cross-validations, and the list of what the measurements cover."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import numpy as np

from planner.numeric import Z_OF_90_PERCENT_BAND, student_quantile
from tests.accuracy.cross import Scheme
from tests.accuracy.least import Array, write
from tests.accuracy.sample import Batch

SOURCE: Final = "cross-validation on published measurements (tests/data/truth)"
AS_OF: Final = "2026-11"
# Kinds of load, with the engine when it is known: what a plan starts is vLLM.
LOADS: Final[Mapping[str, tuple[tuple[str, ...], str]]] = {
    "offline": (("offline",), ""),
    "static": (("static",), ""),
    "burst": (("burst",), ""),
    "closed": (("closed",), ""),
    "open": (("open", "server"), ""),
    "closed vllm": (("closed",), "vllm"),
}
# Targets of the table, and of the schemes.
TARGETS: Final = {
    "throughput": "throughput",
    "tpot": "tpot",
    "ttft": "ttft",
    "served": "within",
}
FEWEST: Final = 8
TAIL: Final = 0.05
MOST_WIDER: Final = 1.25  # by few groups: a third or fourth source is not a surprise without end


def spread(
    batch: Batch, ratio: Array, rows: Array, groups: Array
) -> tuple[float, float, int]:
    """5 % and 95 % quantiles of ln(measured / predicted), cells counting equally, and the cells.

    Few cells say little: the half width grows by 2 / cells. Few groups say little of the next
    one: it grows too by `group_factor`. `groups` are what was left out together.
    """
    places = np.flatnonzero(rows & np.isfinite(ratio))
    cells = [batch.samples[i].cell for i in places]
    count = Counter(cells)
    weight = np.array([1 / count[cell] ** 0.5 for cell in cells])
    order = np.argsort(-ratio[places])
    share = (np.cumsum(weight[order]) - weight[order] / 2) / weight.sum()
    low, high = (
        float(np.interp(q, share, -ratio[places][order]))
        for q in (TAIL, 1 - TAIL)
    )
    factor = group_factor(-ratio[places], weight, groups[places])
    half = factor * (high - low) * (1 / 2 + 1 / len(count))
    middle = (low + high) / 2
    return middle - half, middle + half, len(count)


def group_factor(errors: Array, weight: Array, groups: Array) -> float:
    """Return how much wider a band is for a group that is none of these, at most MOST_WIDER.

        sqrt(1 + between * (f^2 - 1)),   f = t(0.95, groups - 1) / z(0.95) * sqrt(1 + 1 / groups)

    `between` is the share of the variance that lies between groups: only of that do few groups
    say little. One group is all rows, of which nothing was left out.
    """
    names = sorted(set(groups))
    if len(names) == 1:
        return 1.0
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
    return min(MOST_WIDER, math.sqrt(1 + share * (squared - 1)))


def of_load(batch: Batch, load: str) -> Array:
    """Whether each row is of one of the kinds of load."""
    groups, engine = LOADS[load]
    return np.isin(batch.group, groups) & np.array(
        [engine in ("", s.setup.engine.kind) for s in batch.samples]
    )


def loose(batch: Batch) -> Array:
    """Whether each row has drafts or prefill workers of its own, whose settings are unstated."""
    return batch.speculative | (batch.split > 0)


def rows(batch: Batch, schemes: Iterable[Scheme]) -> Iterator[dict[str, Any]]:
    """Yield the rows of the table: rows of quality A, and for loose settings all that are so."""
    for scheme in schemes:
        for target in TARGETS:
            for load in LOADS:
                here = of_load(batch, load)
                sure = here & (batch.quality == "A") & ~loose(batch)
                new = "none" if scheme.name == "all" else scheme.name
                yield from _row(batch, scheme, (target, load, new), sure)
                if scheme.name == "source":
                    yield from _row(
                        batch,
                        scheme,
                        (target, load, "loose"),
                        here & loose(batch),
                    )


def _row(
    batch: Batch, scheme: Scheme, name: tuple[str, str, str], here: Array
) -> Iterator[dict[str, Any]]:
    ratio = scheme.ratio(TARGETS[name[0]])
    number = int(np.sum(here & np.isfinite(ratio)))
    if number < FEWEST:
        return
    low, high, cells = spread(batch, ratio, here, scheme.groups)
    yield {
        "target": name[0],
        "load": name[1],
        "new": name[2],
        "low": f"{low:.3f}",
        "high": f"{high:.3f}",
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
        "pipeline": [x.engine.kind for x in setups if x.layout.pp > 1],
        # A format that only rows of quality B have is as good as unmeasured.
        "precision": [
            x.layout.precision
            for x, quality in zip(setups, batch.quality, strict=True)
            if quality == "A"
        ],
    }
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
        yield {
            "feature": name,
            "low": low,
            "high": high,
            "source": SOURCE,
            "as_of": AS_OF,
        }


def save(batch: Batch, schemes: Iterable[Scheme]) -> None:
    """Write the tables whole."""
    tables = {
        "bands": rows(batch, schemes),
        "covered": covered(batch),
        "ranges": ranges(batch),
    }
    for name, found in tables.items():
        write(f"{name}.csv", list(found))

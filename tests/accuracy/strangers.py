"""Bands of the program, on rows of vendors and releases that a fit had not seen.

Unlike `score.coverage` they are those that an estimate states: a vendor of one source is left out
with it, and a release with all newer ones of its engine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from planner.perf.serving.error_band import (
    assess_novelty,
    error_band,
    load_of_engine,
)
from tests.accuracy.bands import TARGETS, loose, of_few_sources
from tests.accuracy.score import Coverage

if TYPE_CHECKING:
    from tests.accuracy.cross import Scheme
    from tests.accuracy.least import Array
    from tests.accuracy.sample import Batch, Sample

NUMBERS: Final = ("throughput", "tpot", "ttft")


def stated(
    batch: Batch, scheme: Scheme, target: str, here: Array, *, newer: bool
) -> Coverage:
    """Return which rows are inside the band that an estimate of each states."""
    ratio = scheme.ratio(TARGETS[target])
    sure = here & (batch.quality == "A") & ~loose(batch) & np.isfinite(ratio)
    inside: list[bool] = []
    widths: list[float] = []
    for place in np.flatnonzero(sure):
        low, high = _band(batch.samples[place], target, newer=newer)
        inside.append(bool(low <= np.exp(-ratio[place]) <= high))
        widths.append(high / low)
    return Coverage(
        float(np.mean(inside)), float(np.median(widths)), len(inside)
    )


def of_vendors(batch: Batch, source: Scheme, target: str) -> Coverage:
    """Coverage of vendors of one source, each predicted without it."""
    return stated(batch, source, target, of_few_sources(batch), newer=False)


def of_releases(batch: Batch, release: Scheme, target: str) -> Coverage:
    """Coverage of the newest releases of each engine, predicted without them."""
    return stated(batch, release, target, release.groups != "", newer=True)


def _band(sample: Sample, target: str, *, newer: bool) -> tuple[float, float]:
    setup = sample.setup
    novelties, basis = assess_novelty(
        setup.llm,
        setup.layout,
        setup.node.accelerator,
        setup.engine.kind,
        unmeasured_release=newer,
    )
    load_kind = load_of_engine(setup.demand.load_kind, setup.engine.kind)
    band = error_band(target, load_kind, novelties, basis)
    return band.low, band.high

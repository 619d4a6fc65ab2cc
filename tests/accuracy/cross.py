"""Leaves out one model family, one accelerator or one source at a time, and predicts it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np

from planner.perf.serving import load_shape, served_rate
from planner.perf.serving.served_rate import LatencyLimits
from tests.accuracy.fit import Outcome, outcome, problem, server
from tests.accuracy.least import Array, solve
from tests.accuracy.sample import Batch, Sample, read

TRUTH: Final = Path(__file__).parents[1] / "data" / "truth" / "inference.csv"
HALVINGS: Final = 40
# What is told of a rate, beside the outcome of a load.
RATES: Final = ("served", "within", "pace")
# Schemes of bars, margins and families; the others only judge and widen bands.
USUAL: Final = ("family", "GPU", "source")
LEAVES: Final[Mapping[str, Callable[[Sample], str]]] = {
    "family": lambda s: s.setup.llm.family,
    "GPU": lambda s: s.row["gpu"],
    "source": lambda s: s.row["source_group"],
    "engine": lambda s: s.setup.engine.kind,
    "maker": lambda s: s.setup.node.accelerator.architecture,
}
# The newest releases of one engine are left out of its rows alone: what is newer of other engines
# says nothing of it.
RELEASE: Final = "release"
WHOLE: Final = (
    "all"  # the scheme that leaves nothing out, and the group of all its rows
)
SCHEMES: Final = (*LEAVES, RELEASE)
# How far back the newest releases of an engine reach, in years: there the rows of one are few.
NEWEST_YEARS: Final = 0.25


@dataclass(frozen=True, slots=True)
class Scheme:
    """Log ratios of all rows when their own group was left out.

    `served` is that of the rate at the measured time per token, `within` that of the highest rate
    within both limits of a row, and `pace` that of the pace of a server which keeps both limits at
    the measured rate.

    `fits` has the parameters that were fitted without each group.
    """

    name: str
    groups: Array
    found: Outcome
    served: Array
    within: Array
    pace: Array
    fits: Mapping[str, Array]

    def ratio(self, target: str) -> Array:
        """Log of predicted over measured for each row, by the name of a field."""
        holder = self if target in RATES else self.found
        found: Array = getattr(holder, target)
        return found

    def by_fit(self, value: Callable[[Array], Array]) -> Array:
        """What `value` gives for the rows of each group with the parameters of its fit.

        The last axis is that of the rows.
        """
        found = np.full(len(self.groups), np.nan)
        for group, parameters in self.fits.items():
            found = np.where(self.groups == group, value(parameters), found)
        return found


def load() -> tuple[Batch, list[tuple[dict[str, str], str]]]:
    """Read the measurements that the project carries, and what is refused of them."""
    samples, refused = read(TRUTH.read_text(encoding="utf-8"))
    return Batch(samples), refused


def served(batch: Batch, parameters: Array) -> Array:
    """Log ratio of the rate at which a tuned server reaches its measured time per token.

    Near saturation time per token hardly says what was wrong; the rate does.
    """
    c = batch.coefficients(parameters)
    s = server(batch, c)
    low = np.full(len(batch.samples), 1e-3)
    high = np.full(len(batch.samples), 8192.0)
    wanted = np.where(batch.tpot > 0, batch.tpot, np.nan)
    for _ in range(HALVINGS):
        middle = np.sqrt(low * high)
        below = c.server_time * load_shape.tpot_at_batch(s, middle) < wanted
        low = np.where(below, middle, low)
        high = np.where(below, high, middle)
    rate = low / (batch.answer * wanted)
    return np.where(batch.group == "server", np.log(rate / batch.rate), np.nan)


def within_limits(batch: Batch, parameters: Array) -> Array:
    """Log ratio of the highest rate within both limits over the rate that was measured so."""
    return _log_rate(batch, parameters, lambda _: batch.limits)


def pace_within_limits(batch: Batch, parameters: Array) -> Array:
    """Log ratio of the predicted pace over the one that keeps both limits at the measured rate.

    With b requests under way a server has the measured rate at the pace measured / rate(b). The
    more there are, the less of that pace it needs, and the less it keeps of the limits: the most
    that keep them tell the pace.
    """
    return _log_rate(
        batch,
        parameters,
        lambda rate: served_rate.limits_at(batch.limits, batch.rate / rate),
    )


def _log_rate(
    batch: Batch,
    parameters: Array,
    limits_of: Callable[[Array], LatencyLimits],
) -> Array:
    """Log ratio of the rate of the largest batch within limits over the measured one.

    `limits_of` gives the limits by the rate of a batch.
    """
    s = server(batch, batch.coefficients(parameters))
    low: Array = np.full(len(batch.samples), served_rate.LEAST_BATCH)
    high: Array = s.max_batch
    for _ in range(HALVINGS):
        middle: Array = (low + high) / 2
        limits = limits_of(served_rate.rate_at_batch(s, middle))
        kept = served_rate.limit_slack(s, middle, limits) >= 0
        low = np.where(kept, middle, low)
        high = np.where(kept, high, middle)
    rate = served_rate.rate_at_batch(s, low)
    here = (batch.group == "server") & np.isfinite(batch.limits.ttft_p99_s)
    return np.where(here, np.log(rate / batch.rate), np.nan)


def whole(batch: Batch, parameters: Array) -> Scheme:
    """Score all rows with parameters that were fitted to all of them."""
    groups = np.array([WHOLE] * len(batch.samples))
    with np.errstate(all="ignore"):
        return Scheme(
            WHOLE,
            groups,
            outcome(batch, parameters),
            served(batch, parameters),
            within_limits(batch, parameters),
            pace_within_limits(batch, parameters),
            {WHOLE: parameters},
        )


def newest_releases(batch: Batch) -> Array:
    """Return the engine of each row of its newest releases, and nothing for the others."""
    engines = np.array([LEAVES["engine"](sample) for sample in batch.samples])
    years = np.array([s.setup.engine.software_year for s in batch.samples])
    groups = np.full(len(engines), "", dtype=engines.dtype)
    for engine in set(engines):
        own = engines == engine
        newest = years[own & (batch.quality == "A")].max()
        groups[own & (years >= newest - NEWEST_YEARS)] = engine
    return groups


def leave(batch: Batch, name: str) -> Scheme:
    """Predict each group with parameters that were fitted without it; rows of none are NaN."""
    groups = (
        newest_releases(batch)
        if name == RELEASE
        else np.array([LEAVES[name](sample) for sample in batch.samples])
    )
    scored = sorted(
        {
            group
            for group, quality in zip(groups, batch.quality, strict=True)
            if group and quality == "A"
        }
    )
    with ProcessPoolExecutor(
        os.cpu_count(), initializer=_remember, initargs=(batch,)
    ) as pool:
        fits = list(pool.map(_without, [groups != g for g in scored]))
    empty = np.full(len(groups), np.nan)
    by_group = dict(zip(scored, fits, strict=True))
    result = Scheme(
        name,
        groups,
        Outcome(empty, empty, empty),
        *(empty, empty, empty),
        by_group,
    )
    for group, fitted in by_group.items():
        result = _merge(result, whole(batch, fitted), groups == group)
    return result


_BATCH: list[Batch] = []


def _remember(batch: Batch) -> None:
    _BATCH.append(batch)


def _without(train: Array) -> Array:
    return solve(problem(_BATCH[0], train))


def _merge(into: Scheme, found: Scheme, rows: Array) -> Scheme:
    parts = {
        name: np.where(
            rows, getattr(found.found, name), getattr(into.found, name)
        )
        for name in ("throughput", "tpot", "ttft")
    }
    served, within, pace = (
        np.where(rows, found.ratio(name), into.ratio(name)) for name in RATES
    )
    return replace(
        into,
        found=Outcome(**parts),
        served=served,
        within=within,
        pace=pace,
    )

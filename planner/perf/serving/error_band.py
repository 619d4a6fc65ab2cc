"""90 % error bands of predictions, from measurements that the fit had not seen.

A band is a pair of factors on the predicted number; of rates within limits it is one on the pace
of the server that keeps them. The base width is that of left-out sources, or of rows whose
settings are unstated. An engine that was measured enough under a kind of load has its own errors,
others have those of all engines. Widths are half widths in ln:

    width^2 = base^2
            + sum over new (family, GPU, engine, maker) of (left-out width^2 - fitted width^2)
            + number of new (pipeline, precision) * the larger of the first two differences
            + (doublings beyond the measured ranges * width of one doubling)^2
            + sum over new (vendor, release) of (left-out reach^2 - fitted reach^2)

An engine has few families and releases. Where its own rows show no difference, that of all engines
counts.

A pipeline of an engine that nobody measured with one, and weights in a format that nobody
measured, cannot be left out of a fit: each counts as much as the worse of the two kinds that can.

A vendor whose every load is known from one source, and a release beyond those of the fit, are few:
they err to one side. So their reach counts, which is the larger distance from the middle of the
base to the 5 and 95 % quantiles of the same rows, left out and in the fit.

An architecture without measurements rests on its data sheet; its band is wider by the constant
`unseen`, what a vendor adds excepted. One that was measured, but of which no row is in the fit, is
kept apart: it has its own errors where those hold when each deployment is left out, and else the
same band as if nobody had measured it.
"""

from __future__ import annotations

import math
from functools import cache, partial
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from msgspec import Struct

from planner.facts import table
from planner.facts.accelerator import SIXTEEN_BIT
from planner.numeric import Z_OF_90_PERCENT_BAND, normal_quantile
from planner.perf.common.constant import constant
from planner.perf.serving.engine import engine_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from planner.facts.accelerator import Accelerator
    from planner.facts.llm import Llm
    from planner.perf.common.layout import ReplicaLayout
    from planner.perf.serving.deployment import LoadKind
    from planner.perf.serving.engine import ServingEngine

Basis: TypeAlias = Literal["measured", "calibrated", "physics", "spec"]
FALLBACK_LOADS: Final = {
    "throughput": "offline",
    "tpot": "closed",
    "ttft": "closed",
    "served": "open",
}
NOVELTY_KINDS: Final = (
    "none",
    "source",
    "family",
    "GPU",
    "engine",
    "maker",
    "loose",
    "vendor",
    "vendor fitted",
    "release",
    "release fitted",
)
LEFT_OUT_KINDS: Final = (
    "family",
    "GPU",
)  # what the cross-validations leave out
# Left out too, where a number has enough of them: engines, and makers' architectures.
STRANGE_KINDS: Final = ("engine", "maker")
# Few of either can be left out, so the same rows in the fit are what they are compared with.
FEW_KINDS: Final = {"vendor": "vendor fitted", "release": "release fitted"}
# An architecture whose rows are kept apart: no coefficient of hardware was fitted to them.
APART: Final = "apart"
# What is new about one, all of which was new when its own errors were measured.
NEW_APART: Final = frozenset({APART, "vendor", "maker", "GPU", "engine"})
MONTHS: Final = 12  # of a year: releases of one month are of one age
UNTESTED_KINDS: Final = ("pipeline", "precision")  # what they cannot leave out


class Band(Struct, frozen=True):
    """Factors on a prediction that contain 90 % of measurements.

    low    5 % quantile of measured / predicted
    high   95 % quantile of measured / predicted
    basis  what the prediction rests on
    """

    low: float
    high: float
    basis: Basis

    def quantile(self, probability: float) -> float:
        """Return the factor that `probability` of the measurements do not exceed.

        The factors are taken as lognormal with 5 % quantile `low` and 95 % quantile `high`.
        """
        midpoint = math.sqrt(self.low * self.high)
        # Half the band in ln is z(0.95) standard deviations.
        log_sigma = math.log(self.high / self.low) / 2 / Z_OF_90_PERCENT_BAND
        return midpoint * math.exp(normal_quantile(probability) * log_sigma)


def load_of_engine(load_kind: str, engine_kind: str) -> str:
    """Return the kind of load that has the errors of one engine, where it has rows of its own."""
    return f"{load_kind} {engine_kind}"


def load_of_accelerator(
    target: str,
    load_kind: str,
    engine_kind: str,
    accelerator: Accelerator,
    novelties: frozenset[str],
) -> tuple[str, frozenset[str]]:
    """Return the kind of load that has the errors of a number, and what is new beyond it.

    An architecture that is kept apart has its own, of all engines, where the table has it.
    """
    own_load = load_of_engine(load_kind, accelerator.architecture)
    has_own = (target, own_load, "source") in _band_rows()
    if has_own and APART in novelties and "loose" not in novelties:
        return own_load, novelties - NEW_APART
    return load_of_engine(load_kind, engine_kind), novelties


@cache
def _band_rows() -> dict[tuple[str, str, str], tuple[float, float]]:
    columns: table.Columns = {
        "target": table.nonempty_text,
        "load": table.nonempty_text,
        "new": table.one_of(*NOVELTY_KINDS),
        "low": table.real_between(-5, 5),
        "high": table.real_between(-5, 5),
        "cells": table.integer_between(1, 10_000),
        "rows": table.integer_between(1, 100_000),
        **table.SOURCE_COLUMNS,
    }
    csv_rows = table.load_rows("planner.perf", "bands.csv", columns)
    return {
        (csv_row["target"], csv_row["load"], csv_row["new"]): (
            csv_row["low"],
            csv_row["high"],
        )
        for csv_row in csv_rows
    }


@cache
def measured_scope() -> frozenset[tuple[str, str]]:
    """Return what the measurements cover, as (kind, name).

    Kinds are family, GPU, architecture, engine, load (of an engine: see `load_of_engine`),
    precision (of the weights, 16 bit being bf16), pipeline: the kinds of engines that were
    measured with several stages, vendor: those of which several sources measured one kind of
    load, and apart: architectures of which no row is in the fit.
    """
    return frozenset(_measured_rows())


def rows_apart(accelerator: Accelerator) -> int:
    """Return how many published rows there are of an architecture that is kept apart, else 0."""
    return _measured_rows().get((APART, accelerator.architecture), 0)


@cache
def _measured_rows() -> dict[tuple[str, str], int]:
    columns = {
        "kind": table.nonempty_text,
        "name": table.nonempty_text,
        "rows": table.integer_between(1, 100_000),
        **table.SOURCE_COLUMNS,
    }
    csv_rows = table.load_rows("planner.perf", "covered.csv", columns)
    return {
        (csv_row["kind"], csv_row["name"]): csv_row["rows"]
        for csv_row in csv_rows
    }


@cache
def _measured_ranges() -> dict[str, tuple[float, float]]:
    columns = {
        "feature": table.nonempty_text,
        "low": table.real_between(0, 1e15),
        "high": table.real_between(0, 1e15),
        **table.SOURCE_COLUMNS,
    }
    csv_rows = table.load_rows("planner.perf", "ranges.csv", columns)
    return {
        csv_row["feature"]: (csv_row["low"], csv_row["high"])
        for csv_row in csv_rows
    }


def is_unmeasured_release(serving_engine: ServingEngine) -> bool:
    """Return whether a release is of an earlier or a later month than all that are known.

    Known are those that were measured, and the one that the engine's own row describes.
    """
    month = _month_number(serving_engine.software_year)
    known_months = [
        _month_number(year)
        for year in (
            *_measured_ranges().get(f"release {serving_engine.kind}", ()),
            *(
                engine_row["year"]
                for engine_row in engine_rows().values()
                if engine_row["kind"] == serving_engine.kind
            ),
        )
    ]
    return not min(known_months) <= month <= max(known_months)


def _month_number(year: float) -> int:
    # A month that begins is 1 / 12 of a year, which no float is exactly.
    return math.floor(round(year * MONTHS, 2))


def extrapolation(**features: float) -> tuple[int, str]:
    """Return the most doublings beyond a measured range, and the feature.

    doublings = ceil(log2(max(low / value, value / high, 1)))
    """
    extrapolations = []
    for feature_name, feature_value in features.items():
        range_low, range_high = _measured_ranges()[feature_name]
        extrapolations.append(
            (
                math.ceil(
                    # Distance outside the range in doublings, 0 inside it.
                    math.log2(
                        max(
                            range_low / feature_value,
                            feature_value / range_high,
                            1,
                        )
                    )
                ),
                feature_name,
            )
        )
    return max(extrapolations)


@cache
def error_band(
    target: str,
    load_kind: str,
    novelties: frozenset[str],
    basis: Basis,
    doublings: int = 0,
) -> Band:
    """Return the band of throughput, tpot, ttft or the pace of a served rate, by the kind of load.

    `load_kind` may name an engine, or an architecture: see `load_of_accelerator`.
    """
    band_rows = _band_rows()
    if "loose" in novelties:
        # Settings such as drafts or split pools that the row does not state, by any engine.
        load_kind = load_kind.partition(" ")[0]
    load_kind = _known_load(target, load_kind, "source")
    log_low, log_high = band_rows[target, load_kind, "source"]
    if "loose" in novelties:
        log_low, log_high = band_rows.get(
            (target, load_kind, "loose"), (log_low, log_high)
        )
    squared_width = ((log_high - log_low) / 2) ** 2
    # Independent errors add in quadrature: the excess over the full fit.
    squared_width += novelty_excess(
        novelties,
        {
            kind: _told_excess(_width_excess, target, load_kind, kind)
            for kind in LEFT_OUT_KINDS
        },
    )
    squared_width += sum(
        _told_excess(_width_excess, target, load_kind, kind)
        for kind in STRANGE_KINDS
        if kind in novelties and (target, load_kind, kind) in band_rows
    )
    # Extrapolation: the width grows with each doubling.
    squared_width += (doublings * constant("beyond", target)) ** 2
    # Unmeasured architecture: 1.5 times the width.
    squared_width *= unseen_factor(novelties, basis) ** 2
    log_middle = (log_low + log_high) / 2
    # A vendor is left out with its architectures: nothing of them is unseen beyond that.
    few_excess = partial(_few_excess, log_middle)
    squared_width += sum(
        _told_excess(few_excess, target, load_kind, kind)
        for kind in sorted(novelties & FEW_KINDS.keys())
    )
    half_width = math.sqrt(squared_width)
    # Widening keeps the median error of the base band.
    return Band(
        math.exp(log_middle - half_width),
        math.exp(log_middle + half_width),
        basis,
    )


def unseen_factor(novelties: frozenset[str], basis: Basis) -> float:
    """Return how much wider the errors of an architecture are of which no row is in the fit."""
    is_unseen = basis == "spec" or APART in novelties
    return constant("unseen") if is_unseen else 1.0


def novelty_excess(
    novelties: frozenset[str], left_out_excess: Mapping[str, float]
) -> float:
    """Return the sum of the excesses of what is new, none of them below 0.

    `left_out_excess` has that of each kind that was left out. A kind that cannot be left out takes
    the largest of them.
    """
    largest_excess = max(0.0, *left_out_excess.values())
    return sum(
        max(0.0, left_out_excess[kind])
        for kind in sorted(novelties & left_out_excess.keys())
    ) + largest_excess * len(novelties & set(UNTESTED_KINDS))


def unstated_excess() -> float:
    """Return how much larger a squared half width is where settings are unstated, ln^2.

    That of the time per token in closed loops of all engines, without that of other sources.
    """
    unstated, stated = (
        _half_width("tpot", "closed", kind) for kind in ("loose", "source")
    )
    return max(0.0, unstated**2 - stated**2)


def with_draft(band: Band) -> Band:
    """Return the band of a deployment with a draft, by that of a benchmark without it."""
    log_middle = math.log(band.low * band.high) / 2
    half_width = math.sqrt(
        (math.log(band.high / band.low) / 2) ** 2 + unstated_excess()
    )
    return Band(
        math.exp(log_middle - half_width),
        math.exp(log_middle + half_width),
        "physics",
    )


def _told_excess(
    excess: Callable[[str, str, str], float],
    target: str,
    load_kind: str,
    kind: str,
) -> float:
    """Return by how much a novelty makes a band wider, ln^2; never below 0.

    An engine has few families and releases. Where leaving them out shows nothing, those of all
    engines tell it.
    """
    own = excess(target, load_kind, kind)
    if own > 0:
        return own
    return max(0.0, excess(target, load_kind.partition(" ")[0], kind))


def _width_excess(target: str, load_kind: str, kind: str) -> float:
    """Return how much larger the squared half width of left-out rows is than that in the fit."""
    return (
        _half_width(target, load_kind, kind) ** 2
        - _half_width(target, load_kind, "none") ** 2
    )


def _few_excess(
    log_middle: float, target: str, load_kind: str, kind: str
) -> float:
    """Return how much larger the squared reach of left-out rows is than that in the fit."""
    band_rows = _band_rows()
    load_kind = _known_load(target, load_kind, kind)
    left_out, fitted = (
        max(high - log_middle, log_middle - low)
        for low, high in (
            band_rows[target, load_kind, kind],
            band_rows[target, load_kind, FEW_KINDS[kind]],
        )
    )
    return left_out**2 - fitted**2


def _known_load(target: str, load_kind: str, new: str) -> str:
    """Return the nearest kind of load with rows of its own: without its engine, else usual."""
    without_engine = load_kind.partition(" ")[0]
    return next(
        (
            known
            for known in (load_kind, without_engine)
            if (target, known, new) in _band_rows()
        ),
        FALLBACK_LOADS[target],
    )


def _half_width(target: str, load_kind: str, novelty: str) -> float:
    load_kind = _known_load(target, load_kind, novelty)
    log_low, log_high = _band_rows()[target, load_kind, novelty]
    return (log_high - log_low) / 2


def assess_novelty(
    llm: Llm,
    layout: ReplicaLayout,
    accelerator: Accelerator,
    engine_kind: str,
    *,
    load_kind: LoadKind | None = None,
    unstated_settings: bool = False,
    unmeasured_release: bool = False,
) -> tuple[frozenset[str], Basis]:
    """Return what is new about a configuration, and the basis of its prediction.

    spec        no measurement of this architecture
    physics     something else is new: family, GPU, engine (at all, or under a load of this kind
                where `load_kind` tells it), format of the weights, several stages on an engine
                that was measured with one only, a vendor of which a single source measured each
                load, a release of the engine beyond those that were
                measured, or unstated settings, such as a draft whose
                guesses are right as often as is assumed; or all that was measured of the
                architecture is kept apart
    calibrated  all of these are among the measurements
    """
    measured_names = measured_scope()
    novelties = set()
    # Both formats of 16 bit move as many bytes and multiply as fast.
    weight_format = (
        "bf16" if layout.precision in SIXTEEN_BIT else layout.precision
    )
    if ("precision", weight_format) not in measured_names:
        novelties.add("precision")
    if layout.pp > 1 and ("pipeline", engine_kind) not in measured_names:
        novelties.add("pipeline")
    if ("family", llm.family) not in measured_names:
        novelties.add("family")
    if ("GPU", accelerator.accelerator) not in measured_names:
        novelties.add("GPU")
    own_load = load_of_engine(load_kind or "", engine_kind)
    if ("engine", engine_kind) not in measured_names or (
        load_kind and ("load", own_load) not in measured_names
    ):
        novelties.add("engine")
    if unstated_settings:
        novelties.add("loose")
    if unmeasured_release:
        novelties.add("release")
    is_new_vendor = ("vendor", accelerator.vendor) not in measured_names
    if is_new_vendor:
        novelties.add("vendor")
    if ("architecture", accelerator.architecture) not in measured_names:
        # All architectures of a vendor are left out with it.
        novelties.add("vendor" if is_new_vendor else "maker")
        if (APART, accelerator.architecture) not in measured_names:
            return frozenset(novelties), "spec"
        novelties.add(APART)
    return frozenset(novelties), "physics" if novelties else "calibrated"

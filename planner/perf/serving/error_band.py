"""How far a prediction may be off: 90 % bands from measurements that the fit had not seen.

A band is a pair of factors on the predicted number. It is that of other sources, or of drafts and
split pools whose settings nobody states. What is new widens it: a model family or an accelerator
without measurements adds what its absence adds to the error, in quadrature. Hardware of an
architecture that nobody measured rests on its data sheet. Beyond the lengths, sizes and batches
that were measured, every doubling widens it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from planner.facts import table
from planner.perf.common.constant import constant

if TYPE_CHECKING:
    from planner.facts.accelerator import Accelerator
    from planner.facts.llm import Llm

Basis: TypeAlias = Literal["measured", "calibrated", "physics", "spec"]
FALLBACK_LOADS: Final = {
    "throughput": "offline",
    "tpot": "closed",
    "ttft": "closed",
}
NOVELTY_KINDS: Final = ("none", "source", "family", "GPU", "loose")
BAND_Z_SCORE: Final = NormalDist().inv_cdf(0.95)


@dataclass(frozen=True, slots=True)
class Band:
    """Factors between which 90 % of measurements lie, and what the prediction rests on."""

    low: float
    high: float
    basis: Basis

    def quantile(self, probability: float) -> float:
        """The factor below which this share of measurements lies, as in a lognormal."""
        midpoint = math.sqrt(self.low * self.high)
        log_sigma = math.log(self.high / self.low) / 2 / BAND_Z_SCORE
        return midpoint * math.exp(
            NormalDist().inv_cdf(probability) * log_sigma
        )


@cache
def _band_rows() -> dict[tuple[str, str, str], tuple[float, float]]:
    columns: dict[str, Any] = {
        "target": table.nonempty_text,
        "load": table.nonempty_text,
        "new": table.one_of(*NOVELTY_KINDS),
        "low": table.real_between(-5, 5),
        "high": table.real_between(-5, 5),
        "cells": table.integer_between(1, 10_000),
        "rows": table.integer_between(1, 100_000),
        **table.SOURCE_COLUMNS,
    }
    csv_rows = table.read_rows(_read_data("bands.csv"), "bands.csv", columns)
    return {
        (csv_row["target"], csv_row["load"], csv_row["new"]): (
            csv_row["low"],
            csv_row["high"],
        )
        for csv_row in csv_rows
    }


@cache
def measured_scope() -> frozenset[tuple[str, str]]:
    """Return what the measurements cover, as (family | GPU | architecture, name)."""
    columns = {
        "kind": table.nonempty_text,
        "name": table.nonempty_text,
        "rows": table.integer_between(1, 100_000),
        **table.SOURCE_COLUMNS,
    }
    csv_rows = table.read_rows(
        _read_data("covered.csv"), "covered.csv", columns
    )
    return frozenset((csv_row["kind"], csv_row["name"]) for csv_row in csv_rows)


@cache
def _measured_ranges() -> dict[str, tuple[float, float]]:
    columns = {
        "feature": table.nonempty_text,
        "low": table.real_between(0, 1e15),
        "high": table.real_between(0, 1e15),
        **table.SOURCE_COLUMNS,
    }
    csv_rows = table.read_rows(_read_data("ranges.csv"), "ranges.csv", columns)
    return {
        csv_row["feature"]: (csv_row["low"], csv_row["high"])
        for csv_row in csv_rows
    }


def extrapolation(**features: float) -> tuple[int, str]:
    """Return how many doublings the furthest feature lies beyond what was measured, and which."""
    extrapolations = []
    for feature_name, feature_value in features.items():
        range_low, range_high = _measured_ranges()[feature_name]
        extrapolations.append(
            (
                math.ceil(
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
    """Return the band of throughput, tpot or ttft under a kind of load, in logs of the table."""
    band_rows = _band_rows()
    load_kind = (
        load_kind
        if (target, load_kind, "source") in band_rows
        else FALLBACK_LOADS[target]
    )
    if "loose" in novelties and (target, load_kind, "loose") in band_rows:
        log_low, log_high = band_rows[target, load_kind, "loose"]
    else:
        log_low, log_high = band_rows[target, load_kind, "source"]
    squared_width = ((log_high - log_low) / 2) ** 2
    for novelty in novelties & {"family", "GPU"}:
        squared_width += max(
            0.0,
            _half_width(target, load_kind, novelty) ** 2
            - _half_width(target, load_kind, "none") ** 2,
        )
    squared_width += (doublings * constant("beyond", target)) ** 2
    half_width = math.sqrt(squared_width) * (
        constant("unseen") if basis == "spec" else 1.0
    )
    log_middle = (log_low + log_high) / 2
    return Band(
        math.exp(log_middle - half_width),
        math.exp(log_middle + half_width),
        basis,
    )


def _half_width(target: str, load_kind: str, novelty: str) -> float:
    log_low, log_high = _band_rows()[target, load_kind, novelty]
    return (log_high - log_low) / 2


def assess_novelty(
    llm: Llm, accelerator: Accelerator, *, unstated_settings: bool = False
) -> tuple[frozenset[str], Basis]:
    """Return what is new about a configuration, and what its prediction therefore rests on."""
    measured_names = measured_scope()
    novelties = set()
    if ("family", llm.family) not in measured_names:
        novelties.add("family")
    if ("GPU", accelerator.accelerator) not in measured_names:
        novelties.add("GPU")
    if unstated_settings:
        novelties.add("loose")
    if ("architecture", accelerator.architecture) not in measured_names:
        return frozenset(novelties), "spec"
    return frozenset(novelties), "physics" if novelties else "calibrated"


def _read_data(file_name: str) -> str:
    return (
        files("planner.perf")
        .joinpath("data", file_name)
        .read_text(encoding="utf-8")
    )

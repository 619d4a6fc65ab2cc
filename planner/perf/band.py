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
from planner.perf.constant import constant

if TYPE_CHECKING:
    from planner.facts.accelerator import Accelerator
    from planner.facts.llm import Llm

Basis: TypeAlias = Literal["measured", "calibrated", "physics", "spec"]
NEAREST: Final = {"throughput": "offline", "tpot": "closed", "ttft": "closed"}
NEWS: Final = ("none", "source", "family", "GPU", "loose")
TAIL: Final = NormalDist().inv_cdf(0.95)


@dataclass(frozen=True, slots=True)
class Band:
    """Factors between which 90 % of measurements lie, and what the prediction rests on."""

    low: float
    high: float
    basis: Basis

    def quantile(self, probability: float) -> float:
        """The factor below which this share of measurements lies, as in a lognormal."""
        midpoint = math.sqrt(self.low * self.high)
        log_sigma = math.log(self.high / self.low) / 2 / TAIL
        return midpoint * math.exp(
            NormalDist().inv_cdf(probability) * log_sigma
        )


@cache
def _rows() -> dict[tuple[str, str, str], tuple[float, float]]:
    columns: dict[str, Any] = {
        "target": table.text,
        "load": table.text,
        "new": table.one_of(*NEWS),
        "low": table.real(-5, 5),
        "high": table.real(-5, 5),
        "cells": table.whole(1, 10_000),
        "rows": table.whole(1, 100_000),
        **table.SOURCED,
    }
    csv_rows = table.rows(_text("bands.csv"), "bands.csv", columns)
    return {
        (csv_row["target"], csv_row["load"], csv_row["new"]): (
            csv_row["low"],
            csv_row["high"],
        )
        for csv_row in csv_rows
    }


@cache
def covered() -> frozenset[tuple[str, str]]:
    """Return what the measurements cover, as (family | GPU | architecture, name)."""
    columns = {
        "kind": table.text,
        "name": table.text,
        "rows": table.whole(1, 100_000),
        **table.SOURCED,
    }
    csv_rows = table.rows(_text("covered.csv"), "covered.csv", columns)
    return frozenset((csv_row["kind"], csv_row["name"]) for csv_row in csv_rows)


@cache
def _ranges() -> dict[str, tuple[float, float]]:
    columns = {
        "feature": table.text,
        "low": table.real(0, 1e15),
        "high": table.real(0, 1e15),
        **table.SOURCED,
    }
    csv_rows = table.rows(_text("ranges.csv"), "ranges.csv", columns)
    return {
        csv_row["feature"]: (csv_row["low"], csv_row["high"])
        for csv_row in csv_rows
    }


def outside(**features: float) -> tuple[int, str]:
    """Return how many doublings the furthest feature lies beyond what was measured, and which."""
    extrapolations = []
    for feature_name, feature_value in features.items():
        range_low, range_high = _ranges()[feature_name]
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
def band(
    target: str,
    load_kind: str,
    novelties: frozenset[str],
    basis: Basis,
    doublings: int = 0,
) -> Band:
    """Return the band of throughput, tpot or ttft under a kind of load, in logs of the table."""
    band_rows = _rows()
    load_kind = (
        load_kind
        if (target, load_kind, "source") in band_rows
        else NEAREST[target]
    )
    if "loose" in novelties and (target, load_kind, "loose") in band_rows:
        log_low, log_high = band_rows[target, load_kind, "loose"]
    else:
        log_low, log_high = band_rows[target, load_kind, "source"]
    squared_width = ((log_high - log_low) / 2) ** 2
    for novelty in novelties & {"family", "GPU"}:
        squared_width += max(
            0.0,
            _half(target, load_kind, novelty) ** 2
            - _half(target, load_kind, "none") ** 2,
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


def _half(target: str, load_kind: str, novelty: str) -> float:
    log_low, log_high = _rows()[target, load_kind, novelty]
    return (log_high - log_low) / 2


def news(
    llm: Llm, accelerator: Accelerator, *, unstated_settings: bool = False
) -> tuple[frozenset[str], Basis]:
    """Return what is new about a configuration, and what its prediction therefore rests on."""
    measured_names = covered()
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


def _text(file_name: str) -> str:
    return (
        files("planner.perf")
        .joinpath("data", file_name)
        .read_text(encoding="utf-8")
    )

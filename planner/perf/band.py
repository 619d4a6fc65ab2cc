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

    def at(self, share: float) -> float:
        """The factor below which this share of measurements lies, as in a lognormal."""
        middle = math.sqrt(self.low * self.high)
        spread = math.log(self.high / self.low) / 2 / TAIL
        return middle * math.exp(NormalDist().inv_cdf(share) * spread)


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
    found = table.rows(_text("bands.csv"), "bands.csv", columns)
    return {
        (r["target"], r["load"], r["new"]): (r["low"], r["high"]) for r in found
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
    found = table.rows(_text("covered.csv"), "covered.csv", columns)
    return frozenset((row["kind"], row["name"]) for row in found)


@cache
def _ranges() -> dict[str, tuple[float, float]]:
    columns = {
        "feature": table.text,
        "low": table.real(0, 1e15),
        "high": table.real(0, 1e15),
        **table.SOURCED,
    }
    rows = table.rows(_text("ranges.csv"), "ranges.csv", columns)
    return {row["feature"]: (row["low"], row["high"]) for row in rows}


def outside(**features: float) -> tuple[int, str]:
    """Return how many doublings the furthest feature lies beyond what was measured, and which."""
    found = []
    for name, value in features.items():
        low, high = _ranges()[name]
        found.append(
            (math.ceil(math.log2(max(low / value, value / high, 1))), name)
        )
    return max(found)


@cache
def band(
    target: str,
    load: str,
    news: frozenset[str],
    basis: Basis,
    doublings: int = 0,
) -> Band:
    """Return the band of throughput, tpot or ttft under a kind of load, in logs of the table."""
    rows = _rows()
    load = load if (target, load, "source") in rows else NEAREST[target]
    if "loose" in news and (target, load, "loose") in rows:
        low, high = rows[target, load, "loose"]
    else:
        low, high = rows[target, load, "source"]
    square = ((high - low) / 2) ** 2
    for new in news & {"family", "GPU"}:
        square += max(
            0.0,
            _half(target, load, new) ** 2 - _half(target, load, "none") ** 2,
        )
    square += (doublings * constant("beyond", target)) ** 2
    half = math.sqrt(square) * (constant("unseen") if basis == "spec" else 1.0)
    middle = (low + high) / 2
    return Band(math.exp(middle - half), math.exp(middle + half), basis)


def _half(target: str, load: str, new: str) -> float:
    low, high = _rows()[target, load, new]
    return (high - low) / 2


def news(
    llm: Llm, chip: Accelerator, *, loose: bool = False
) -> tuple[frozenset[str], Basis]:
    """Return what is new about a configuration, and what its prediction therefore rests on."""
    seen = covered()
    found = set()
    if ("family", llm.family) not in seen:
        found.add("family")
    if ("GPU", chip.accelerator) not in seen:
        found.add("GPU")
    if loose:
        found.add("loose")
    if ("architecture", chip.architecture) not in seen:
        return frozenset(found), "spec"
    return frozenset(found), "physics" if found else "calibrated"


def _text(name: str) -> str:
    return (
        files("planner.perf").joinpath("data", name).read_text(encoding="utf-8")
    )

"""The network between machines: what collectives reach of it, and how that falls with machines."""

from __future__ import annotations

import math
from functools import cache
from importlib.resources import files
from typing import Any, Final

from planner.facts import table
from planner.perf.train.coefficient import TRAINING

FEW: Final = 4  # machines up to which nothing is lost
PLAIN: Final = "none"  # sockets over the ordinary network


@cache
def _fabrics() -> dict[str, tuple[float, float]]:
    columns: dict[str, Any] = {
        "fabric": table.text,
        "share": table.real(0.01, 1.5),
        "fall": table.real(0, 0.5),
        "latency_us": table.real(1, 10_000),
        "meaning": table.text,
        **table.SOURCED,
    }
    text = (
        files("planner.perf")
        .joinpath("data", "fabrics.csv")
        .read_text(encoding="utf-8")
    )
    found = table.keyed(table.rows(text, "fabrics.csv", columns), "fabric")
    return {name: (row["share"], row["fall"]) for (name,), row in found.items()}


def reached(fabric: str, nominal: float, machines: int) -> float:
    """Bytes/s of large collectives over a fabric of `nominal` bytes/s one way.

    nominal * share * (1 - fall)^log2(machines / 4): bus bandwidth as nccl-tests measure it.
    """
    share, fall = _fabrics().get(fabric, _fabrics()[PLAIN])
    doublings = max(0.0, math.log2(max(1, machines) / FEW))
    found: float = nominal * share * (1 - fall) ** doublings
    return found


def network(fabric: str, nominal: float, machines: int) -> float:
    """The bandwidth that a job is given, so that what it takes of it is what is reached."""
    usual = TRAINING.at(frozenset()).network
    return reached(fabric, nominal, machines) / usual

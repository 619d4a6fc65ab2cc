"""The network between machines: what collectives reach of it, and how that falls with machines."""

from __future__ import annotations

import math
from functools import cache
from importlib.resources import files
from typing import Any, Final

from planner.facts import table
from planner.perf.training.coefficients import TRAINING_TABLE

LOSSLESS_MACHINES: Final = 4  # machines up to which nothing is lost
ORDINARY_NETWORK: Final = "none"  # sockets over the ordinary network


@cache
def _fabric_table() -> dict[str, tuple[float, float]]:
    column_types: dict[str, Any] = {
        "fabric": table.nonempty_text,
        "share": table.real_between(0.01, 1.5),
        "fall": table.real_between(0, 0.5),
        "latency_us": table.real_between(1, 10_000),
        "meaning": table.nonempty_text,
        **table.SOURCE_COLUMNS,
    }
    csv_text = (
        files("planner.perf")
        .joinpath("data", "fabrics.csv")
        .read_text(encoding="utf-8")
    )
    keyed_rows = table.rows_by_key(
        table.read_rows(csv_text, "fabrics.csv", column_types), "fabric"
    )
    return {
        fabric_name: (row["share"], row["fall"])
        for (fabric_name,), row in keyed_rows.items()
    }


def reached_bytes_s(
    fabric: str, nominal_bytes_s: float, machine_count: int
) -> float:
    """Bytes/s of large collectives over a fabric of `nominal_bytes_s` bytes/s one way.

    nominal * share * (1 - fall)^log2(machines / 4): bus bandwidth as nccl-tests measure it.
    """
    reached_share, doubling_loss = _fabric_table().get(
        fabric, _fabric_table()[ORDINARY_NETWORK]
    )
    doublings = max(0.0, math.log2(max(1, machine_count) / LOSSLESS_MACHINES))
    bandwidth_bytes_s: float = (
        nominal_bytes_s * reached_share * (1 - doubling_loss) ** doublings
    )
    return bandwidth_bytes_s


def network_bytes_s(
    fabric: str, nominal_bytes_s: float, machine_count: int
) -> float:
    """The bandwidth that a job is given, so that what it takes of it is what is reached."""
    usual_share = TRAINING_TABLE.select(frozenset()).network
    return reached_bytes_s(fabric, nominal_bytes_s, machine_count) / usual_share

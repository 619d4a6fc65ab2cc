"""Bandwidth that collectives reach between machines, by fabric and machine count."""

from __future__ import annotations

import math
from functools import cache
from typing import Final

from planner.facts import table
from planner.perf.training.coefficients import TRAINING_TABLE

LOSSLESS_MACHINES: Final = 4  # machines up to which nothing is lost
ORDINARY_NETWORK: Final = "none"  # sockets over the ordinary network


@cache
def _fabric_table() -> dict[str, tuple[float, float]]:
    column_types: table.Columns = {
        "fabric": table.nonempty_text,
        "share": table.real_between(0.01, 1.5),
        "fall": table.real_between(0, 0.5),
        "latency_us": table.real_between(1, 10_000),
        "meaning": table.nonempty_text,
        **table.SOURCE_COLUMNS,
    }
    keyed_rows = table.rows_by_key(
        table.load_rows("planner.perf", "fabrics.csv", column_types), "fabric"
    )
    return {
        fabric_name: (row["share"], row["fall"])
        for (fabric_name,), row in keyed_rows.items()
    }


def reached_bytes_s(
    fabric: str, nominal_bytes_s: float, machine_count: int
) -> float:
    """Return the bus bandwidth of large collectives, in bytes/s for one direction.

    bandwidth = nominal * share * (1 - fall)^log2(machines / 4)

    nominal  `nominal_bytes_s`, one direction
    share    reached share of the nominal bandwidth up to four machines
    fall     share lost with each doubling beyond four machines

    Source: fits to nccl-tests (planner/perf/data/fabrics.csv).
    """
    reached_share, doubling_loss = _fabric_table().get(
        # An unknown fabric counts as TCP over the ordinary network.
        fabric,
        _fabric_table()[ORDINARY_NETWORK],
    )
    # Bus bandwidth falls only beyond four machines.
    doublings = max(0.0, math.log2(max(1, machine_count) / LOSSLESS_MACHINES))
    bandwidth_bytes_s: float = (
        nominal_bytes_s * reached_share * (1 - doubling_loss) ** doublings
    )
    return bandwidth_bytes_s


def network_bytes_s(
    fabric: str, nominal_bytes_s: float, machine_count: int
) -> float:
    """Return the value of `Job.network_bytes_s`, in bytes/s for one direction.

    bandwidth = `reached_bytes_s` / the coefficient `network`

    The step time multiplies by `network`, so its collectives get exactly `reached_bytes_s`.
    """
    # Share of the network that the step time assumes for every job.
    usual_share = TRAINING_TABLE.select(frozenset()).network
    return reached_bytes_s(fabric, nominal_bytes_s, machine_count) / usual_share

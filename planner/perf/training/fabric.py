"""Bandwidth that collectives reach between machines, by fabric and machine count."""

from __future__ import annotations

import math
from functools import cache
from typing import Final, NamedTuple

from planner.facts import table
from planner.perf.training.coefficients import TRAINING_TABLE

LOSSLESS_MACHINES: Final = 4  # machines up to which nothing is lost
US_PER_SECOND: Final = 1e6
ORDINARY_NETWORK: Final = "none"  # sockets over the ordinary network


class _Fabric(NamedTuple):
    """What collectives between machines reach on a fabric.

    share      of the nominal bandwidth, up to four machines
    fall       share of it lost with each doubling beyond them
    latency_s  time of an empty message, seconds
    """

    share: float
    fall: float
    latency_s: float


@cache
def _fabric_table() -> dict[str, _Fabric]:
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
        fabric_name: _Fabric(
            row["share"], row["fall"], row["latency_us"] / US_PER_SECOND
        )
        for (fabric_name,), row in keyed_rows.items()
    }


def _fabric(name: str) -> _Fabric:
    """Return a fabric; an unknown one counts as TCP over the ordinary network."""
    return _fabric_table().get(name, _fabric_table()[ORDINARY_NETWORK])


def network_latency_s(fabric: str) -> float:
    """Return the value of `Job.network_latency_s`, seconds.

    Source: fits to nccl-tests (planner/perf/data/fabrics.csv).
    """
    return _fabric(fabric).latency_s


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
    found = _fabric(fabric)
    # Bus bandwidth falls only beyond four machines.
    doublings = max(0.0, math.log2(max(1, machine_count) / LOSSLESS_MACHINES))
    bandwidth_bytes_s: float = (
        nominal_bytes_s * found.share * (1 - found.fall) ** doublings
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

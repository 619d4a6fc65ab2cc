"""What the machines of a fleet would cost at clouds on which nothing is built here."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from planner.cost.bill_line import CENT
from planner.facts import table
from planner.facts.accelerator import accelerators

if TYPE_CHECKING:
    from collections.abc import Iterator
    from decimal import Decimal

    from planner.market.offer import Instance

NAMED_CLOUDS: Final = 3


class SmallCloudMachine(Struct, frozen=True, kw_only=True):
    """A machine of a small cloud on demand, USD an hour, the same in all of its regions."""

    cloud: str
    machine: str
    accelerator: str
    accelerators: int
    usd_hour: Decimal
    source: str
    as_of: str


class SmallCloudFleet(Struct, frozen=True):
    """The machines of a fleet at a small cloud, USD in the period of the bill."""

    machine: SmallCloudMachine
    usd: Decimal


def cheapest_elsewhere(
    instance: Instance, node_hours: Decimal, most: int = NAMED_CLOUDS
) -> tuple[SmallCloudFleet, ...]:
    """Return what node-hours cost at the small clouds with such machines, the cheapest first.

    Such machines have as many of the same accelerator. Of each cloud it is the cheapest one.
    """
    if instance.fraction != 1:
        return ()
    cheapest: dict[str, SmallCloudMachine] = {}
    for machine in small_cloud_machines():
        if (machine.accelerator, machine.accelerators) != (
            instance.accelerator,
            instance.accelerators,
        ):
            continue
        known = cheapest.get(machine.cloud)
        if known is None or machine.usd_hour < known.usd_hour:
            cheapest[machine.cloud] = machine
    fleets = (
        SmallCloudFleet(machine, (node_hours * machine.usd_hour).quantize(CENT))
        for machine in cheapest.values()
    )
    ranked = sorted(fleets, key=lambda fleet: (fleet.usd, fleet.machine.cloud))
    return tuple(ranked[:most])


@cache
def small_cloud_machines() -> tuple[SmallCloudMachine, ...]:
    """Return all machines of small clouds."""
    return tuple(_read_machines())


def _read_machines() -> Iterator[SmallCloudMachine]:
    columns: table.Columns = {
        "cloud": table.nonempty_text,
        "machine": table.nonempty_text,
        "accelerator": table.one_of(*accelerators()),
        "accelerators": table.integer_between(1, 1000),
        "usd_hour": table.usd_price,
        **table.SOURCE_COLUMNS,
    }
    for row in table.load_rows("planner.market", "small_clouds.csv", columns):
        yield SmallCloudMachine(
            cloud=row["cloud"],
            machine=row["machine"],
            accelerator=row["accelerator"],
            accelerators=row["accelerators"],
            usd_hour=row["usd_hour"],
            source=row["source"],
            as_of=row["as_of"],
        )

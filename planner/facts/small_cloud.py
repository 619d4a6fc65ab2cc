"""Machines of small clouds, on which nothing is built here: rows of data/small_clouds.csv."""

from __future__ import annotations

from decimal import Decimal  # noqa: TC003 - msgspec reads the annotations
from functools import cache

from msgspec import Struct

from planner.facts import table
from planner.facts.accelerator import accelerators


class SmallCloudMachine(Struct, frozen=True, kw_only=True):
    """A machine of a small cloud on demand, USD an hour, the same in all of its regions.

    cloud  how people write its name
    """

    cloud: str
    machine: str
    accelerator: str
    accelerators: int
    usd_hour: Decimal
    source: str
    as_of: str

    @property
    def cloud_name(self) -> str:
        """Name of its cloud in a spec."""
        return self.cloud.lower()


@cache
def small_cloud_machines() -> tuple[SmallCloudMachine, ...]:
    """Return all machines of small clouds. Raises CatalogError for an invalid row."""
    columns: table.Columns = {
        "cloud": table.nonempty_text,
        "machine": table.nonempty_text,
        "accelerator": table.one_of(*accelerators()),
        "accelerators": table.integer_between(1, 1000),
        "usd_hour": table.usd_price,
        **table.SOURCE_COLUMNS,
    }
    return tuple(
        SmallCloudMachine(**row.cells)
        for row in table.load_rows("planner.facts", "small_clouds.csv", columns)
    )


@cache
def small_clouds() -> dict[str, str]:
    """Return how people write each small cloud, by its name in specs."""
    return {
        machine.cloud_name: machine.cloud for machine in small_cloud_machines()
    }

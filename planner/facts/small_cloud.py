"""Machines of small clouds, on which nothing is built here: rows of data/small_clouds.csv."""

from __future__ import annotations

import csv
import io
from decimal import Decimal  # noqa: TC003 - msgspec reads the annotations
from functools import cache
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import asdict, fields

from planner.facts import table
from planner.facts.accelerator import accelerators

if TYPE_CHECKING:
    from collections.abc import Iterable

# The table of our own, and that of a catalog of prices of today.
SMALL_CLOUD_FILE: Final = "small_clouds.csv"


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
    return read_small_clouds(table.data_text("planner.facts", SMALL_CLOUD_FILE))


def read_small_clouds(text: str) -> tuple[SmallCloudMachine, ...]:
    """Return the machines of a table. Raises CatalogError for an invalid row."""
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
        for row in table.read_rows(text, SMALL_CLOUD_FILE, columns)
    )


def small_cloud_table(machines: Iterable[SmallCloudMachine]) -> str:
    """Return machines as the text of a table."""
    buffer = io.StringIO()
    writer = csv.DictWriter(
        buffer,
        [field.name for field in fields(SmallCloudMachine)],
        lineterminator="\n",
    )
    writer.writeheader()
    writer.writerows(
        {**asdict(machine), "usd_hour": f"{machine.usd_hour:f}"}
        for machine in machines
    )
    return buffer.getvalue()


@cache
def small_clouds() -> dict[str, str]:
    """Return how people write each small cloud, by its name in specs."""
    return {
        machine.cloud_name: machine.cloud for machine in small_cloud_machines()
    }

"""Drivers that machines install when they first start, and the images of such machines."""

from __future__ import annotations

from fnmatch import fnmatchcase
from functools import cache
from typing import TYPE_CHECKING

from msgspec import Struct

from planner.facts import table
from stacks.spec.table import lookup_table

if TYPE_CHECKING:
    from planner.market.offer import Instance


class DriverSource(Struct, frozen=True):
    """Where a driver is, its digest (empty where nobody tells it), and lines of its license."""

    url: str
    sha256: str
    license: tuple[str, ...]


def driver_sources(instance: Instance) -> tuple[DriverSource, ...]:
    """Return where the driver of a machine type is, in order; nothing where its image has it."""
    return tuple(
        DriverSource(row["url"], row["sha256"], row["license"])
        for row in _driver_rows()
        if row["cloud"] == instance.provider
        and any(
            fnmatchcase(instance.instance_type, pattern)
            for pattern in row["types"]
        )
    )


def image_reference(instance: Instance) -> str:
    """Return the image of a machine type; machines that install their driver have a plain one."""
    name = instance.provider
    if driver_sources(instance):
        name = f"{name}-plain"
    return lookup_table("images.csv", "image", "reference")[name]


@cache
def _driver_rows() -> tuple[table.TableRow, ...]:
    columns: table.Columns = {
        "cloud": table.nonempty_text,
        "types": lambda cell: tuple(cell.split("|")),
        "url": table.nonempty_text,
        "sha256": table.any_text,
        "license": lambda cell: tuple(filter(None, cell.split("|"))),
        "meaning": table.nonempty_text,
        **table.SOURCE_COLUMNS,
    }
    return tuple(table.load_rows("stacks", "drivers.csv", columns))

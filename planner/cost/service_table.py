"""Tables of what a bill has lines for beside machines: what watches them, and paid borders."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from planner.facts import table

if TYPE_CHECKING:
    from collections.abc import Mapping


@cache
def watch_rows() -> tuple[table.TableRow, ...]:
    """Return what looks at the machines of a stack, and how much of it a month has.

    Raises CatalogError for an invalid row.
    """
    column_types = {
        "provider": table.nonempty_text,
        "role": table.nonempty_text,
        "name": table.nonempty_text,
        "unit": table.nonempty_text,
        "per_month": table.finite_decimal,
        "meaning": table.nonempty_text,
        **table.SOURCE_COLUMNS,
    }
    return tuple(table.load_rows("planner.cost", "watch.csv", column_types))


@cache
def zone_traffic() -> Mapping[tuple[str, ...], table.TableRow]:
    """Return by cloud who spreads requests over zones, and how many sides of a border are billed.

    Raises CatalogError for an invalid row.
    """
    columns: table.Columns = {
        "cloud": table.nonempty_text,
        "balancer": table.yes_or_no,
        "proxy": table.yes_or_no,
        "sides": table.integer_between(1, 2),
        **table.SOURCE_COLUMNS,
    }
    return table.rows_by_key(
        table.load_rows("planner.cost", "zone_traffic.csv", columns), "cloud"
    )

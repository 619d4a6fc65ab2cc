"""Tables of machines that fit the width of a terminal, without a broken name."""

from __future__ import annotations

from typing import Final

from rich.cells import cell_len

from planner.render.page import LINE_WIDTH, PageTable
from planner.render.text import COLUMN_GAP

# They stand side by side, in this order.
MACHINE_COLUMNS: Final = ("cloud", "region", "type")


def fitted(table: PageTable, width: int = LINE_WIDTH) -> PageTable:
    """Return a table of a width at most, which breaks lines between words only.

    Where three columns of a machine would not fit, they are one, and a line may end between them.
    """
    if natural_width(table) > width and _has_machines(table):
        table = _with_one_column(table)
    return PageTable(table.columns, table.rows, table.tones, width)


def natural_width(table: PageTable) -> int:
    """Return the columns of text that a table needs without another line for a row."""
    return sum(
        COLUMN_GAP + max(map(cell_len, cells))
        for cells in zip(table.columns, *table.rows, strict=True)
    )


def _has_machines(table: PageTable) -> bool:
    return set(MACHINE_COLUMNS) <= set(table.columns)


def _with_one_column(table: PageTable) -> PageTable:
    first = table.columns.index(MACHINE_COLUMNS[0])
    end = first + len(MACHINE_COLUMNS)
    rows = tuple(
        (*row[:first], " ".join(row[first:end]), *row[end:])
        for row in table.rows
    )
    columns = (
        *table.columns[:first],
        ", ".join(MACHINE_COLUMNS),
        *table.columns[end:],
    )
    return PageTable(columns, rows, table.tones)

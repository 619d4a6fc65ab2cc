"""The specs of a difference in one table, which says less where amounts would have no room."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from planner.render import period
from planner.render.diff.wording import (
    STATE_MARKS,
    amount_text,
    count_text,
    delta_text,
    parts_text,
    percent_text,
    period_name,
    side_text,
    why_text,
)
from planner.render.page import PageTable, total_row_tones

if TYPE_CHECKING:
    from collections.abc import Callable

    from planner.plan.diff_document import DiffDocument, SpecDiff

# What fits into the log of a pipeline without a broken line.
DIFF_WIDTH: Final = 99
WHY_TITLE: Final = "what differs"
# What is left out of a table that is too wide, in this order; the sections below say it again.
DROPPED_TITLES: Final = (WHY_TITLE, ">%", ">before")


def overview_table(
    document: DiffDocument, specs: tuple[SpecDiff, ...]
) -> PageTable:
    """Return a row for each of some specs, and the total of all in each period.

    Where it is too wide for its amounts, first keys lose their blocks, then they are counted,
    then whole columns go.
    """
    tables = [
        _table(document, specs, why_text),
        _table(document, specs, lambda spec: why_text(spec, is_short=True)),
        _table(document, specs, count_text),
    ]
    for title in DROPPED_TITLES:
        tables.append(_without(tables[-1], title))
    return reduce(
        lambda narrower, table: replace(table, narrower=narrower),
        reversed(tables),
    )


def _table(
    document: DiffDocument,
    specs: tuple[SpecDiff, ...],
    reason_text: Callable[[SpecDiff], str],
) -> PageTable:
    """Return the table with all of its columns; `reason_text` says what differs in a spec."""
    rows = [
        (
            STATE_MARKS[spec.state],
            spec.path,
            side_text(spec.before),
            side_text(spec.after),
            delta_text(spec.delta),
            percent_text(spec.delta),
            reason_text(spec),
        )
        for spec in specs
    ]
    # Of a single spec the total is the row above.
    totals = document.totals if len(document.specs) > 1 else ()
    rows += [
        (
            "",
            f"total {period_name(total.period, len(document.specs))}",
            f"{amount_text(total.before)}{period.UNITS[total.period]}",
            f"{amount_text(total.after)}{period.UNITS[total.period]}",
            delta_text(total.delta),
            percent_text(total.delta),
            parts_text(total),
        )
        for total in totals
    ]
    tones = total_row_tones(len(rows))
    return PageTable(
        ("", "spec", ">before", ">after", ">change", ">%", WHY_TITLE),
        tuple(rows),
        tones if totals else (),
        DIFF_WIDTH,
    )


def _without(table: PageTable, title: str) -> PageTable:
    """Return a table without one of its columns."""
    index = table.columns.index(title)
    return replace(
        table,
        columns=table.columns[:index] + table.columns[index + 1 :],
        rows=tuple(row[:index] + row[index + 1 :] for row in table.rows),
    )

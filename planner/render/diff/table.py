"""A difference as CSV: a row for each spec, pool, cost line and total."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING, Final

from planner.render.diff.wording import entry_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from planner.plan.amount import CostAmount, CostDelta
    from planner.plan.diff import PlanChange
    from planner.plan.diff_document import DiffDocument, PeriodTotal, SpecDiff

COLUMNS: Final = (
    "row",
    "path",
    "path_before",
    "state",
    "name",
    "before",
    "after",
    "period_before",
    "period",
    "usd_before",
    "complete_before",
    "usd_after",
    "complete_after",
    "usd_change",
    "bound",
    "percent",
)
# What a spreadsheet would take for a formula.
FORMULA_SIGNS: Final = ("=", "+", "-", "@", "\t", "\r")


def diff_table(document: DiffDocument) -> str:
    """Return a difference as CSV; an unknown amount is empty."""
    table_buffer = io.StringIO()
    writer = csv.DictWriter(table_buffer, COLUMNS, lineterminator="\n")
    writer.writeheader()
    for row in _rows(document):
        writer.writerow({name: row.get(name, "") for name in COLUMNS})
    return table_buffer.getvalue()


def _rows(document: DiffDocument) -> Iterator[dict[str, str]]:
    for spec in document.specs:
        yield _spec_row(spec)
        for change in spec.changes:
            yield _change_row(spec, change)
    for total in document.totals:
        yield _total_row(total)


def _spec_row(spec: SpecDiff) -> dict[str, str]:
    before, after = spec.before, spec.after
    return {
        "row": "spec",
        **_place(spec),
        "name": _plain(spec.name),
        "before": before.status if before else "",
        "after": after.status if after else "",
        **_side_amounts(
            before.cost if before else None, after.cost if after else None
        ),
        **_change(spec.delta),
    }


def _change_row(spec: SpecDiff, change: PlanChange) -> dict[str, str]:
    before, after = change.before, change.after
    is_comparable = spec.delta is not None
    return {
        "row": change.subject,
        **_place(spec),
        "name": _plain(change.name),
        "before": _plain(entry_text(before)) if before else "",
        "after": _plain(entry_text(after)) if after else "",
        **_side_amounts(
            before.cost if before else None, after.cost if after else None
        ),
        **_change(change.delta if is_comparable else None),
    }


def _total_row(total: PeriodTotal) -> dict[str, str]:
    return {
        "row": "total",
        "period_before": total.period,
        "period": total.period,
        **_side_amounts(total.before, total.after),
        **_change(total.delta),
    }


def _place(spec: SpecDiff) -> dict[str, str]:
    before, after = spec.before, spec.after
    return {
        "path": _plain(spec.path),
        "path_before": _plain(before.path) if before else "",
        "state": spec.state,
        "period_before": (before.period if before else None) or "",
        "period": (after.period if after else None) or "",
    }


def _side_amounts(
    before: CostAmount | None, after: CostAmount | None
) -> dict[str, str]:
    cells = {}
    for side_name, amount in (("before", before), ("after", after)):
        if amount is None:
            continue
        known = "" if amount.usd is None else str(amount.usd)
        cells[f"usd_{side_name}"] = known
        cells[f"complete_{side_name}"] = "yes" if amount.is_complete else "no"
    return cells


def _change(delta: CostDelta | None) -> dict[str, str]:
    if delta is None:
        return {}
    return {
        "usd_change": "" if delta.usd is None else str(delta.usd),
        "bound": delta.bound,
        "percent": "" if delta.percent is None else str(delta.percent),
    }


def _plain(text: str) -> str:
    """Return a text that no spreadsheet takes for a formula."""
    return f"'{text}" if text.startswith(FORMULA_SIGNS) else text

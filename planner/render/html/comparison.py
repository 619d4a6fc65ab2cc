"""Reports of what differs: a bill beside what was paid, and one plan beside another."""

from __future__ import annotations

from typing import TYPE_CHECKING

from planner import figures
from planner.render.html import axis_text
from planner.render.html.blocks import block_markup
from planner.render.html.document import document
from planner.render.html.figure import Figure
from planner.render.html.markup import element
from planner.render.html.rows import Bar, ChartRow, rows_drawing
from planner.render.page import Heading, PageTable

if TYPE_CHECKING:
    from collections.abc import Sequence
    from decimal import Decimal

    from planner.plan.actual.review import Review
    from planner.plan.diff import PlanDiff
    from planner.render.page import Page

LEVEL = 2


def page_report(title: str, page: Page, shown: Sequence[Figure]) -> str:
    """Return a page as an HTML document, with pictures after it."""
    blocks = block_markup(page, LEVEL)
    return document(
        title,
        element("h1", None, title),
        [*blocks, *(figure.markup("picture") for figure in shown)],
    )


def review_report(reviewed: Review, page: Page) -> str:
    """Return the report of planned beside actual cost; `page` is what a terminal shows of it."""
    first, *others = page
    title = first.text if isinstance(first, Heading) else reviewed.stack
    rows = [
        ChartRow(
            name=reviewed_line.name,
            note=f"{figures.dollars(reviewed_line.actual_usd, cents=True)} of "
            f"{_planned_text(reviewed_line.planned_usd)}",
            bars=(Bar(0, float(reviewed_line.actual_usd)),),
            limit=None
            if reviewed_line.planned_usd is None
            else float(reviewed_line.planned_usd),
        )
        for reviewed_line in reviewed.lines
    ]
    table = next(block for block in page if isinstance(block, PageTable))
    picture = Figure(
        key="lines",
        title="What was paid, beside what was planned",
        summary="; ".join(f"{row.name}: {row.note}" for row in rows)
        + ". Bars are what was paid, dashed marks what was planned.",
        drawing=rows_drawing(rows, axis_text.money_tick),
        table=table,
    )
    return page_report(title, tuple(others), [picture])


def _planned_text(usd: Decimal | None) -> str:
    return (
        "no planned price" if usd is None else figures.dollars(usd, cents=True)
    )


def difference_figure(plan_diff: PlanDiff) -> Figure | None:
    """Return how one plan's cost becomes another's, change by change.

    Nothing where their costs are for different periods, or nothing changes.
    """
    if not plan_diff.is_comparable or not plan_diff.changes:
        return None
    reached = float(plan_diff.usd_before)
    rows = [_total_bar("before", plan_diff.usd_before)]
    for change in plan_diff.changes:
        end = reached + float(change.delta_usd)
        rows.append(
            ChartRow(
                name=f"{change.mark} {change.name}",
                note=figures.signed_dollars(change.delta_usd),
                bars=(Bar(reached, end, "bad" if end > reached else "good"),),
            )
        )
        reached = end
    rows.append(_total_bar("after", plan_diff.usd_after))
    return Figure(
        key=f"change-{plan_diff.name}",
        title=f"{plan_diff.name}: from one cost to the other",
        summary="; ".join(f"{row.name} {row.note}" for row in rows)
        + ". Dotted bars are less, solid ones more.",
        drawing=rows_drawing(rows, axis_text.money_tick),
        table=PageTable(
            ("change", ">USD"), tuple((row.name, row.note) for row in rows)
        ),
    )


def _total_bar(name: str, usd: Decimal) -> ChartRow:
    return ChartRow(
        name=name,
        note=figures.dollars(usd, cents=True),
        bars=(Bar(0, float(usd), "total"),),
    )

"""Reports of what differs: a bill beside what was paid, and one plan beside another."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

from planner import figures
from planner.render.diff.page import diff_page
from planner.render.html import axis_text
from planner.render.html.blocks import block_markup
from planner.render.html.document import DocumentParts, document
from planner.render.html.figure import Figure
from planner.render.html.markup import element
from planner.render.html.rows import Bar, ChartRow, rows_drawing
from planner.render.page import Heading, PageTable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from planner.plan.actual.review import Review
    from planner.plan.diff_document import DiffDocument, SpecDiff
    from planner.render.html.markup import Markup
    from planner.render.page import Page

LEVEL = 2


def page_report(title: str, page: Page, shown: Sequence[Figure]) -> str:
    """Return a page as an HTML document, with pictures after it."""
    return document(
        DocumentParts(title, element("h1", None, title), _parts(page, shown))
    )


def _parts(page: Page, shown: Sequence[Figure]) -> tuple[Markup, ...]:
    return (
        *block_markup(page, LEVEL),
        *(figure.markup("picture") for figure in shown),
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


def diff_report(document: DiffDocument) -> str:
    """Return the report of a difference: its page, and how each cost becomes another."""
    title = f"What changes from {document.before.name} to {document.after.name}"
    return page_report(
        title, diff_page(document), _difference_figures(document)
    )


def difference_parts(document: DiffDocument) -> tuple[Markup, ...]:
    """Return what the report of a difference shows, without its title."""
    return _parts(diff_page(document), _difference_figures(document))


def _difference_figures(document: DiffDocument) -> list[Figure]:
    drawn = (
        difference_figure(spec, f"change-{number}")
        for number, spec in enumerate(document.specs, 1)
    )
    return [figure for figure in drawn if figure is not None]


def difference_figure(spec: SpecDiff, key: str) -> Figure | None:
    """Return how the cost of one side becomes that of the other, change by change.

    Nothing where the two are for different periods, or nothing changes.
    """
    costs = _costs(spec)
    if costs is None or not spec.changes:
        return None
    before_usd, after_usd = costs
    reached = float(before_usd)
    rows = [_total_bar("before", before_usd)]
    for change in spec.changes:
        end = reached + float(change.delta_usd)
        rows.append(
            ChartRow(
                name=f"{change.mark} {change.name}",
                note=figures.signed_dollars(change.delta_usd),
                bars=(Bar(reached, end, "bad" if end > reached else "good"),),
            )
        )
        reached = end
    rows.append(_total_bar("after", after_usd))
    return Figure(
        key=key,
        title=f"{spec.name}: from one cost to the other",
        summary="; ".join(f"{row.name} {row.note}" for row in rows)
        + ". Dotted bars are less, solid ones more.",
        drawing=rows_drawing(rows, axis_text.money_tick),
        table=PageTable(
            ("change", ">USD"), tuple((row.name, row.note) for row in rows)
        ),
    )


def _costs(spec: SpecDiff) -> tuple[Decimal, Decimal] | None:
    """Return what is known of the costs of both sides; a side that is not there costs nothing."""
    sides = [side for side in (spec.before, spec.after) if side is not None]
    costs = [side.cost for side in sides if side.cost is not None]
    if len(costs) < len(sides) or len({side.period for side in sides}) > 1:
        return None
    known = [cost.known_usd for cost in costs]
    if spec.before is None:
        return Decimal(0), known[0]
    return known[0], known[1] if spec.after is not None else Decimal(0)


def _total_bar(name: str, usd: Decimal) -> ChartRow:
    return ChartRow(
        name=name,
        note=figures.dollars(usd, cents=True),
        bars=(Bar(0, float(usd), "total"),),
    )

"""The report of services that buy together: what the page says, with a picture of bills."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from planner import figures
from planner.render.diff.wording import amount_text
from planner.render.html import axis_text
from planner.render.html.blocks import block_markup
from planner.render.html.document import DocumentParts, document
from planner.render.html.figure import Figure, Section
from planner.render.html.markup import element, joined
from planner.render.html.report import contents
from planner.render.html.rows import Bar, ChartRow, rows_drawing
from planner.render.page import PHRASE_DOT, PageTable, Paragraph
from planner.render.portfolio import (
    bill_notes,
    bill_table,
    headline,
    one_fleet_blocks,
    quota_blocks,
    shared_blocks,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from planner.plan.amount import CostAmount
    from planner.plan.portfolio_document import (
        PortfolioDocument,
        PortfolioPlace,
    )
    from planner.render.html.rows import BarStyle

LEVEL: Final = 2


def sharing_report(portfolio: PortfolioDocument) -> str:
    """Return the report of a portfolio as an HTML document; equal ones give equal bytes."""
    title = headline(portfolio).replace(PHRASE_DOT, ": ")
    sections = list(_sections(portfolio))
    return document(
        DocumentParts(
            title,
            joined(
                (
                    element("h1", None, title),
                    *block_markup(
                        [Paragraph(f"catalog of {portfolio.catalog.as_of}")],
                        LEVEL,
                    ),
                    contents(
                        [(section.key, section.title) for section in sections]
                    ),
                )
            ),
            tuple(section.markup(LEVEL) for section in sections),
        )
    )


def _sections(portfolio: PortfolioDocument) -> Iterator[Section]:
    yield Section(
        key="bills",
        title="What each pays",
        content=(
            Figure(
                key="bills",
                title="Bills of a month, alone and together",
                summary=f"{headline(portfolio)}. Striped bars are bills alone.",
                drawing=rows_drawing(
                    list(_bill_rows(portfolio)), axis_text.money_tick
                ),
                table=bill_table(portfolio),
                is_open=True,
            ),
            *block_markup(bill_notes(portfolio), LEVEL + 1),
        ),
    )
    yield Section(
        key="shared",
        title="What they share",
        content=(
            *block_markup(shared_blocks(portfolio), LEVEL + 1),
            *block_markup(one_fleet_blocks(portfolio), LEVEL + 1),
            *_place_figure(portfolio.places),
        ),
    )
    short = list(quota_blocks(portfolio.quotas))
    if short:
        yield Section(
            key="quotas",
            title="What the quotas of the account do not allow",
            content=block_markup(short, LEVEL + 1),
        )


def _place_figure(places: Sequence[PortfolioPlace]) -> Iterator[Figure]:
    """Yield the machines of each place by how they are bought together; nothing without any."""
    if not places:
        return
    yield Figure(
        key="places",
        title="Machines by how they are bought together",
        summary="At most so many at once: dotted ones are owned, striped ones are committed to, "
        "solid ones are on demand.",
        drawing=rows_drawing(
            [_place_row(place) for place in places], axis_text.count_tick
        ),
        table=_place_table(places),
    )


def _place_row(place: PortfolioPlace) -> ChartRow:
    counts = (place.owned_nodes, place.committed_nodes, place.on_demand_nodes)
    styles: tuple[BarStyle, ...] = ("good", "second", "main")
    starts = (0, counts[0], counts[0] + counts[1])
    return ChartRow(
        name=_place_name(place),
        note=f"{place.peak_nodes} at once",
        bars=tuple(
            Bar(start, start + count, style)
            for start, count, style in zip(starts, counts, styles, strict=True)
            if count
        ),
    )


def _place_name(place: PortfolioPlace) -> str:
    return f"{place.instance_type} {place.provider} {place.region}"


def _place_table(places: Sequence[PortfolioPlace]) -> PageTable:
    return PageTable(
        (
            "machines",
            "shared by",
            ">at once",
            ">owned",
            ">committed",
            ">on demand",
            ">$/mo alone",
            ">$/mo together",
        ),
        tuple(
            (
                _place_name(place),
                ", ".join(share.workload for share in place.shares),
                f"{place.peak_nodes}",
                f"{place.owned_nodes}",
                f"{place.committed_nodes}",
                f"{place.on_demand_nodes}",
                figures.dollars(place.alone_usd, cents=True),
                figures.dollars(place.together_usd, cents=True),
            )
            for place in places
        ),
    )


def _bill_rows(portfolio: PortfolioDocument) -> Iterator[ChartRow]:
    for workload in portfolio.shared:
        yield _bill_row(f"{workload.name} alone", workload.alone, "second")
        yield _bill_row(f"{workload.name} together", workload.together, "main")


def _bill_row(
    name: str, amount: CostAmount | None, style: BarStyle
) -> ChartRow:
    usd = float(amount.known_usd) if amount is not None else 0.0
    return ChartRow(
        name=name, note=amount_text(amount), bars=(Bar(0, usd, style),)
    )

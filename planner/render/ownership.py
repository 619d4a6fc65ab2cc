"""The page of a plan against machines of one's own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from planner import figures
from planner.render.bill import total_text
from planner.render.page import LINE_WIDTH, Block, Page, PageTable, Paragraph

if TYPE_CHECKING:
    from collections.abc import Iterator

    from planner.market.on_premises import DataCenter
    from planner.plan.types import Plan
    from planner.workload.ownership import Ownership


def ownership_page(
    plan: Plan, center: DataCenter, found: list[Ownership]
) -> Page:
    """Return what own machines cost a month over one to five years, and when they pay."""
    return (Paragraph(""), *_blocks(plan, center, found))


def _blocks(
    plan: Plan, center: DataCenter, found: list[Ownership]
) -> Iterator[Block]:
    fitting = {one.machine.name for one in found}
    for machine in center.machines:
        if machine.name not in fitting:
            yield Paragraph(
                f"  no fleet of {machine.name} meets the spec", "warn"
            )
    if not found:
        return
    years = tuple(found[0].month_usd)
    yield PageTable(
        (
            "own machines, USD a month over",
            *(f">{number} year{'s' if number > 1 else ''}" for number in years),
        ),
        (
            *(
                (
                    f"{one.nodes} x {one.machine.name}",
                    *(figures.dollars(one.month_usd[year]) for year in years),
                )
                for one in found
            ),
            (
                "as planned",
                *(total_text(plan) for _ in years),
            ),
        ),
        width=LINE_WIDTH,
    )
    for one in found:
        yield Paragraph(f"  {_sentence(one)}", width=LINE_WIDTH)
    if center.assumed:
        assumed = "; ".join(
            f"{value} ({source})" for value, source in center.assumed
        )
        yield Paragraph(f"  assumed: {assumed}", "dim", LINE_WIDTH)


def _sentence(one: Ownership) -> str:
    paid = (
        f"paid after month {one.paid_months}"
        if one.paid_months is not None
        else "not paid in its years"
    )
    burst = (
        ""
        if one.machine.nodes >= one.nodes
        else f"; {one.machine.nodes} of them with {one.as_type} on demand above: "
        f"{figures.dollars(one.burst_usd)} a month"
    )
    return (
        f"{one.nodes} x {one.machine.name}, sized as {one.as_type}: {paid}, and cheaper than the "
        f"same on demand from {figures.percentage(float(one.even_hours))} of the hours on{burst}"
    )

"""The page of a plan against machines of one's own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from planner import figures
from planner.render import period
from planner.render.bill import total_text
from planner.render.page import LINE_WIDTH, Block, Page, PageTable, Paragraph
from planner.workload.owned_run import OwnedRun

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from decimal import Decimal

    from planner.market.on_premises import DataCenter
    from planner.plan.types import Plan
    from planner.workload.ownership import Ownership


def ownership_page(
    plan: Plan, center: DataCenter, found: Sequence[Ownership | OwnedRun]
) -> Page:
    """Return what own machines cost over one to five years, and when they pay."""
    return (Paragraph(""), *_blocks(plan, center, found))


def _blocks(
    plan: Plan, center: DataCenter, found: Sequence[Ownership | OwnedRun]
) -> Iterator[Block]:
    fitting = {one.machine.name for one in found}
    for machine in center.machines:
        if machine.name not in fitting:
            yield Paragraph(
                f"  no fleet of {machine.name} meets the spec", "warn"
            )
    if not found:
        return
    costs = [_by_years(one) for one in found]
    years = tuple(costs[0])
    yield PageTable(
        (
            f"own machines, {period.AMOUNTS[plan.cost.period]} over",
            *(f">{number} year{'s' if number > 1 else ''}" for number in years),
        ),
        (
            *(
                (
                    f"{one.nodes} x {one.machine.name}{there_text(one)}",
                    *(figures.dollars(usd[year]) for year in years),
                )
                for one, usd in zip(found, costs, strict=True)
            ),
            (
                "as planned",
                *(total_text(plan) for _ in years),
            ),
        ),
        width=LINE_WIDTH,
    )
    for one in found:
        sentence = (
            _run_sentence(one) if isinstance(one, OwnedRun) else _sentence(one)
        )
        yield Paragraph(f"  {sentence}", width=LINE_WIDTH)
    if center.assumed:
        assumed = "; ".join(
            f"{value} ({source})" for value, source in center.assumed
        )
        yield Paragraph(f"  assumed: {assumed}", "dim", LINE_WIDTH)


def _by_years(one: Ownership | OwnedRun) -> dict[int, Decimal]:
    """Return what own machines cost in the period of the plan, by the years of use."""
    return one.run_usd if isinstance(one, OwnedRun) else one.month_usd


def there_text(one: Ownership | OwnedRun) -> str:
    """Return how many machines there are, where a workload takes more of them."""
    there = one.machine.nodes
    if one.nodes <= there:
        return ""
    return f", and there {'is' if there == 1 else 'are'} {there}"


def paid_runs_text(one: OwnedRun) -> str | None:
    """Return from which run of a month on own machines cost no more than a plan."""
    if one.even_runs is None:
        return None
    if one.even_runs == 1:
        return "from the first such run a month on"
    return f"from {one.even_runs:,} such runs a month on"


def _run_sentence(one: OwnedRun) -> str:
    hours = figures.quantity(one.node_hours)
    even = paid_runs_text(one)
    paid = (
        f"no more than the plan {even}"
        if even is not None
        else "dearer than the plan however often it runs"
    )
    return (
        f"{one.nodes} x {one.machine.name}, sized as {one.as_type}: {hours} machine-hours, "
        f"whose electricity alone is {figures.dollars(one.energy_usd)}; {paid}"
    )


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

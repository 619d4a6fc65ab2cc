"""The page of one workload in every way to buy it, and of what is not rented at all."""

from __future__ import annotations

from typing import TYPE_CHECKING

from planner import figures
from planner.market.term import TERM_OF
from planner.render import period
from planner.render.page import LINE_WIDTH, Block, Page, PageTable, Paragraph
from planner.render.rivals import fleet_text
from planner.workload.owned_run import OwnedRun

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from decimal import Decimal

    from planner.plan.types import Plan
    from planner.solve.solution import CommitmentSaving
    from planner.workload.buying import BoughtWay
    from planner.workload.ownership import Ownership


def buying_page(
    plan: Plan,
    found: list[BoughtWay],
    owned: Sequence[Ownership | OwnedRun],
) -> Page:
    """Return the ways to buy a workload, the cheapest first, against its plan.

    `owned` are machines of one's own on which it would run instead.
    """
    return (
        PageTable(
            (
                "way to buy",
                "machines",
                f">{period.TITLES[plan.cost.period].lstrip('>')}",
                ">against the plan",
                "what it takes",
            ),
            tuple(_rows(plan, found, owned)),
            width=LINE_WIDTH,
        ),
        *_regret_blocks(found),
    )


def _rows(
    plan: Plan,
    found: list[BoughtWay],
    owned: Sequence[Ownership | OwnedRun],
) -> Iterator[tuple[str, ...]]:
    total = plan.cost.total
    # A plan of its own at a small cloud says more than the same machines there.
    has_plan_there = any(
        way.usd is not None and way.way.clouds == "small" for way in found
    )
    elsewhere = () if has_plan_there else plan.cost.elsewhere[:1]
    rows = [
        (total, _row("as the spec says", _planned_fleet(plan), total, plan)),
        *(
            (way.usd, _way_row(way, plan))
            for way in found
            if way.usd is not None
        ),
        *(
            (
                hosted.usd,
                _row(
                    f"the same tokens at {hosted.provider}",
                    "",
                    hosted.usd,
                    plan,
                    "no machines of your own",
                ),
            )
            for hosted in plan.cost.hosted[:1]
        ),
        *(
            (
                fleet.usd,
                _row(
                    f"such machines at {fleet.cloud}",
                    fleet.machine,
                    fleet.usd,
                    plan,
                    "machines alone; nothing is built there",
                ),
            )
            for fleet in elsewhere
        ),
        *((one.planned_usd, _owned_row(one, plan)) for one in owned),
    ]
    yield from (row for _, row in sorted(rows, key=lambda pair: pair[0]))
    for way in found:
        if way.usd is None:
            yield (way.way.name, "", "-", "", "no fleet meets the spec so")


def _row(
    name: str, machines: str, usd: Decimal, plan: Plan, takes: str = ""
) -> tuple[str, ...]:
    change = (
        ""
        if usd == plan.cost.total
        else (figures.signed_dollars(usd - plan.cost.total))
    )
    return name, machines, figures.dollars(usd), change, takes


def _way_row(found: BoughtWay, plan: Plan) -> tuple[str, ...]:
    assert found.usd is not None  # noqa: S101 - only those with a fleet are shown so
    parts = " + ".join(
        f"{part.nodes} {part.purchase.replace('_', ' ')}"
        for part in found.purchases
    )
    takes = []
    if found.owed_usd:
        takes.append(f"{figures.dollars(found.owed_usd)} owed over its term")
    if found.way.clouds == "small":
        takes.append("machines alone; nothing is built there")
    if any(part.purchase == "spot" for part in found.purchases):
        takes.append("spot may be taken back")
    fleets = " + ".join(map(fleet_text, found.fleets))
    machines = f"{fleets}: {parts}"
    return _row(found.way.name, machines, found.usd, plan, "; ".join(takes))


def _owned_row(one: Ownership | OwnedRun, plan: Plan) -> tuple[str, ...]:
    price_usd = one.nodes * one.machine.price
    takes = f"{figures.dollars(price_usd)} to buy"
    if one.nodes > one.machine.nodes:
        takes += f", and there are {one.machine.nodes}"
    elif isinstance(one, OwnedRun):
        takes = f"their share of {takes}"
        if one.even_runs is not None:
            takes += f", paid from {one.even_runs:,} runs a month on"
    elif one.paid_months is not None:
        takes += f", paid after month {one.paid_months}"
    machines = f"{one.nodes} x {one.machine.name}"
    return _row("machines of your own", machines, one.planned_usd, plan, takes)


def _planned_fleet(plan: Plan) -> str:
    return ", ".join(
        f"{pool.provider} {pool.region} {pool.instance_type} x {pool.nodes}: "
        f"{pool.purchase_text.replace('_', ' ')}"
        for pool in plan.solution.pools
    )


def _regret_blocks(found: list[BoughtWay]) -> Iterator[Block]:
    """Yield what the best commitments lose in other futures; nothing where none pays."""
    options: dict[str, CommitmentSaving] = {}
    for way in found:
        for option in way.commitments:
            # The first way is all on demand: its hours are those of the week.
            options.setdefault(option.purchase, option)
    if not options:
        return
    yield Paragraph("")
    yield PageTable(
        (
            "a commitment",
            ">saves a month",
            ">pays after",
            "lost over its term, where",
            ">USD",
        ),
        tuple(
            (
                f"{option.nodes} for {TERM_OF[option.purchase].name}"
                if number == 0
                else "",
                figures.dollars(option.saved_usd) if number == 0 else "",
                f"{option.pays_after_months:.0f} months"
                if number == 0
                else f"or {option.pays_above_hours:.0f} h a month"
                if number == 1
                else "",
                regret.scenario.meaning,
                figures.dollars(regret.usd) if regret.usd else "nothing",
            )
            for _, option in sorted(options.items())
            for number, regret in enumerate(option.regrets)
        ),
        width=LINE_WIDTH,
    )

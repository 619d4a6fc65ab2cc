"""The page of one workload in every way to buy it, and of what is not rented at all."""

from __future__ import annotations

from typing import TYPE_CHECKING

from planner import figures
from planner.market.term import TERM_OF
from planner.render import period
from planner.render.against import against_plan, other_total
from planner.render.bill import LOWER_BOUND
from planner.render.ownership import paid_runs_text, there_text
from planner.render.page import LINE_WIDTH, Block, Page, PageTable, Paragraph
from planner.render.regret import (
    form_sentences,
    is_paid_latest,
    regret_text,
    term_text,
)
from planner.render.rivals import fleet_text
from planner.render.token_cost import token_cells, token_titles
from planner.sentence import describe
from planner.workload.owned_run import OwnedRun

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from decimal import Decimal

    from planner.market.bought import CommitmentSaving
    from planner.plan.types import Plan
    from planner.workload.buying import BoughtWay
    from planner.workload.ownership import Ownership


def buying_page(
    plan: Plan,
    found: list[BoughtWay],
    owned: Sequence[Ownership | OwnedRun],
    own_machines: Sequence[str] = (),
) -> Page:
    """Return the ways to buy a workload, the cheapest first, against its plan.

    `owned` are machines of one's own on which it would run instead, of those that are asked about.
    """
    return (
        PageTable(
            (
                "way to buy, each planned anew",
                "machines",
                period.TITLES[plan.cost.period],
                *token_titles(plan.cost.tokens),
                ">change",
                "what it takes",
            ),
            tuple(_rows(plan, found, owned, own_machines)),
            width=LINE_WIDTH,
        ),
        *_regret_blocks(plan, found),
    )


def _rows(
    plan: Plan,
    found: list[BoughtWay],
    owned: Sequence[Ownership | OwnedRun],
    own_machines: Sequence[str],
) -> Iterator[tuple[str, ...]]:
    total = plan.cost.total
    rows = [
        (
            total,
            _row(
                "as the spec says",
                _planned_fleet(plan),
                total,
                plan,
                _planned_spot(plan),
                is_partial=plan.cost.is_partial,
            ),
        ),
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
        *((one.planned_usd, _owned_row(one, plan)) for one in owned),
    ]
    yield from (row for _, row in sorted(rows, key=lambda pair: pair[0]))
    for way in found:
        if way.usd is None:
            yield _empty_row(plan, way.way.name, _stopper(way))
    if not plan.cost.hosted:
        yield _empty_row(plan, "the same tokens at an API", _unsold(plan))
    fitting = {one.machine.name for one in owned}
    for name in own_machines:
        if name not in fitting:
            yield _empty_row(
                plan,
                "machines of your own",
                f"no fleet of {name} meets the spec",
            )


def _empty_row(plan: Plan, name: str, reason: str) -> tuple[str, ...]:
    return name, "", "-", *token_cells(plan.cost.tokens, None), "", reason


def _stopper(found: BoughtWay) -> str:
    """Return in a few words why there is no fleet in a way to buy."""
    if found.refused is not None:
        return found.refused.message
    if found.nearest is not None:
        limit = found.nearest
        change = f"{limit.constraint}: {describe(limit.relax_to)}"
        return f"no fleet meets the spec so; one would with {change}"
    if found.way.machine_types > 1:
        return "two types cost no less than one"
    if found.way.clouds == "small":
        return "one machine does not do it, and none is known to join more"
    return "no fleet meets the spec so"


def _unsold(plan: Plan) -> str:
    """Return why there is no price of an API."""
    if plan.workload.model is None or plan.cost.tokens is None:
        return "it has no tokens"
    if plan.workload.kind == "training":
        return "what is sold by the token are answers"
    return "nobody is known to sell this model"


def _row(
    name: str,
    machines: str,
    usd: Decimal,
    plan: Plan,
    takes: str = "",
    *,
    is_partial: bool = False,
) -> tuple[str, ...]:
    """Return a row of the table; a bill that is `is_partial` has lines without a price."""
    change = (
        ""
        if usd == plan.cost.total
        else against_plan(plan, usd, is_partial=is_partial)
    )
    mark = LOWER_BOUND if is_partial else ""
    return (
        name,
        machines,
        other_total(usd, is_partial=is_partial),
        *token_cells(plan.cost.tokens, usd, mark),
        change,
        takes,
    )


def _guesses_text(method: str) -> str:
    """Say how a way guesses, and that its plan stands on an assumption."""
    key = f"serving.speculation: {method}"
    if method == "off":
        return key
    return f"{key}; how often guesses are right depends on the text"


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
    if found.way.engine is not None:
        takes.append(f"serving.engine: {found.way.engine}")
    if found.way.speculation is not None:
        takes.append(_guesses_text(found.way.speculation))
    if any(part.purchase == "spot" for part in found.purchases):
        takes.append("spot may be taken back")
    if found.spot_as_of:
        takes.append(f"at its price of {found.spot_as_of}")
    fleets = " + ".join(map(fleet_text, found.fleets))
    machines = f"{fleets}: {parts}"
    return _row(
        found.way.name,
        machines,
        found.usd,
        plan,
        "; ".join(takes),
        is_partial=found.is_partial,
    )


def _owned_row(one: Ownership | OwnedRun, plan: Plan) -> tuple[str, ...]:
    price_usd = one.nodes * one.machine.price
    takes = f"{figures.dollars(price_usd)} to buy"
    if there := there_text(one):
        takes += there
    elif isinstance(one, OwnedRun):
        takes = f"their share of {takes}"
        if even := paid_runs_text(one):
            takes += f", paid {even}"
    elif one.paid_months is not None:
        takes += f", paid after month {one.paid_months}"
    machines = f"{one.nodes} x {one.machine.name}"
    return _row("machines of your own", machines, one.planned_usd, plan, takes)


def _planned_spot(plan: Plan) -> str:
    """Return by which price of spot a plan was decided, where that is not the one found."""
    is_moved = any(warning.code == "moved-price" for warning in plan.warnings)
    return "at the upper end of an old price of spot" if is_moved else ""


def _planned_fleet(plan: Plan) -> str:
    return ", ".join(
        f"{pool.provider} {pool.region} {pool.instance_type} x {pool.nodes}: "
        f"{pool.purchase_text.replace('_', ' ')}"
        for pool in plan.solution.pools
    )


def _regret_blocks(plan: Plan, found: list[BoughtWay]) -> Iterator[Block]:
    """Yield what the best commitments lose in other futures, or why there is none to lose with."""
    options: dict[str, CommitmentSaving] = {}
    for way in found:
        for option in way.commitments:
            # The first way is all on demand: its hours are those of the week.
            options.setdefault(option.purchase, option)
    options = {
        purchase: option
        for purchase, option in options.items()
        if is_paid_latest(purchase, options)
    }
    has_one_form = len({option.form for option in options.values()}) == 1
    yield Paragraph("")
    if not options:
        yield Paragraph(
            "No commitment costs less than on demand in these hours: there is none to regret."
            if plan.cost.period == "month"
            else "What ends is over before a commitment is: what is owed stands beside it."
        )
        return
    yield PageTable(
        (
            "of the same fleet",
            ">saves a month",
            ">pays after",
            "lost over its term, where",
            ">USD",
        ),
        tuple(
            (
                f"{option.nodes} for "
                + (
                    TERM_OF[option.purchase].name
                    if has_one_form
                    else term_text(option.purchase, option.cloud, option.form)
                )
                if number == 0
                else "",
                figures.dollars(option.saved_usd) if number == 0 else "",
                f"{option.pays_after_months:.0f} months"
                if number == 0
                else f"or {option.pays_above_hours:.0f} h a month"
                if number == 1
                else "",
                regret.scenario.meaning,
                regret_text(
                    regret.usd, regret.scenario.scenario, option.purchase
                ),
            )
            for _, option in sorted(options.items())
            for number, regret in enumerate(option.regrets)
        ),
        width=LINE_WIDTH,
    )
    for sentence in form_sentences(
        (option.cloud, option.form) for option in options.values()
    ):
        yield Paragraph(sentence, width=LINE_WIDTH)

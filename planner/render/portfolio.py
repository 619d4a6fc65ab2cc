"""The page of several services that buy together: what each pays alone, and what together."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

from planner import figures
from planner.market.term import TERM_OF
from planner.render.bill import anyway_text, bound_mark
from planner.render.page import (
    LINE_WIDTH,
    Block,
    Heading,
    Page,
    PageTable,
    Paragraph,
)
from planner.render.token_cost import token_cells, token_titles

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from planner.market.owned import OwnedUse
    from planner.plan.types import Plan
    from planner.workload.joint_purchase import SharedPlace
    from planner.workload.portfolio import Portfolio, SharedBill
    from planner.workload.quota_share import QuotaNeed, SharedChoice


def portfolio_page(
    portfolio: Portfolio,
    left_out: Sequence[str],
    plans: Mapping[str, Plan],
) -> Page:
    """Return the bill of each service alone and together, and what they share at each place.

    `left_out` has the names of what is no service, ends by itself, or has no fleet. `plans` are
    those of the services, by name: their tokens and requests cost what they pay together.
    """
    return tuple(_blocks(portfolio, left_out, plans))


def _blocks(
    portfolio: Portfolio,
    left_out: Sequence[str],
    plans: Mapping[str, Plan],
) -> Iterator[Block]:
    bills = portfolio.bills
    alone_usd = sum((bill.alone_usd for bill in bills), Decimal(0))
    shared_usd = sum((bill.shared_usd for bill in bills), Decimal(0))
    yield Heading(
        f"{len(bills)} {'service' if len(bills) == 1 else 'services'} together  ·  "
        f"{figures.dollars(shared_usd)} a month, {figures.dollars(alone_usd)} alone"
    )
    # Each service counts its tokens and requests.
    titles = token_titles(plans[bills[0].name].cost.tokens) if bills else ()
    yield PageTable(
        ("service", "machines", ">$/mo alone", ">$/mo together", *titles),
        (
            *(_bill_row(bill, plans[bill.name]) for bill in bills),
            (
                "all",
                "",
                figures.dollars(alone_usd, cents=True),
                figures.dollars(shared_usd, cents=True),
                # Tokens of two models are never added up.
                *("",) * len(titles),
            ),
        ),
        width=LINE_WIDTH,
    )
    told = [
        place
        for place in portfolio.places
        if place.shared_usd != place.alone_usd
    ]
    for place in told:
        yield Paragraph(f"  {_place_sentence(place)}", width=LINE_WIDTH)
    for use in portfolio.owned:
        yield Paragraph(f"  {_owned_sentence(use)}", width=LINE_WIDTH)
    if not told:
        yield Paragraph(
            "  nothing is saved: no two with the same machines in one region commit to more "
            "together (buy.commit)",
            "dim",
            LINE_WIDTH,
        )
    if left_out:
        yield Paragraph(
            f"  left out: {', '.join(left_out)}: no service, ends by itself, or has no fleet",
            "warn",
            LINE_WIDTH,
        )


def _bill_row(bill: SharedBill, plan: Plan) -> tuple[str, ...]:
    """Return what a service pays alone and together, and its tokens at the latter."""
    return (
        bill.name,
        bill.machines,
        figures.dollars(bill.alone_usd, cents=True),
        figures.dollars(bill.shared_usd, cents=True),
        *token_cells(plan.cost.tokens, bill.shared_usd, bound_mark(plan)),
    )


def _place_sentence(place: SharedPlace) -> str:
    """Say how the machines of one place are bought, and what that saves."""
    cloud, machine_type, region = place.place
    on_demand = place.peak_nodes - place.owned - place.committed
    term = TERM_OF.get(place.purchase)
    term_name = term.name if term is not None else ""
    parts = [
        text
        for count, text in (
            (place.owned, f"{place.owned} owned"),
            (place.committed, f"{place.committed} for {term_name}"),
            (on_demand, f"{on_demand} on demand"),
        )
        if count
    ]
    saved_usd = place.alone_usd - place.shared_usd
    effect = (
        f"{figures.dollars(saved_usd)} a month less than alone"
        if saved_usd >= 0
        else f"{figures.dollars(-saved_usd)} a month more than alone, where each counts on all "
        "that is owned"
    )
    return (
        f"{', '.join(place.members)}: {place.peak_nodes} x {machine_type} at once on {cloud} "
        f"{region}: {' + '.join(parts)}: {effect}"
    )


def _owned_sentence(use: OwnedUse) -> str:
    """Say what is paid for already, and how much of it no service uses."""
    owned = use.machines
    return (
        f"owned: {owned.count} x {owned.type} in {owned.cloud} {owned.region}, "
        f"{anyway_text(owned.source, owned.usd_month)}, "
        f"{figures.percentage(1 - float(use.used_share))} of it unused by all of them"
    )


def quota_blocks(
    chosen: SharedChoice | None, remedy: Callable[[QuotaNeed], str]
) -> Iterator[Block]:
    """Yield the quotas that keep workloads from their cheapest fleets, and what that costs."""
    if chosen is None or not chosen.needs or chosen.usd is None:
        return
    more_usd = chosen.usd - chosen.usd_alone
    price = f"{figures.dollars(more_usd)} more" if more_usd else "no more"
    yield Paragraph(
        f"! the quotas of the account do not allow all of the cheapest fleets together: those "
        f"above cost {price}",
        "warn",
        LINE_WIDTH,
    )
    if chosen.gap_usd:
        yield Paragraph(
            "  the search ended before a proof: other fleets may cost up to "
            f"{figures.dollars(chosen.gap_usd)} less",
            width=LINE_WIDTH,
        )
    for need in chosen.needs:
        yield Paragraph(f"  {quota_text(need)}", width=LINE_WIDTH)
        yield Paragraph(f"  to raise it: {remedy(need)}")


def quota_text(need: QuotaNeed) -> str:
    """Say what the cheapest fleets need of a quota together, and what is left of it."""
    key = need.key
    return (
        f"the cheapest fleets need {need.units:g} of the quota {key.quota} in {key.cloud} "
        f"{key.region} at once, and {need.limit:g} are left"
    )

"""The page of several services that buy together: what each pays alone, and what together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from planner import figures
from planner.market.term import TERM_OF
from planner.render.bill import anyway_text
from planner.render.diff.wording import amount_text, bound_mark
from planner.render.page import (
    LINE_WIDTH,
    Block,
    Heading,
    Page,
    PageTable,
    Paragraph,
    total_row_tones,
)
from planner.render.token_cost import price_cells, token_titles

if TYPE_CHECKING:
    from collections.abc import Iterator

    from planner.plan.cost import OwnedCost
    from planner.plan.portfolio_document import (
        LeftOut,
        PortfolioDocument,
        PortfolioFleet,
        PortfolioMove,
        PortfolioPlace,
        PortfolioQuota,
        PortfolioWorkload,
        QuotaChoice,
    )

LEFT_OUT_TEXTS: Final[dict[LeftOut, str]] = {
    "no_fleet": "nothing meets it",
    "no_service": "no service",
    "ends": "ends by itself",
}


def portfolio_page(document: PortfolioDocument) -> Page:
    """Return the bill of each service alone and together, what they share, and what is short."""
    return (
        Heading(headline(document)),
        bill_table(document),
        *bill_notes(document),
        *shared_blocks(document),
        *one_fleet_blocks(document),
        *quota_blocks(document.quotas),
    )


def headline(document: PortfolioDocument) -> str:
    """Return how many services buy together, and what they pay, in one line."""
    count = len(document.shared)
    total = document.total
    return (
        f"{count} {'service' if count == 1 else 'services'} together  ·  "
        f"{amount_text(total.together, cents=False)} a month, "
        f"{amount_text(total.alone, cents=False)} alone"
    )


def bill_table(document: PortfolioDocument) -> PageTable:
    """Return what each service pays alone and together, and what its tokens cost at the latter."""
    shared = document.shared
    # Each service counts its tokens and requests.
    titles = token_titles(shared[0].tokens) if shared else ()
    return PageTable(
        ("service", "machines", ">$/mo alone", ">$/mo together", *titles),
        (
            *map(_bill_row, shared),
            (
                "all",
                "",
                amount_text(document.total.alone),
                amount_text(document.total.together),
                # Tokens of two models are never added up.
                *("",) * len(titles),
            ),
        ),
        total_row_tones(len(shared) + 1),
        LINE_WIDTH,
    )


def _bill_row(workload: PortfolioWorkload) -> tuple[str, ...]:
    mark = bound_mark(workload.together)
    return (
        workload.name,
        workload.machines_text,
        amount_text(workload.alone),
        amount_text(workload.together),
        *price_cells(workload.tokens, mark),
    )


def bill_notes(document: PortfolioDocument) -> list[Block]:
    """Return of what no price is known, and who is left out."""
    notes: list[Block] = [
        Paragraph(
            f"  no price is known of {', '.join(workload.unpriced)} of {workload.name}",
            "warn",
            LINE_WIDTH,
        )
        for workload in document.shared
        if workload.unpriced
    ]
    left_out = [
        f"{workload.name} ({LEFT_OUT_TEXTS[workload.left_out]})"
        for workload in document.workloads
        if workload.left_out is not None
    ]
    if left_out:
        notes.append(
            Paragraph(f"  left out: {', '.join(left_out)}", "warn", LINE_WIDTH)
        )
    return notes


def shared_blocks(document: PortfolioDocument) -> list[Block]:
    """Return how machines are bought together, what is owned, and by what fleets are chosen."""
    told = [place for place in document.places if place.saved_usd]
    blocks: list[Block] = [
        Paragraph(f"  {_place_sentence(place)}", width=LINE_WIDTH)
        for place in told
    ]
    blocks += [
        Paragraph(f"  {_owned_sentence(use)}", width=LINE_WIDTH)
        for use in document.owned
    ]
    if not told:
        blocks.append(
            Paragraph(
                "  these fleets save nothing together: no two with the same machines in one "
                "region commit to more together (buy.commit)",
                "dim",
                LINE_WIDTH,
            )
        )
    blocks += [
        Paragraph(
            f"  {_move_sentence(workload.name, workload.move)}",
            "good",
            LINE_WIDTH,
        )
        for workload in document.shared
        if workload.move
    ]
    # Commitments are shared after the choice, so no claim is made of fleets that were not chosen.
    blocks.append(
        Paragraph(f"  {_choice_sentence(document)}", "dim", LINE_WIDTH)
    )
    return blocks


def _move_sentence(name: str, move: PortfolioMove) -> str:
    """Say where a service has its machines for the others, and what its spec has to say."""
    alone = " + ".join(
        f"{pool.nodes} x {pool.instance_type} of {pool.provider} {pool.region}"
        for pool in move.alone
    )
    dearer = (
        f", {figures.dollars(move.dearer_usd)} a month less alone"
        if move.dearer_usd
        else ""
    )
    return (
        f"{name} would have {alone} alone{dearer}: apply buys what is counted here once "
        f"{name} says {move.where}"
    )


def _choice_sentence(document: PortfolioDocument) -> str:
    """Say by what the fleets were chosen, and what else was compared."""
    chosen = (
        "these fleets were chosen together, "
        f"{figures.dollars(document.moves_save_usd)} a month less than the cheapest of each"
        if document.moves_save_usd
        else "each fleet is chosen by what it costs alone"
    )
    parts = [chosen]
    if document.compared:
        count = (
            "one other was"
            if document.compared == 1
            else f"{document.compared} others were"
        )
        parts.append(
            f"{count} compared, on machines that a workload has or could have"
        )
    if not document.are_all_compared:
        parts.append(
            "others may cost less together (compare with where.accelerators, where.clouds, "
            "where.regions)"
        )
    return "; ".join(parts)


def one_fleet_blocks(document: PortfolioDocument) -> list[Block]:
    """Return which services would cost less on the same accelerators; nothing without any."""
    return [
        Paragraph(f"  {_one_fleet_sentence(group)}", "good", LINE_WIDTH)
        for group in document.one_fleets or ()
    ]


def _one_fleet_sentence(group: PortfolioFleet) -> str:
    host, *others = group.workloads
    return (
        f"{', '.join(group.workloads)} on one fleet: {group.nodes} x {group.instance_type} on "
        f"{group.provider} {group.region} for {figures.dollars(group.usd)} a month, "
        f"{figures.dollars(group.saved_usd)} less than alone: name {', '.join(others)} in "
        f"serving.beside of {host}"
    )


def _place_sentence(place: PortfolioPlace) -> str:
    """Say how the machines of one place are bought, and what that saves."""
    term = TERM_OF.get(place.purchase or "")
    term_name = term.name if term is not None else ""
    parts = [
        text
        for count, text in (
            (place.owned_nodes, f"{place.owned_nodes} owned"),
            (place.committed_nodes, f"{place.committed_nodes} for {term_name}"),
            (place.on_demand_nodes, f"{place.on_demand_nodes} on demand"),
        )
        if count
    ]
    names = ", ".join(share.workload for share in place.shares)
    saved = figures.dollars(abs(place.saved_usd))
    effect = (
        f"{saved} a month less than by each alone"
        if place.saved_usd >= 0
        else f"{saved} a month more than alone, where each counts on all that is owned"
    )
    return (
        f"{names}: {place.peak_nodes} x {place.instance_type} at once on "
        f"{place.provider} {place.region}: {' + '.join(parts)}: {effect}"
    )


def _owned_sentence(owned: OwnedCost) -> str:
    """Say what is paid for already, and how much of it no service uses."""
    return (
        f"owned: {owned.count} x {owned.machine} in {owned.cloud} {owned.region}, "
        f"{anyway_text(owned.source, owned.usd_month)}, "
        f"{figures.percentage(1 - owned.used_share)} of it unused by all of them"
    )


def quota_blocks(choice: QuotaChoice | None) -> Iterator[Block]:
    """Yield the quotas that keep workloads from their cheapest fleets, and what that costs."""
    if choice is None or not choice.short:
        return
    more_usd = choice.usd - choice.usd_unbound
    price = f"{figures.dollars(more_usd)} more" if more_usd else "no more"
    yield Paragraph(
        f"! the quotas of the account do not allow all of the cheapest fleets together: those "
        f"above cost {price}",
        "warn",
        LINE_WIDTH,
    )
    gap_usd = choice.usd - choice.bound_usd
    if gap_usd:
        yield Paragraph(
            "  the search ended before a proof: other fleets may cost up to "
            f"{figures.dollars(gap_usd)} less",
            width=LINE_WIDTH,
        )
    for quota in choice.short:
        yield Paragraph(f"  {quota_text(quota)}", width=LINE_WIDTH)
        yield Paragraph(f"  to raise it: {quota.next_step}")


def quota_text(quota: PortfolioQuota) -> str:
    """Say what the cheapest fleets need of a quota together, and what is left of it."""
    return (
        f"the cheapest fleets need {quota.needed:g} of the quota {quota.quota} in "
        f"{quota.provider} {quota.region} at once, and {quota.left:g} are left"
    )

"""What commitments to the machines of a fleet would save against on demand, and when they pay."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

from planner.cost.lifetime import life_hours
from planner.market.bought import CommitmentSaving
from planner.market.mix import mix_of, with_commitment, without_commitment
from planner.market.offer import OWNED_PURCHASE
from planner.market.owned import OwnedUse
from planner.market.regret import Regret
from planner.market.term import TERM_OF, TERM_PURCHASES
from planner.solve.serving.bill import (
    bought_parts,
    fleet_lifetime,
    serving_bill,
    settled_offer,
    span_hours,
)
from planner.units import HOURS_PER_MONTH

if TYPE_CHECKING:
    from collections.abc import Iterator

    from planner.market.offer import Catalog, Offer, PurchaseTier
    from planner.market.owned import OwnedMachines
    from planner.market.regret import Future
    from planner.solve.serving.candidate import ServingCandidate
    from planner.solve.serving.requirement import ServingRequirement
    from planner.solve.serving.sizing import FleetSizing


def commitment_options(
    requirement: ServingRequirement,
    selection: ServingCandidate,
    catalog: Catalog,
    futures: tuple[Future, ...],
) -> Iterator[CommitmentSaving]:
    """Yield each commitment that would save something, with the base for which it saves most.

    It is held against `futures` that may come instead of the planned one.

    What ends by itself, on spot, or in a reservation is not committed to.
    """
    bought = {*selection.bought.purchases}
    if requirement.period != "month" or not bought <= {
        "on_demand",
        OWNED_PURCHASE,
        *TERM_PURCHASES,
    }:
        return
    sizing = selection.sizing
    here = catalog.offers_by_place.get(selection.bought.key[:3], {})
    on_demand = here.get("on_demand")
    if on_demand is None:
        return
    plain = without_commitment(selection.bought, on_demand)
    plain_bill = serving_bill(requirement, sizing, plain, catalog.price_book)
    for purchase in TERM_PURCHASES:
        if purchase not in here:
            continue
        offer = settled_offer(
            requirement, sizing, with_commitment(plain, here[purchase])
        )
        bill = serving_bill(requirement, sizing, offer, catalog.price_book)
        if bill.total < plain_bill.total:
            yield _saving(
                requirement,
                sizing,
                offer,
                on_demand_usd_hour=on_demand.usd_hour,
                saved_usd=plain_bill.total - bill.total,
                markup=catalog.price_book.surcharges.factor,
                futures=futures,
            )


def owned_uses(
    requirement: ServingRequirement,
    selection: ServingCandidate,
    owned: tuple[OwnedMachines, ...],
) -> Iterator[OwnedUse]:
    """Yield what is owned with the share of its hours in which the fleet uses it.

    share = node-hours of the owned part / (machines that are owned there * hours of the period)
    Machines of another type, or elsewhere, are not used at all. Those that an account was found
    to have are told of the fleet alone: it may have bought many for something else.
    """
    offer, sizing = selection.bought, selection.sizing
    used_hours = sum(
        (
            part.node_hours
            for part in bought_parts(requirement, sizing, offer)
            if part.tier.purchase == OWNED_PURCHASE
        ),
        Decimal(0),
    )
    here = sum(machines.count for machines in owned if machines.are_of(offer))
    hours = life_hours(fleet_lifetime(requirement, sizing))
    for machines in owned:
        if machines.are_found and not machines.are_of(offer):
            continue
        yield OwnedUse(
            machines,
            used_hours / (here * hours)
            if machines.are_of(offer)
            else Decimal(0),
        )


def _saving(
    requirement: ServingRequirement,
    sizing: FleetSizing,
    offer: Offer,
    *,
    on_demand_usd_hour: Decimal,
    saved_usd: Decimal,
    markup: Decimal,
    futures: tuple[Future, ...],
) -> CommitmentSaving:
    """Return a commitment with what it saves a month, and what it loses in other futures.

    Both are with what comes on top of a bill, `markup` times their price.
    on demand  = committed USD a month + saved USD a month, which its machines would cost
    pays after = months of the term * committed USD a month / on demand
    pays above = hours of a month * committed USD an hour / USD an hour on demand
    """
    span, tier = _committed_span(offer, sizing)
    nodes = span[1] - span[0]
    months = TERM_OF[tier.purchase].months
    month_usd = nodes * tier.usd_hour * HOURS_PER_MONTH * markup
    on_demand_usd = month_usd + saved_usd
    planned_hours = span_hours(requirement, sizing, span)
    return CommitmentSaving(
        cloud=offer.provider,
        form=tier.form,
        purchase=tier.purchase,
        nodes=nodes,
        saved_usd=saved_usd,
        committed_usd=month_usd * months,
        pays_after_months=float(months * month_usd / on_demand_usd),
        pays_above_hours=float(
            HOURS_PER_MONTH * tier.usd_hour / on_demand_usd_hour
        ),
        regrets=tuple(
            Regret(
                scenario,
                scenario.regret_usd(
                    month_usd * months,
                    on_demand_usd
                    * span_hours(
                        requirement, sizing, span, float(scenario.load_share)
                    )
                    / planned_hours,
                    months,
                ),
            )
            for scenario in futures
        ),
    )


def _committed_span(
    offer: Offer, sizing: FleetSizing
) -> tuple[tuple[int, int], PurchaseTier]:
    """Return which machines are committed to, and how."""
    mix = mix_of(offer)
    spans = mix.spans(sizing.nodes, sizing.nodes_per_group)
    return next(
        (span, tier)
        for tier, span in zip(mix.tiers, spans, strict=True)
        if tier.purchase in TERM_PURCHASES
    )

"""What commitments to the machines of a fleet would save against on demand, and when they pay."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from planner.market.mix import all_above, committed_offers
from planner.market.purchase import TERM_MONTHS, TERM_PURCHASES
from planner.market.regret import Regret
from planner.solve.serving.bill import (
    running_base_hours,
    serving_bill,
    settled_offer,
)
from planner.solve.solution import CommitmentSaving
from planner.units import HOURS_PER_MONTH

if TYPE_CHECKING:
    from collections.abc import Iterator
    from decimal import Decimal

    from planner.market.offer import Catalog, Offer
    from planner.market.regret import Future
    from planner.solve.serving.requirement import ServingRequirement
    from planner.solve.serving.search import ServingCandidate
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
    bought = {*selection.offer.purchases}
    if requirement.period != "month" or not bought <= {
        "on_demand",
        *TERM_PURCHASES,
    }:
        return
    place = selection.offer.key[:3]
    here = tuple(offer for offer in catalog.offers if offer.key[:3] == place)
    nearby = replace(catalog, offers=here)
    sizing = selection.sizing
    for purchase in TERM_PURCHASES:
        for mixed in committed_offers(nearby, (purchase,)):
            assert mixed.mix is not None  # noqa: S101 - each of them is one
            offer = settled_offer(requirement, sizing, mixed)
            committed, plain = (
                serving_bill(requirement, sizing, bought, catalog.price_book)
                for bought in (offer, all_above(mixed, mixed.mix))
            )
            if committed.total < plain.total:
                yield _saving(
                    requirement,
                    sizing,
                    offer,
                    purchase,
                    saved_usd=plain.total - committed.total,
                    futures=futures,
                )


def _saving(
    requirement: ServingRequirement,
    sizing: FleetSizing,
    offer: Offer,
    purchase: str,
    *,
    saved_usd: Decimal,
    futures: tuple[Future, ...],
) -> CommitmentSaving:
    """Return a commitment with what it saves a month, and what it loses in other futures.

    on demand  = committed USD a month + saved USD a month, which its machines would cost
    pays after = months of the term * committed USD a month / on demand
    """
    nodes, usd_hour = _committed(offer, sizing)
    months = TERM_MONTHS[purchase]
    month_usd = nodes * usd_hour * HOURS_PER_MONTH
    on_demand_usd = month_usd + saved_usd
    planned_hours = running_base_hours(requirement, sizing, nodes)
    return CommitmentSaving(
        purchase=purchase,
        nodes=nodes,
        saved_usd=saved_usd,
        committed_usd=month_usd * months,
        pays_after_months=float(months * month_usd / on_demand_usd),
        regrets=tuple(
            Regret(
                scenario,
                scenario.regret_usd(
                    month_usd * months,
                    on_demand_usd
                    * running_base_hours(
                        requirement, sizing, nodes, float(scenario.load_share)
                    )
                    / planned_hours,
                    months,
                ),
            )
            for scenario in futures
        ),
    )


def _committed(offer: Offer, sizing: FleetSizing) -> tuple[int, Decimal]:
    """Return how many machines are committed to, and the price of one, USD an hour."""
    if offer.mix is not None:
        nodes = offer.mix.base_nodes(sizing.nodes, sizing.nodes_per_group)
        return nodes, offer.mix.base_usd
    if offer.purchase in TERM_PURCHASES:
        return sizing.nodes, offer.usd_hour
    return 0, offer.usd_hour

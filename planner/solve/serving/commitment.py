"""What commitments to the machines of a fleet would save against on demand, and when they pay."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from planner.market.mix import committed_offers
from planner.market.purchase import TERM_PURCHASES
from planner.solve.serving.bill import serving_bill, settled_offer
from planner.solve.solution import CommitmentSaving
from planner.units import HOURS_PER_MONTH

if TYPE_CHECKING:
    from collections.abc import Iterator
    from decimal import Decimal

    from planner.market.offer import Catalog, Offer
    from planner.solve.serving.requirement import ServingRequirement
    from planner.solve.serving.search import ServingCandidate
    from planner.solve.serving.sizing import FleetSizing

# The months of each term.
TERM_MONTHS: Final = {"reserved_1y": 12, "reserved_3y": 36}


def commitment_options(
    requirement: ServingRequirement,
    selection: ServingCandidate,
    catalog: Catalog,
) -> Iterator[CommitmentSaving]:
    """Yield each commitment that would save something, with the base for which it saves most.

    saved a month = bill with all machines on demand - bill with the base
    pays after    = months of the term * committed USD a month / (that + saved a month)

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
    for on_demand in here:
        if on_demand.purchase != "on_demand":
            continue
        plain = serving_bill(
            requirement, selection.sizing, on_demand, catalog.price_book
        )
        for purchase in TERM_PURCHASES:
            for mixed in committed_offers(nearby, (purchase,)):
                offer = settled_offer(requirement, selection.sizing, mixed)
                nodes, usd_hour = _committed(offer, selection.sizing)
                saved_usd = (
                    plain.total
                    - serving_bill(
                        requirement,
                        selection.sizing,
                        offer,
                        catalog.price_book,
                    ).total
                )
                if not nodes or saved_usd <= 0:
                    continue
                month_usd = nodes * usd_hour * HOURS_PER_MONTH
                months = TERM_MONTHS[purchase]
                yield CommitmentSaving(
                    purchase=purchase,
                    nodes=nodes,
                    saved_usd=saved_usd,
                    committed_usd=month_usd * months,
                    pays_after_months=float(
                        months * month_usd / (month_usd + saved_usd)
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

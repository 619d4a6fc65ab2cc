"""Serving fleets that were not chosen, each with why."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Final

from planner.solve.cause import DEARER, because
from planner.solve.rival import RivalFleet, billed_rival, ranked_rivals
from planner.solve.serving.rejection import nearest_rejected, rejection_reason
from planner.solve.serving.smaller_fleet import smaller_fleet

if TYPE_CHECKING:
    from planner.market.offer import Offer
    from planner.solve.cause import Cause
    from planner.solve.serving.candidate import ServingCandidate
    from planner.solve.serving.requirement import ServingRequirement
    from planner.solve.serving.search import ServingResult, ServingSearch

UNBOUNDED_USD: Final = Decimal("Infinity")


def alternatives(
    requirement: ServingRequirement,
    search: ServingSearch,
    search_result: ServingResult,
    selection: ServingCandidate,
    max_count: int,
) -> tuple[RivalFleet, ...]:
    """Return other fleets in the order of cost; `max_count` limits each kind of them."""
    pricier_options = [
        billed_rival(
            candidate.bought, candidate.sizing.nodes, candidate.bill, DEARER
        )
        for candidate in search_result.estimated[:max_count]
    ]
    # One group fewer shows which limit sets the size of the fleet.
    smaller = smaller_fleet(requirement, search, selection)
    smaller_options = [smaller] if smaller else []
    rejected_options = rejected_rivals(
        search_result, max_count, selection.bill.total
    )
    return ranked_rivals(
        [*pricier_options, *smaller_options, *rejected_options]
    )


def rejected_rivals(
    search_result: ServingResult,
    max_count: int,
    ceiling_usd: Decimal = UNBOUNDED_USD,
) -> tuple[RivalFleet, ...]:
    """Return the fleets that come nearest to the limits and miss one, and cost less than that."""
    return tuple(
        RivalFleet(
            offer=rejected_offer.offer,
            nodes=rejected_offer.nodes,
            usd=rejected_offer.usd_month,
            rejected_by=rejection_reason(rejected_offer.rejection),
            is_bound=True,
        )
        for rejected_offer in nearest_rejected(
            search_result.rejected_offers, ceiling_usd, max_count
        )
    )


def dearer_pool(alone: ServingCandidate | None) -> tuple[RivalFleet, ...]:
    """Return the cheapest fleet of one pool beside one of two, which costs less."""
    if alone is None:
        return ()
    return (billed_rival(alone.bought, alone.sizing.nodes, alone.bill, DEARER),)


def excluded_rival(
    excluded: ServingCandidate, selection: ServingCandidate
) -> RivalFleet:
    """Return a fleet that meets every limit, and that only the purchase rule excludes."""
    return billed_rival(
        excluded.bought,
        excluded.sizing.nodes,
        excluded.bill,
        _exclusion_reason(excluded.bought, selection.bought),
    )


def _exclusion_reason(offer: Offer, selected_offer: Offer) -> Cause:
    """Return the purchase rule of the spec that excludes a cheaper offer."""
    if offer.purchase == "spot" and selected_offer.purchase != "spot":
        return because("taken-back", "buy.spot")
    return because("commitment", "buy.commit")

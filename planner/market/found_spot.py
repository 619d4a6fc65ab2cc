"""What a machine type that is bought costs on spot, also where the planner may not choose it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from planner.market.slice import slice_offers
from planner.market.spot_age import at_deciding_price

if TYPE_CHECKING:
    from planner.market.offer import Catalog, Offer
    from planner.market.offer_filter import OfferFilter


def found_spot(
    market: OfferFilter,
    catalog: Catalog,
    bought: Offer,
    *,
    skipped_rule: str = "",
) -> Offer | None:
    """Return the cheapest offer on spot of a machine type, at the price by which it is judged.

    None where the rules of a spec allow none; the rule `skipped_rule` is not applied.
    """
    found = [
        offer
        for offer in (*catalog.offers, *slice_offers(catalog.offers))
        if offer.purchase == "spot"
        and offer.key[:2] == bought.key[:2]
        and market.violations(offer) <= {skipped_rule}
        and market.order.placed(offer) is not None
    ]
    if not found:
        return None
    cheapest = min(found, key=lambda offer: (offer.usd_hour, offer.key))
    return at_deciding_price(cheapest, catalog.as_of)

"""Why no machine of a service is on spot, where its spec lets some be."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from planner.market.found_spot import found_spot
from planner.market.mix import mix_of
from planner.market.offer import MIXED_PURCHASE
from planner.market.spot_age import at_deciding_price
from planner.perf.common.constant import constant
from planner.perf.reliability.spot_pool import OPEN_END
from planner.solve.cause import because
from planner.solve.serving.spot_promise import has_promise
from planner.solve.solution import PlanWarning
from planner.spec.model import Batch, Inference

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from planner.market.mix import BaseShare
    from planner.market.offer import Catalog, Offer
    from planner.market.offer_filter import OfferFilter
    from planner.solve.serving.candidate import ServingCandidate
    from planner.solve.serving.requirement import ServingRequirement


def is_spot_unused(
    requirement: ServingRequirement,
    offers: Iterable[Offer],
    selection: ServingCandidate,
) -> bool:
    """Whether a promise keeps a fleet off spot of which its spec says how much may be on it."""
    return "spot" not in selection.bought.purchases and any(
        offer.purchase == MIXED_PURCHASE
        and has_promise(requirement, offer)
        and not offer.is_above_promise
        for offer in offers
    )


def unused_spot_warnings(
    spec: Inference | Batch,
    requirement: ServingRequirement,
    offers: Sequence[Offer],
    selection: ServingCandidate,
) -> Iterator[PlanWarning]:
    """Yield why no machine is on spot: what is not known of reclaims, or the age of prices.

    A share on spot is of a service with one pool: a spec of two is refused (data/rules.csv).
    """
    base_share = spec.buy.on_demand_base
    if (
        base_share is None
        or "spot" in selection.bought.purchases
        or requirement.availability is None
        or requirement.mode == "batch"
        or _is_all_base(base_share, selection.sizing.total_groups)
    ):
        return
    cloud = selection.bought.provider
    mixes = [
        offer
        for offer in offers
        if offer.purchase == MIXED_PURCHASE and offer.provider == cloud
    ]
    if mixes and not any(map(_has_published_end, mixes)):
        reason = because("unknown-reclaims", "sla.availability", cloud=cloud)
    elif base_share == "auto" and all(map(_has_moved_price, mixes)):
        reason = because("aged-spot", "sla.availability")
    elif not mixes:
        return
    else:
        reason = because("unused-spot", "sla.availability")
    yield PlanWarning(code="spot-unused", reason=reason, place=spec.buy.place)


def undecided_batch_warnings(
    spec: Inference | Batch,
    market: OfferFilter,
    catalog: Catalog,
    bought: Offer,
) -> Iterator[PlanWarning]:
    """Yield that a batch has no machine on spot, where old or weak prices may be the cause."""
    if not isinstance(spec, Batch) or "spot" in bought.purchases:
        return
    spot = found_spot(market, catalog, bought)
    if spot is not None and spot.found_usd_hour is not None:
        reason = because(
            "aged-batch-type",
            "buy.spot",
            machine=bought.instance.instance_type,
            as_of=spot.as_of,
            found_usd=spot.found_usd_hour,
            upper_usd=spot.usd_hour,
        )
    elif any(
        offer.purchase == "spot"
        and not market.violations(offer)
        and (
            offer.is_weakly_priced
            or at_deciding_price(offer, catalog.as_of) != offer
        )
        for offer in catalog.offers
    ):
        reason = because("aged-batch", "buy.spot")
    else:
        return
    yield PlanWarning(code="spot-unused", reason=reason, place=spec.buy.place)


def refused_spot_warnings(
    requirement: ServingRequirement,
    offers: Sequence[Offer],
) -> Iterator[PlanWarning]:
    """Yield that a promise cannot be kept on spot alone, where that is all a spec allows.

    most = 1 - `reclaim_region` * `spot_away`: meanwhile all machines of a region are away
    """
    spot_offers = [offer for offer in offers if offer.purchases == ("spot",)]
    most_share = 1 - constant("spot_away") * constant("reclaim_region")
    if (
        len(spot_offers) < len(offers)
        or not spot_offers
        or not has_promise(requirement, spot_offers[0])
        or any(map(_has_published_end, spot_offers))
        or most_share >= float(requirement.availability or 0)
    ):
        return
    reason = because(
        "refused-spot",
        "sla.availability",
        cloud=", ".join(sorted({offer.provider for offer in spot_offers})),
        most_share=most_share,
    )
    yield PlanWarning(code="spot-refused", reason=reason)


def _has_published_end(offer: Offer) -> bool:
    """Whether its cloud says how many machines on spot are taken back at most."""
    band = offer.reclaim_band
    return band is not None and band.high_share < OPEN_END


def _has_moved_price(offer: Offer) -> bool:
    """Whether its price of spot counts at the upper end of what it may be today."""
    return any(tier.found_usd_hour is not None for tier in mix_of(offer).tiers)


def _is_all_base(base_share: BaseShare, groups: int) -> bool:
    """Whether the base alone is the whole fleet, rounded up."""
    return base_share != "auto" and math.ceil(groups * base_share) >= groups

"""Offers of machines that are bought on demand up to a base, and on spot above it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from planner.facts.cloud import clouds
from planner.market.offer import MIXED_PURCHASE, SpotMix

if TYPE_CHECKING:
    from collections.abc import Iterator
    from decimal import Decimal

    from planner.market.offer import Catalog, Instance, Offer


def mixed_offers(catalog: Catalog, base_share: Decimal) -> Iterator[Offer]:
    """Yield a mix of each machine type that a region sells on demand and on spot.

    price = share * on demand + (1 - share) * spot, at most on demand, USD an hour
    It bounds the mean price of every fleet from below: the base is rounded up, and serves first.
    """
    on_demand = {
        offer.key[:3]: offer
        for offer in catalog.offers
        if offer.purchase == "on_demand"
    }
    for spot in catalog.offers:
        base = on_demand.get(spot.key[:3])
        if (
            spot.purchase != "spot"
            or base is None
            or not may_be_mixed(spot.instance)
        ):
            continue
        yield replace(
            spot,
            purchase=MIXED_PURCHASE,
            usd_hour=min(
                base.usd_hour,
                base_share * base.usd_hour + (1 - base_share) * spot.usd_hour,
            ),
            zones=tuple(zone for zone in base.zones if zone in spot.zones),
            mix=SpotMix(
                base_share=base_share,
                on_demand_usd=base.usd_hour,
                spot_usd=spot.usd_hour,
            ),
        )


def may_be_mixed(instance: Instance) -> bool:
    """Whether machines of a type may be bought in two ways: on some fabrics they may not."""
    is_joined = instance.fabric == "infiniband" and instance.attaches_fabric(
        spans_nodes=False
    )
    return not is_joined or clouds()[instance.provider].mixes_on_fabric

"""Offers of machines that are bought in two ways: a base that serves first, and others above it.

Spot stands above a base on demand, and machines on demand above a base that is committed to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from msgspec.structs import replace

from planner.facts.cloud import clouds
from planner.market.offer import COMMITTED_MIX, MIXED_PURCHASE, PurchaseMix

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from decimal import Decimal

    from planner.market.offer import Catalog, Instance, Offer

# Cloud, machine type, region.
PlaceKey: TypeAlias = "tuple[str, str, str]"


def mixed_offers(catalog: Catalog, base_share: Decimal) -> Iterator[Offer]:
    """Yield a mix of each machine type that a region sells on demand and on spot.

    price = share * on demand + (1 - share) * spot, at most on demand, USD an hour
    It bounds the mean price of every fleet from below: the base is rounded up, and serves first.
    """
    on_demand = _offers_by_place(catalog, "on_demand")
    for place, spot in _offers_by_place(catalog, "spot").items():
        base = on_demand.get(place)
        if base is None or not may_be_mixed(spot.instance):
            continue
        yield replace(
            spot,
            purchase=MIXED_PURCHASE,
            usd_hour=min(
                base.usd_hour,
                base_share * base.usd_hour + (1 - base_share) * spot.usd_hour,
            ),
            zones=tuple(zone for zone in base.zones if zone in spot.zones),
            mix=PurchaseMix(
                base_purchase="on_demand",
                base_usd=base.usd_hour,
                above_purchase="spot",
                above_usd=spot.usd_hour,
                base_share=base_share,
            ),
        )


def committed_offers(
    catalog: Catalog, commitments: tuple[str, ...]
) -> Iterator[Offer]:
    """Yield a mix of each machine type that a region sells on demand and with a commitment.

    Of several commitments it is the cheapest: each bills every hour. Its price bounds the mean
    price of every fleet from below.
    """
    on_demand = _offers_by_place(catalog, "on_demand")
    committed: dict[PlaceKey, Offer] = {}
    for purchase in commitments:
        for place, offer in _offers_by_place(catalog, purchase).items():
            known = committed.get(place)
            if known is None or offer.usd_hour < known.usd_hour:
                committed[place] = offer
    for place, base in committed.items():
        above = on_demand.get(place)
        if above is None or above.usd_hour <= base.usd_hour:
            continue
        yield replace(
            base,
            purchase=COMMITTED_MIX,
            mix=PurchaseMix(
                base_purchase=base.purchase,
                base_usd=base.usd_hour,
                above_purchase="on_demand",
                above_usd=above.usd_hour,
            ),
        )


def _offers_by_place(
    catalog: Catalog, purchase: str
) -> Mapping[PlaceKey, Offer]:
    return {
        offer.key[:3]: offer
        for offer in catalog.offers
        if offer.purchase == purchase
    }


def all_above(mixed: Offer, mix: PurchaseMix) -> Offer:
    """Return a mix in which no machine is the base: it is bought in one way."""
    return replace(
        mixed, purchase=mix.above_purchase, usd_hour=mix.above_usd, mix=None
    )


def all_base(mixed: Offer, mix: PurchaseMix) -> Offer:
    """Return a mix in which every machine is the base: it is bought in one way."""
    return replace(
        mixed, purchase=mix.base_purchase, usd_hour=mix.base_usd, mix=None
    )


def best_base(
    mix: PurchaseMix,
    level_hours: Mapping[int, Decimal],
    committed_hours: Decimal,
) -> int:
    """Return of how many groups a base that is committed to costs the least.

    The k-th group is committed to when that costs less than the hours in which it runs:
    committed hours * committed price < hours of level k * price on demand
    `level_hours` are the hours in which at least so many groups run, for each number of groups
    of an hour: between two of them the hours are those of the larger one. As the hours fall with
    the level, the base is the largest level for which it pays.
    """
    return max(
        (
            groups
            for groups, hours in level_hours.items()
            if committed_hours * mix.base_usd < hours * mix.above_usd
        ),
        default=0,
    )


def undominated(mixed: Sequence[Offer]) -> Iterator[Offer]:
    """Yield the mixes of a machine type than which no other one is as cheap in both ways.

    The bill of a fleet falls with either price, so no other mix is cheaper. Of equal ones the
    first is taken.
    """
    priced = [(offer, offer.mix) for offer in mixed if offer.mix is not None]
    priced.sort(key=lambda pair: (pair[1].base_usd, pair[1].above_usd))
    least_above: Decimal | None = None
    for offer, mix in priced:
        if least_above is None or mix.above_usd < least_above:
            least_above = mix.above_usd
            yield offer


def may_be_mixed(instance: Instance) -> bool:
    """Whether machines of a type may be bought in two ways: on some fabrics they may not."""
    is_joined = instance.fabric == "infiniband" and instance.attaches_fabric(
        spans_nodes=False
    )
    return not is_joined or clouds()[instance.provider].mixes_on_fabric

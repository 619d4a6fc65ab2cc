"""Offers of machines that are bought in several ways: those of the first serve first.

What is owned comes before what is committed to, that before machines on demand, and these before
machines on spot.
"""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Literal, TypeAlias

from msgspec.structs import replace

from planner.facts.cloud import clouds
from planner.market.offer import (
    COMMITTED_MIX,
    MIXED_PURCHASE,
    OWNED_MIX,
    OWNED_PURCHASE,
    PurchaseMix,
    PurchaseTier,
)
from planner.market.spot_age import deciding_spot
from planner.market.term import TERM_PURCHASES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from planner.market.offer import Catalog, Instance, Offer
    from planner.market.owned import OwnedMachines

# A share of the machines at the peak, or as many as a promise of availability needs.
BaseShare: TypeAlias = 'Decimal | Literal["auto"]'
# Cloud, machine type, region.
PlaceKey: TypeAlias = "tuple[str, str, str]"


def mixed_offers(
    catalog: Catalog,
    *,
    commitments: tuple[str, ...] = (),
    base_share: BaseShare | None = None,
    owned: tuple[OwnedMachines, ...] = (),
) -> Iterator[Offer]:
    """Yield the mixes of each machine type that a region sells on demand, and in another way.

    `commitments` may be bought for machines that run in enough hours. With `base_share` there is
    a mix too whose machines above that share of the peak are on spot; where that is for the
    planner to say, prices of spot that are weak are left out, and those that may have moved
    count at their upper end. `owned` is what is paid for already.
    """
    on_demand = _offers_by_place(catalog, "on_demand")
    committed = _cheapest_committed(catalog, commitments)
    spot = _offers_by_place(catalog, "spot") if base_share is not None else {}
    for place, offer in on_demand.items():
        first_tiers = [
            *_owned_tiers(offer, owned),
            *_committed_tiers(offer, committed.get(place)),
        ]
        if first_tiers:
            yield _mixed(offer, [*first_tiers, _tier(offer)])
        above = spot.get(place)
        if (
            base_share is None
            or above is None
            or not may_be_mixed(offer.instance)
        ):
            continue
        if base_share == "auto":
            above = deciding_spot(above, offer, catalog.as_of)
            if above is None:
                continue
        yield above_base(offer, above, base_share, first_tiers)


def above_base(
    on_demand: Offer,
    spot: Offer,
    base_share: BaseShare,
    first_tiers: Sequence[PurchaseTier] = (),
) -> Offer:
    """Return the mix of machines on demand with others on spot, in the zones that have both.

    `first_tiers` serve before them.
    """
    with_spot = replace(
        on_demand,
        zones=tuple(zone for zone in on_demand.zones if zone in spot.zones),
        reclaim_band=spot.reclaim_band,
    )
    return _mixed(
        with_spot,
        [
            *first_tiers,
            _base_tier(on_demand, base_share),
            _tier(spot),
        ],
    )


def _mixed(offer: Offer, tiers: Sequence[PurchaseTier]) -> Offer:
    """Return an offer of several tiers, with a price below the mean of what is not owned.

    least = the cheapest way of those that are not owned, without the last
    price = min(least, share * least + (1 - share) * last), with the share below the last
    The share is rounded up, so a fleet has no more in the last way than that. It is 0 where a
    fleet decides it.
    """
    *_, last = bought = [tier for tier in tiers if tier.owned is None]
    base = bought[:-1] or bought
    least = min(tier.usd_hour for tier in base)
    share = base[-1].share or Decimal(0)
    usd_hour = min(least, share * least + (1 - share) * last.usd_hour)
    if last.purchase == "spot":
        purchase = MIXED_PURCHASE
    else:
        purchase = OWNED_MIX if tiers[0].owned else COMMITTED_MIX
    return replace(
        offer,
        purchase=purchase,
        usd_hour=usd_hour,
        mix=PurchaseMix(tuple(tiers)),
    )


def _tier(offer: Offer) -> PurchaseTier:
    return PurchaseTier(
        purchase=offer.purchase,
        usd_hour=offer.usd_hour,
        source=offer.source,
        as_of=offer.as_of,
        form=offer.form,
        found_usd_hour=offer.found_usd_hour,
    )


def _base_tier(offer: Offer, base_share: BaseShare) -> PurchaseTier:
    """Return the machines below those on spot."""
    if base_share == "auto":
        return replace(_tier(offer), is_promised=True)
    return replace(_tier(offer), share=base_share)


def _owned_tiers(
    offer: Offer, owned: tuple[OwnedMachines, ...]
) -> Iterator[PurchaseTier]:
    """Yield what is owned of a machine type in a region: it costs nothing more."""
    here = [machines for machines in owned if machines.are_of(offer)]
    if here:
        yield PurchaseTier(
            purchase=OWNED_PURCHASE,
            usd_hour=Decimal(0),
            owned=sum(machines.count for machines in here),
            source=", ".join(
                dict.fromkeys(machines.source for machines in here)
            ),
        )


def _committed_tiers(
    on_demand: Offer, committed: Offer | None
) -> Iterator[PurchaseTier]:
    """Yield the commitment to a machine type in a region, where it is cheaper than on demand."""
    if committed is not None and committed.usd_hour < on_demand.usd_hour:
        yield _tier(committed)


def _cheapest_committed(
    catalog: Catalog, commitments: tuple[str, ...]
) -> Mapping[PlaceKey, Offer]:
    """Return the cheapest of several commitments at each place: each bills every hour."""
    committed: dict[PlaceKey, Offer] = {}
    for purchase in commitments:
        for place, offer in _offers_by_place(catalog, purchase).items():
            known = committed.get(place)
            if known is None or offer.usd_hour < known.usd_hour:
                committed[place] = offer
    return committed


def _offers_by_place(
    catalog: Catalog, purchase: str
) -> Mapping[PlaceKey, Offer]:
    return {
        place: here[purchase]
        for place, here in catalog.offers_by_place.items()
        if purchase in here
    }


def mix_of(offer: Offer) -> PurchaseMix:
    """Return the ways in which machines of an offer are bought; often it is one."""
    return offer.mix or PurchaseMix((_tier(offer),))


def with_commitment(mixed: Offer, committed: Offer) -> Offer:
    """Return an offer with a commitment of which nothing is decided yet, before its last tiers."""
    tiers = mix_of(mixed).tiers
    owned = [tier for tier in tiers if tier.owned is not None]
    return replace(
        mixed,
        mix=PurchaseMix(
            (
                *owned,
                _tier(committed),
                *(tier for tier in tiers if tier.owned is None),
            )
        ),
    )


def without_commitment(mixed: Offer, on_demand: Offer) -> Offer:
    """Return an offer whose committed machines are on demand instead."""
    if mixed.mix is None:
        return on_demand if mixed.purchase in TERM_PURCHASES else mixed
    tiers = [
        tier for tier in mixed.mix.tiers if tier.purchase not in TERM_PURCHASES
    ]
    if all(tier.owned is not None for tier in tiers):
        tiers.append(_tier(on_demand))
    if len(tiers) > 1:
        return _mixed(mixed, tiers)
    return replace(
        mixed,
        purchase=tiers[0].purchase,
        usd_hour=tiers[0].usd_hour,
        mix=None,
    )


def settled_mix(
    mix: PurchaseMix,
    level_hours: Mapping[int, Decimal],
    committed_hours: Decimal,
    group_nodes: int,
    *,
    most_groups: int | None = None,
) -> PurchaseMix:
    """Return a mix whose commitment is for as many groups as cost the least.

    How many are on demand below others on spot is decided before. `level_hours` has the hours in
    which at least so many groups run. Machines on spot are not committed to: those above the
    base, or above its share of the peak. No more than `most_groups` are: each group below the
    cheapest number saves something, so the nearest number to it costs the least.
    """
    decided = []
    for number, tier in enumerate(mix.tiers):
        if tier.is_open:
            instead = mix.tiers[number + 1]
            peak_groups = max(level_hours, default=0)
            reach = (
                instead.end(peak_groups * group_nodes, group_nodes)
                // group_nodes
            )
            groups = best_base(
                tier.usd_hour,
                instead.usd_hour,
                {
                    min(level, reach): hours
                    for level, hours in sorted(
                        level_hours.items(), reverse=True
                    )
                },
                committed_hours,
            )
            if most_groups is not None:
                groups = min(groups, most_groups)
            decided.append(replace(tier, groups=groups))
        else:
            decided.append(tier)
    return PurchaseMix(tuple(decided))


def best_base(
    committed_usd: Decimal,
    on_demand_usd: Decimal,
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
            if committed_hours * committed_usd < hours * on_demand_usd
        ),
        default=0,
    )


def undominated(
    mixed: Sequence[Offer], *, counts_zones: bool = False
) -> Iterator[Offer]:
    """Yield the mixes of a machine type than which no other one is as cheap in all its ways.

    The bill of a fleet falls with the price of any tier, so no other mix is cheaper. Of equal
    ones the first is taken. Where more is owned, or machines on spot are taken back less often
    or are in another number of zones, a mix is a choice of its own. With `counts_zones` another
    number of zones makes it one however its machines are bought. One that a quota bounds stands
    in for no other.
    """
    kept: list[Offer] = []
    for offer in sorted(mixed, key=_tier_prices):
        if not any(
            not other.quotas
            and _is_as_cheap(other, offer)
            and _is_as_lasting(other, offer)
            and (not counts_zones or _zone_count(other) == _zone_count(offer))
            for other in kept
        ):
            kept.append(offer)
            yield offer


def _zone_count(offer: Offer) -> int:
    return offer.zone_count(together=False)


def _tier_prices(offer: Offer) -> tuple[Decimal, ...]:
    return tuple(tier.usd_hour for tier in mix_of(offer).tiers)


def _is_as_cheap(one: Offer, other: Offer) -> bool:
    """Whether a mix has the ways of another, and each of them costs as much at most."""
    tiers, other_tiers = mix_of(one).tiers, mix_of(other).tiers
    pairs = list(zip(tiers, other_tiers, strict=False))
    return len(tiers) == len(other_tiers) and all(
        mine.purchase == its.purchase
        and (mine.owned or 0) >= (its.owned or 0)
        and mine.usd_hour <= its.usd_hour
        for mine, its in pairs
    )


def _is_as_lasting(one: Offer, other: Offer) -> bool:
    """Whether spot machines of a mix are in as many zones, and are taken back as rarely.

    More zones are not better by themselves: with few spare machines each is one more that goes.
    """
    if "spot" not in one.purchases:
        return True
    mine, its = one.reclaim_band, other.reclaim_band
    return one.zone_count(together=False) == other.zone_count(
        together=False
    ) and (
        mine == its
        or (
            mine is not None
            and its is not None
            and mine.high_share <= its.high_share
        )
    )


def may_be_mixed(instance: Instance) -> bool:
    """Whether machines of a type may be bought in two ways: on some fabrics they may not."""
    is_joined = instance.fabric == "infiniband" and instance.attaches_fabric(
        spans_nodes=False
    )
    return not is_joined or clouds()[instance.provider].mixes_on_fabric

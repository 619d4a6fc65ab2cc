"""A catalog as an account has it: its zones, quotas, and the prices of today."""

from __future__ import annotations

import math
from collections import Counter
from decimal import Decimal
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from planner.facts.table import is_price
from planner.market.capacity import (
    LIMITED_PURCHASES,
    PEAK_LOAD,
    quota_purchase,
)
from planner.market.commitment import free_machines
from planner.market.live import NO_ZONE, QuotaCap, QuotaKey
from planner.market.offer import QuotaNodes
from planner.market.own_reclaims import own_band

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from planner.market.live import LiveFacts, PlaceFacts, QuotaFact
    from planner.market.offer import Catalog, Instance, Offer, ReclaimBand
    from planner.market.offer_key import OfferKey

PRICE_STEP: Final = Decimal("0.000001")


def with_live(
    catalog: Catalog,
    facts: LiveFacts,
    standing: Mapping[OfferKey, int],
    caps: Sequence[QuotaCap] = (),
) -> Catalog:
    """Return a catalog as an account has it, where it was asked.

    What nobody answers stays as it is. `standing` are the machines of the stack itself, by what
    they were bought as: they are used of a quota, and are there for the next plan. `caps` leave
    the rest of a quota to other stacks.
    """
    if not facts.places:
        return catalog
    used = standing_nodes(standing)
    return replace(
        catalog,
        offers=tuple(_live_offers(catalog.offers, facts, used, caps)),
        unlisted=tuple(_live_offers(catalog.unlisted, facts, used, caps)),
        owned=tuple(
            machines
            for place in facts.places
            for machines in free_machines(place, catalog, standing)
        ),
    )


def standing_nodes(standing: Mapping[OfferKey, int]) -> Counter[OfferKey]:
    """Return machines by the quota that counts them: of a cloud, a type and a region."""
    nodes: Counter[OfferKey] = Counter()
    for key, count in standing.items():
        nodes[*key[:3], quota_purchase(key[3])] += count
    return nodes


def machine_units(instance: Instance, quota: QuotaFact) -> int:
    """Return how many units of a quota a machine takes."""
    return instance.vcpu if quota.unit == "vcpus" else instance.accelerators


def _live_offers(
    offers: Iterable[Offer],
    facts: LiveFacts,
    standing: Mapping[OfferKey, int],
    caps: Sequence[QuotaCap],
) -> Iterator[Offer]:
    places = {(place.cloud, place.region): place for place in facts.places}
    for offer in offers:
        place = places.get((offer.provider, offer.region))
        if place is None:
            yield offer
            continue
        zones = _offered_zones(offer, place)
        if zones is not None:
            yield _at_live_price(
                replace(
                    offer,
                    zones=zones,
                    quotas=tuple(_quota_nodes(offer, place, standing, caps)),
                    reclaim_band=_reclaim_band(offer, place),
                ),
                place,
            )


def _reclaim_band(offer: Offer, place: PlaceFacts) -> ReclaimBand | None:
    """Return how often machines on spot are taken back: the account's own, where enough ran."""
    answer = place.reclaims
    facts = answer.value if answer is not None else None
    fact = (facts or {}).get(offer.instance.instance_type)
    if answer is None or fact is None or offer.purchase != "spot":
        return offer.reclaim_band
    return own_band(fact, answer.as_of) or offer.reclaim_band


def _offered_zones(offer: Offer, place: PlaceFacts) -> tuple[str, ...] | None:
    """Return the zones in which an account may have a machine type; None where it may not.

    A type that the catalog has in no zone is one of the region.
    """
    answers = place.zones.value
    machine_type = offer.instance.instance_type
    if answers is None or machine_type not in answers:
        return offer.zones
    offered = answers[machine_type]
    if not offered:
        return None
    if not offer.zones:
        return ()
    return tuple(sorted(zone for zone in offered if zone != NO_ZONE))


def _quota_nodes(
    offer: Offer,
    place: PlaceFacts,
    standing: Mapping[OfferKey, int],
    caps: Sequence[QuotaCap],
) -> Iterator[QuotaNodes]:
    """Yield how many machines of an offer's type the quotas of each purchase leave.

    machines = those of the stack that stand + floor(free units / units of a machine)
    With a cap on what the stack may add, at some load, they are that over units of a machine.
    """
    instance = offer.instance
    for purchase in LIMITED_PURCHASES:
        answer = place.quotas.get(purchase)
        facts = answer.value if answer is not None else None
        key = (place.cloud, place.region, instance.instance_type, purchase)
        for fact in facts or ():
            if fact.free is None or instance.instance_type not in (
                fact.machine_types
            ):
                continue
            quota_key = QuotaKey(place.cloud, place.region, purchase, fact.id)
            all_hours = QuotaCap(quota_key, PEAK_LOAD, fact.free)
            for cap in (all_hours, *caps):
                if cap.key != quota_key:
                    continue
                added = math.floor(cap.units / machine_units(instance, fact))
                yield QuotaNodes(
                    purchase=purchase,
                    nodes=standing.get(key, 0) + added,
                    quota=fact.name,
                    load=cap.load,
                )


def zone_mean(
    by_zone: Mapping[str, Decimal], zones: tuple[str, ...]
) -> Decimal | None:
    """Return the mean of the prices in some zones, or that of the region; None without one."""
    prices = [usd for zone, usd in by_zone.items() if zone in (NO_ZONE, *zones)]
    return sum(prices, Decimal(0)) / len(prices) if prices else None


def _at_live_price(offer: Offer, place: PlaceFacts) -> Offer:
    """Return an offer at the price of today, where its cloud says one.

    A fleet is spread over its zones, so its price on spot is their mean.
    """
    machine_type = offer.instance.instance_type
    if offer.purchase == "on_demand":
        answer_time = place.on_demand_usd.as_of
        price = (place.on_demand_usd.value or {}).get(machine_type)
    elif offer.purchase == "spot":
        answer_time = place.spot_usd.as_of
        by_zone = (place.spot_usd.value or {}).get(machine_type, {})
        price = zone_mean(by_zone, offer.zones)
    else:
        return offer
    # What nothing may cost is no answer.
    if price is None or not is_price(price):
        return offer
    return replace(
        offer,
        usd_hour=price.quantize(PRICE_STEP).normalize(),
        basis="observed",
        source=f"asked of {place.cloud}",
        as_of=answer_time[:10],
        confidence="high",
        old_price=None,
        price_range=None,
    )

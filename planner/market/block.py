"""The offer of a capacity block that a spec names."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import TYPE_CHECKING

from msgspec.structs import replace

from planner.cost.capacity_block import BLOCK_PURCHASE
from planner.errors import Problem, SpecError
from planner.facts.cloud import clouds
from planner.spec.model import Training
from planner.spec.reservation import Reservation, zone_name
from planner.suggest import closest
from planner.units import SECONDS_PER_HOUR

if TYPE_CHECKING:
    from planner.market.offer import Catalog, Offer
    from planner.spec.block import CapacityBlock
    from planner.spec.model import Spec


def block_offer(catalog: Catalog, block: CapacityBlock) -> Offer:
    """Return a block as an offer of its machines.

    USD an hour = USD of the block / (machines * hours)
    Raises SpecError for a machine type, or a zone, that the catalog does not have.
    """
    provider = _cloud_of(block)
    known_offer = next(
        (
            offer
            for offer in (*catalog.offers, *catalog.unlisted)
            if offer.key[:2] == (provider, block.type)
        ),
        None,
    )
    if known_offer is None:
        raise SpecError(
            Problem(
                code="block",
                message=f"{provider} has no machine type {block.type}",
                place=block.place,
                next_step="see those that there are: tonnage offers --clouds "
                f"{provider} --limit 1000",
            )
        )
    _check_zone(catalog, provider, block)
    machine_hours = block.machines * Decimal(
        block.duration_s / SECONDS_PER_HOUR
    )
    return replace(
        known_offer,
        region=block.region,
        zones=(block.zone,),
        purchase=BLOCK_PURCHASE,
        usd_hour=block.usd / machine_hours,
        basis="observed",
        source=f"buy.block: {block.id}",
        as_of=catalog.as_of,
        confidence="high",
        old_price=None,
        price_range=None,
        reclaim_band=None,
        reservation=Reservation(
            cloud=provider,
            id=block.id,
            place=block.zone,
            machines=block.machines,
            instance_type=block.type,
        ),
        block=block,
    )


def may_buy_block(spec: Spec) -> bool:
    """Whether a spec may name a block that it does not yet, as the rules of buy.block have it."""
    buy = spec.buy
    return (
        isinstance(spec, Training)
        and buy.block is None
        and not buy.reservations
        and buy.spot != "only"
        and set(buy.commit) == {"none"}
        and not buy.flex_start
        and spec.shutdown.ttl is None
    )


def _check_zone(catalog: Catalog, provider: str, block: CapacityBlock) -> None:
    """Raise SpecError for a zone that a cloud does not have."""
    zones = {
        zone_name(offer.region, zone)
        for offer in catalog.offers
        if offer.provider == provider
        for zone in offer.zones
    }
    if block.zone not in zones:
        raise SpecError(
            Problem(
                code="block",
                message=f"{provider} has no zone {block.zone}",
                place=block.place,
                next_step="write the zone that the offering has, such as "
                f"{closest(block.zone, sorted(zones)) or min(zones)}",
            )
        )


def _cloud_of(block: CapacityBlock) -> str:
    """Return the cloud that writes the id of a block so."""
    return next(
        cloud
        for cloud, facts in clouds().items()
        if re.fullmatch(facts.block_form, block.id)
    )

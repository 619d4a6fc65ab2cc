"""The fleet that stands already: a plan leaves it only when that saves more than moving costs."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from planner.cost.bill_line import egress_lines, sum_lines
from planner.units import SECONDS_PER_MONTH
from planner.workload.fallback import cheapest_among

if TYPE_CHECKING:
    from collections.abc import Collection

    from planner.market.offer import Catalog, Offer
    from planner.market.offer_key import OfferKey
    from planner.solve.settings import SolveSettings
    from planner.solve.solution import FleetSummary, SizedPool, Solution
    from planner.spec.model import Spec


class Staying(Struct, frozen=True):
    """A cheaper fleet that is not moved to, and why.

    saved_usd   what it would save a month, USD
    moving_usd  what moving to it costs once, USD
    """

    fleet: FleetSummary
    saved_usd: Decimal
    moving_usd: Decimal


def stay_or_move(
    spec: Spec,
    settings: SolveSettings,
    solution: Solution,
    standing: Collection[OfferKey],
) -> tuple[Solution, Staying | None]:
    """Return the solution to apply where a fleet stands, and what is not moved to.

    A plan moves when saving * horizon > cost of moving, with the saving of a month and
    `buy.horizon` in months. What ends by itself is not moved for its price: it has no next month.
    """
    bill = solution.bill
    if (
        not standing
        or bill is None
        or bill.period != "month"
        or offer_keys(solution) == set(standing)
    ):
        return solution, None
    stays = cheapest_among(
        spec, settings, lambda offer: _place_keys(offer) <= set(standing)
    )
    if stays is None or stays.bill is None:
        return solution, None
    saved_usd = stays.bill.total - bill.total
    moving_usd = _moving_usd(stays, solution, settings.catalog)
    horizon_months = spec.buy.horizon / SECONDS_PER_MONTH
    if saved_usd * horizon_months > moving_usd:
        return solution, None
    fleet = solution.summary
    # What stops other fleets was found for the cheapest one, and holds for this one too.
    kept = replace(stays, alternatives=solution.alternatives)
    return kept, Staying(fleet, saved_usd, moving_usd)


def stay_in_zones(
    solution: Solution, zones: Collection[tuple[str, str, str]]
) -> Solution:
    """Return a solution whose pools begin with the zones in which machines stand already.

    Each of `zones` is a cloud, a region and a zone. Disks, file systems and the machines of other
    pools are there; a fleet in one zone is in the first one of its pool.
    """
    return replace(
        solution,
        pools=tuple(
            replace(pool, zones=_standing_first(pool, zones))
            for pool in solution.pools
        ),
    )


def _standing_first(
    pool: SizedPool, zones: Collection[tuple[str, str, str]]
) -> tuple[str, ...]:
    """Return the zones of a pool in their order, after those in which machines stand."""
    place = (pool.instance.provider, pool.region)
    return tuple(
        sorted(pool.zones, key=lambda zone: (*place, zone) not in zones)
    )


def offer_keys(solution: Solution) -> set[OfferKey]:
    """Return what a solution buys: cloud, region, machine type and purchase option of each."""
    return {
        (
            pool.instance.provider,
            pool.region,
            pool.instance.instance_type,
            part.purchase,
        )
        for pool in solution.pools
        for part in pool.purchases
    }


def _place_keys(offer: Offer) -> set[OfferKey]:
    """Return the keys of an offer as plans write them: one for each way in which it is bought."""
    provider, instance_type, region, _ = offer.key
    return {
        (provider, region, instance_type, purchase)
        for purchase in offer.purchases
    }


def _moving_usd(stays: Solution, moves: Solution, catalog: Catalog) -> Decimal:
    """Return what it costs to move, USD.

    cost = hours in which both stand * USD an hour of the new + egress of what is stored, where the
    place is another one
    """
    if stays.bill is None or moves.bill is None:
        return Decimal(0)
    overlap_hours = catalog.price_book.used("overlap_hours")
    overlap_usd = overlap_hours * moves.bill.usd_hour
    places = {(pool.instance.provider, pool.region) for pool in stays.pools}
    if places == {
        (pool.instance.provider, pool.region) for pool in moves.pools
    }:
        return overlap_usd
    stored_gb = sum(
        (
            line.quantity
            for line in stays.bill.lines
            if line.kind == "object_storage"
        ),
        Decimal(0),
    )
    egress_usd, _ = sum_lines(
        egress_lines(
            stays.pools[0].instance.provider, stored_gb, catalog.price_book
        )
    )
    return overlap_usd + egress_usd

"""How many machines may be on spot so that a promise of availability is kept.

Machines on spot are taken back, nearly always all of a type and zone at once, and come back after
hours. So the promise is held against the highest published rate of reclaims.
"""

from __future__ import annotations

import math
from collections import defaultdict
from functools import cache
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from planner.cost.weekly_load import SpareGroups, needed_groups
from planner.market.capacity import known_limit
from planner.market.mix import mix_of
from planner.market.offer import PurchaseMix
from planner.perf.reliability.spot_pool import (
    billed_share,
    quorum_share,
    spot_pool,
)
from planner.solve.serving.sizing import LayoutRejection, startup_time_s
from planner.solve.serving.spare_groups import group_availability

if TYPE_CHECKING:
    from collections.abc import Iterator

    from planner.market.offer import Offer
    from planner.perf.common.layout import ReplicaLayout
    from planner.perf.reliability.spot_pool import RateEnd, SpotPool
    from planner.solve.serving.requirement import ServingRequirement
    from planner.solve.serving.sizing import FleetSizing

UNKEPT: Final = "sla.availability"  # a promise that no number of machines keeps
# Spare groups of one zone, beyond twice those that it needs, after which more help no longer.
FURTHER_SPARES: Final = 8


def has_promise(requirement: ServingRequirement, offer: Offer) -> bool:
    """Whether reclaims of an offer's machines count against a promise."""
    return (
        requirement.availability is not None
        and requirement.mode != "batch"
        and "spot" in offer.purchases
    )


def _pool_of(
    offer: Offer, end: RateEnd, group_nodes: int, startup_s: float
) -> SpotPool:
    """Return the machines of an offer on spot; those that work together are in one zone."""
    together = group_nodes > 1 or offer.instance.fabric == "infiniband"
    band = offer.reclaim_band
    return spot_pool(
        offer.provider,
        offer.instance.family,
        end,
        zones=offer.zone_count(together=together),
        group_nodes=group_nodes,
        startup_s=startup_s,
        band=(band.low_share, band.high_share) if band is not None else None,
    )


def beyond_promise(
    requirement: ServingRequirement, offer: Offer, layout: ReplicaLayout
) -> LayoutRejection | None:
    """Return that no number of machines on spot alone keeps a promise, known without sizing one.

    share <= 1 - `region_away`: while all of them are away, nothing is up
    A slower start or more machines to a replica only make it less.
    """
    if not has_promise(requirement, offer) or offer.purchases != ("spot",):
        return None
    pool = _pool_of(offer, "high", group_nodes=1, startup_s=0.0)
    wanted = float(requirement.availability or 0)
    if 1 - pool.region_away >= wanted:
        return None
    return LayoutRejection(
        layout=layout,
        constraint=UNKEPT,
        reached=1 - pool.region_away,
        limit=wanted,
    )


def least_usd_hour(requirement: ServingRequirement, offer: Offer) -> float:
    """Return what a machine costs at least, as a mean over the hours of a fleet, USD an hour.

    Machines on spot are billed for a share b of these hours at least: `billed_share` without a
    start-up. No machine costs less than b times the price of its offer.

    While all machines on spot are away, only the base is up. With a promise A that may be in
    x = (1 - A) / `region_away` of the running time at most, so the base is as large as the load
    of which a share x of the time has more.
    s = sum of time * max(0, load - base load) / sum of time * load, the share on spot at most
    price = (1 - s) * that of the base + s * b * spot, if the base is dearer
    Other machines than those that the load needs, and a slower start, only make it dearer.
    """
    usd_hour = float(offer.usd_hour)
    if "spot" not in offer.purchases or requirement.mode == "batch":
        return usd_hour
    least_usd = usd_hour * _least_billed(offer)
    if not has_promise(requirement, offer) or not offer.is_above_promise:
        return least_usd
    tiers = offer.mix.tiers if offer.mix is not None else ()
    *base, spot = [tier for tier in tiers if tier.owned is None]
    base_usd = float(min(tier.usd_hour for tier in base))
    spot_usd = float(spot.usd_hour) * _least_billed(offer)
    pool = _pool_of(offer, "high", group_nodes=1, startup_s=0.0)
    time_left = 1 - float(requirement.availability or 0)
    base_load = 0.0
    loads = requirement.week.load_shares
    for load, time_share in reversed(loads):
        time_left -= time_share * pool.region_away
        if time_left < 0:
            base_load = load
            break
    above = sum(share * max(0.0, load - base_load) for load, share in loads)
    spot_share = above / sum(share * load for load, share in loads)
    mean_usd = (1 - spot_share) * base_usd + spot_share * spot_usd
    return max(least_usd, min(base_usd, mean_usd))


def _least_billed(offer: Offer) -> float:
    """Return for which share of its hours a machine on spot is billed at least."""
    return billed_share(offer.provider, offer.instance.family)


class SpotPromise:
    """The promise of a requirement, held by a fleet whose last machines are on spot."""

    def __init__(
        self,
        requirement: ServingRequirement,
        sizing: FleetSizing,
        offer: Offer,
        end: RateEnd = "high",
    ) -> None:
        self._sizing = sizing
        self._offer = offer
        self._prices = [
            tier.usd_hour for tier in mix_of(offer).tiers if tier.owned is None
        ]
        needed: defaultdict[tuple[int, float], float] = defaultdict(float)
        for load, time_share in requirement.week.load_shares:
            # Spares that run from some load on are fewer below it.
            spare_load = min(load, sizing.spares.from_load)
            groups = needed_groups(sizing.peak_groups * load)
            needed[groups, spare_load] += time_share
        self._needed = tuple(needed.items())
        self._availability = float(requirement.availability or 0)
        self._group_up = group_availability(sizing.nodes_per_group)
        self._pool = _pool_of(
            offer,
            end,
            sizing.nodes_per_group,
            startup_time_s(sizing.replica),
        )

    def share(self, spares: SpareGroups, base: int) -> float:
        """Return the share of running time in which as many groups are up as the load needs.

        Groups of the base serve first, the others are on spot.
        """
        return _up_share(self._needed, spares, base, self._pool, self._group_up)

    def fleets(self) -> Iterator[tuple[FleetSizing, Offer]]:
        """Yield fleets that keep the promise, those with fewer spare groups first.

        Where the base is for the planner to say, more spare groups let it be smaller: it is the
        smallest, and they are the fewest for it. Where a commitment costs less than spot, larger
        bases are yielded too. Else the first fleet is the only one.
        """
        if self._offer.is_above_promise:
            yield from self._with_smallest_base()
            return
        # What the most spare groups do not keep, fewer do not either.
        if self.most_share < self._availability:
            return
        for spares in self._spares():
            if self._is_kept(spares, self._stated_base(spares)):
                yield replace(self._sizing, spares=spares), self._offer
                return

    @property
    def most_share(self) -> float:
        """The share that no number of spare groups exceeds."""
        *_, most = self._spares()
        return self.share(most, self._stated_base(most))

    def _with_smallest_base(self) -> Iterator[tuple[FleetSizing, Offer]]:
        base = self._sizing.total_groups
        *_, most_spares = self._spares()
        least_base = self._smallest_base(most_spares, 0, base)
        for spares in self._spares():
            beyond_spot = self._beyond_spot(spares)
            smallest = self._smallest_base(spares, beyond_spot, base)
            is_first = spares == self._sizing.spares
            bases = range(smallest, base + is_first)
            if not self._may_base_be_cheaper:
                bases = bases[:1]
            for groups in bases:
                yield (
                    replace(self._sizing, spares=spares),
                    with_base(self._offer, groups),
                )
            base = smallest
            # From some number on, more spare groups are not to be had on spot.
            if base <= least_base or beyond_spot >= base:
                return

    @property
    def _may_base_be_cheaper(self) -> bool:
        """Whether a commitment costs less an hour than machines on spot."""
        *base_prices, spot_price = self._prices
        return min(base_prices, default=spot_price) < spot_price

    def _is_kept(self, spares: SpareGroups, base: int) -> bool:
        return self.share(spares, base) >= self._availability

    def _spares(self) -> Iterator[SpareGroups]:
        """Yield numbers of spare groups, from those that failures ask for."""
        sizing = self._sizing
        yield sizing.spares
        most = self._pool.zones * (2 * sizing.peak_groups + FURTHER_SPARES)
        if self._offer.is_above_promise:
            # More cost more in the cheapest way than all of the first ones in the dearest.
            least_usd = float(min(self._prices)) * _least_billed(self._offer)
            price_ratio = float(max(self._prices)) / least_usd
            dearest = math.ceil(sizing.total_groups * price_ratio)
            most = min(most, dearest - sizing.peak_groups)
        # Those that failures ask for may be fewer in some hours.
        first = sizing.spares.count + (0 if sizing.spares.from_load else 1)
        for count in range(first, most + 1):
            yield SpareGroups(count)

    def _stated_base(self, spares: SpareGroups) -> int:
        return base_groups(self._offer, replace(self._sizing, spares=spares))

    def _smallest_base(self, spares: SpareGroups, least: int, most: int) -> int:
        """Return the fewest groups below those on spot that keep the promise, by bisection.

        They are `least` at least. `most` groups keep the promise with fewer spare groups, so
        they do with these.
        """
        too_few = least - 1
        enough = max(least, most)
        # Often one group more on spot lets nothing go.
        middle = enough - 1
        while enough - too_few > 1:
            if self._is_kept(spares, middle):
                enough = middle
            else:
                too_few = middle
            middle = (enough + too_few) // 2
        return enough

    def _beyond_spot(self, spares: SpareGroups) -> int:
        """Return the groups that are more than are known to be had on spot."""
        limit = known_limit(replace(self._offer, purchase="spot", mix=None))
        if limit is None:
            return 0
        spot_groups = limit.machines // self._sizing.nodes_per_group
        total_groups = self._sizing.peak_groups + spares.count
        return max(0, total_groups - spot_groups)


@cache
def _up_share(
    loads: tuple[tuple[tuple[int, float], float], ...],
    spares: SpareGroups,
    base: int,
    pool: SpotPool,
    group_up: float,
) -> float:
    """Return the share of time in which enough groups are up; fleets of many regions ask for it.

    `loads` are the groups that a load needs with the load that decides its spares, each
    with its share of the time.
    """
    total = 0.0
    for (needed, spare_load), time_share in loads:
        groups = needed + spares.at(spare_load)
        total += time_share * quorum_share(
            needed,
            min(base, groups),
            max(0, groups - base),
            pool,
            group_up,
        )
    return total


def base_groups(offer: Offer, sizing: FleetSizing) -> int:
    """Return the groups of a fleet below those on spot; its offer says which share they are.

    How many of them are committed to may still be open, and makes no difference.
    """
    if offer.mix is None:
        return 0
    # A commitment of which nothing is decided yet reaches to the last machine.
    stated = PurchaseMix(
        tuple(
            tier
            for tier in offer.mix.tiers
            if tier.is_promised or not tier.is_open
        )
    )
    *_, (start, _) = stated.spans(sizing.nodes, sizing.nodes_per_group)
    return start // sizing.nodes_per_group


def with_base(offer: Offer, groups: int) -> Offer:
    """Return an offer with so many groups below those on spot."""
    tiers = offer.mix.tiers if offer.mix is not None else ()
    return replace(
        offer,
        mix=PurchaseMix(
            tuple(
                replace(tier, groups=groups) if tier.is_promised else tier
                for tier in tiers
            )
        ),
    )


def kept_fleet(
    requirement: ServingRequirement, sizing: FleetSizing, offer: Offer
) -> FleetSizing | LayoutRejection:
    """Return a fleet with the fewest spare groups that keep a promise, or that none do.

    Where the base is for the planner to say, it keeps the promise by itself if it has to.
    """
    if not has_promise(requirement, offer) or offer.is_above_promise:
        return sizing
    promise = SpotPromise(requirement, sizing, offer)
    fleet, _ = next(promise.fleets(), (None, offer))
    return fleet or LayoutRejection(
        layout=sizing.layout,
        constraint=UNKEPT,
        reached=promise.most_share,
        limit=float(requirement.availability or 0),
    )

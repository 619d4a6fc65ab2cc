"""A service on machines of two pools, between which a router shares the requests."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from planner.solve.serving.bill import (
    BilledPool,
    pools_bill,
    settled_offer,
)
from planner.solve.serving.candidate import ServingCandidate
from planner.solve.serving.cloud_limit import obtainable
from planner.solve.serving.sizing import FleetSizing, sized_fleet
from planner.solve.solution import FleetSummary, joint_summary

if TYPE_CHECKING:
    from collections.abc import Sequence

    from planner.cost.bill import Bill
    from planner.cost.service_price import PriceBook
    from planner.market.offer import Offer
    from planner.perf.serving.replica import Replica
    from planner.perf.serving.request_class import RequestClass
    from planner.solve.serving.requirement import ServingRequirement
    from planner.solve.serving.sizing import ReplicaGroup
    from planner.solve.serving.verify import FleetJudge

# The weight of the stronger group: those of others are whole numbers below it.
HIGHEST_WEIGHT: Final = 10_000
POOL_NAMES: Final = ("serve", "serve-2")


class PoolKind(Struct, frozen=True):
    """What the groups of a pool are: a layout on the machines of an offer."""

    offer: Offer
    replica: Replica
    group: ReplicaGroup


class PoolCount(Struct, frozen=True):
    """So many groups of a kind, each of which carries `group_rps` within the limits."""

    kind: PoolKind
    groups: int
    group_rps: float


class MixedFleet(Struct, frozen=True, kw_only=True):
    """Pools of different machine types, with the bill of the whole.

    `weights` are those of one group of each pool: a router picks a group in proportion. They are 0
    where the lengths of requests decide: `classes` are then those of the pools. `hours` are the
    pools in the hours that ask most of them, where their machines follow the hours apart.
    """

    pools: tuple[BilledPool, ...]
    weights: tuple[int, ...]
    bill: Bill
    classes: tuple[RequestClass, ...] = ()
    hours: tuple[BilledPool, ...] = ()

    @property
    def asked(self) -> tuple[BilledPool, ...]:
        """The pools in all hours in which they have to show what they carry."""
        return self.hours or self.pools

    @property
    def candidates(self) -> tuple[ServingCandidate, ...]:
        """Each pool as a fleet; the bill is that of both."""
        return pool_candidates(self.pools, self.bill)

    @property
    def summary(self) -> FleetSummary:
        """Cloud, region, and both machine types with their numbers."""
        return joint_summary([each.summary for each in self.candidates])


def pool_candidates(
    pools: tuple[BilledPool, ...], bill: Bill
) -> tuple[ServingCandidate, ...]:
    """Return each pool as a fleet, with the bill of all of them."""
    return tuple(
        ServingCandidate(
            offer=pool.offer,
            bought=pool.offer,
            sizing=pool.sizing,
            bill=bill,
        )
        for pool in pools
    )


def whole_weights(rates_rps: Sequence[float]) -> tuple[int, ...]:
    """Return whole weights of a group of each pool, in proportion to what it carries.

    weight = round(10,000 * requests/s of the group / those of the strongest), at least 1
    """
    strongest_rps = max(rates_rps)
    return tuple(
        max(1, round(HIGHEST_WEIGHT * rate_rps / strongest_rps))
        for rate_rps in rates_rps
    )


def traffic_shares(
    counts: tuple[PoolCount, ...], weights: tuple[int, ...]
) -> tuple[float, ...]:
    """Return the share of the requests that each pool gets: groups * weight / sum of those."""
    drawn = [
        count.groups * weight
        for count, weight in zip(counts, weights, strict=True)
    ]
    return tuple(pool_drawn / sum(drawn) for pool_drawn in drawn)


def mixed_fleet(
    requirement: ServingRequirement,
    counts: tuple[PoolCount, ...],
    price_book: PriceBook,
) -> MixedFleet:
    """Return a fleet of some groups of each kind: the weight of each, and what that brings it."""
    weights = whole_weights([count.group_rps for count in counts])
    pools = tuple(
        billed_pool(
            name, requirement.with_share(share), count.kind, count.groups
        )
        for name, count, share in zip(
            POOL_NAMES, counts, traffic_shares(counts, weights), strict=True
        )
    )
    return MixedFleet(
        pools=pools, weights=weights, bill=pools_bill(pools, price_book)
    )


def keeps_limits(fleet: MixedFleet, judge: FleetJudge) -> bool:
    """Return whether each pool keeps all limits, simulated with the requests that it gets.

    What each pool keeps, all requests together keep.
    """
    return not any(
        judge.misses(pool.requirement, pool.sizing) for pool in fleet.asked
    )


def may_be_had(pools: tuple[BilledPool, ...]) -> bool:
    """Return whether each pool may be had, and all pools together; more groups never may."""
    return within_shared_quotas(pools) and all(
        isinstance(
            obtainable(pool.requirement, pool.offer, pool.sizing), FleetSizing
        )
        for pool in pools
    )


def billed_pool(
    name: str, requirement: ServingRequirement, kind: PoolKind, groups: int
) -> BilledPool:
    """Return so many groups of a kind, with their spares, and as they are bought."""
    sizing = sized_fleet(requirement, kind.replica, kind.group, groups)
    return BilledPool(
        name=name,
        requirement=requirement,
        sizing=sizing,
        offer=settled_offer(requirement, sizing, kind.offer),
    )


def within_shared_quotas(pools: tuple[BilledPool, ...]) -> bool:
    """Return whether the account may have all pools where one quota counts both.

    sum of nodes of a pool / nodes that the quota allows of its type <= 1
    """
    used: dict[tuple[str, str], Decimal] = {}
    for pool in pools:
        for quota in pool.offer.quotas:
            if quota.purchase not in pool.offer.purchases or not quota.nodes:
                continue
            key = (quota.quota, quota.purchase)
            used[key] = used.get(key, Decimal(0)) + Decimal(
                pool.sizing.nodes
            ) / Decimal(quota.nodes)
    return all(share <= 1 for share in used.values())

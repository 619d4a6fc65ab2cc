"""Whether a cloud builds a fleet: the rules that the search asks before it takes one."""

from __future__ import annotations

from decimal import Decimal
from functools import cache
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from planner.facts.cloud_limit import cloud_limit
from planner.market.bought import PoolPurchase
from planner.market.offer import RESERVED_PURCHASE
from planner.market.public_address import takes_public_address
from planner.solve.capacity import (
    CapacityChange,
    capacity_changes,
    minute_nodes,
    opening_nodes,
)
from planner.solve.cause import because

if TYPE_CHECKING:
    from planner.cost.weekly_load import Week
    from planner.market.offer import Instance, Offer
    from planner.solve.capacity import PoolNodes
    from planner.solve.cause import Cause
    from planner.spec.model import ShutdownRule

GROUP_LIMIT: Final = "group_nodes"
RESERVED_LIMIT: Final = "reserved_group_nodes"
PROFILE_LIMIT: Final = "capacity_profiles"


class ExceededLimit(Struct, frozen=True):
    """A limit of data/cloud_limits.csv that a fleet exceeds: what it takes, and what it may."""

    limit: str
    reached: int
    allowed: int

    @property
    def reason(self) -> Cause:
        """Why the fleet is not taken."""
        if self.limit == GROUP_LIMIT:
            return because(
                "group-nodes", reached=self.reached, allowed=self.allowed
            )
        return because(
            "capacity-profiles", reached=self.reached, allowed=self.allowed
        )


def max_group_nodes(
    instance: Instance, *, spans_nodes: bool, has_addresses: bool = False
) -> int | None:
    """Return the most machines of a type that their fabric joins, None without a limit.

    `spans_nodes` says that a replica or a job spans several machines. InfiniBand is attached to
    all machines of a group, also to those that work each for itself. With `has_addresses` each
    machine has a public one, which some clouds do not give to machines that a fabric joins.
    """
    if (
        has_addresses
        and spans_nodes
        and not takes_public_address(instance, spans_nodes=True)
    ):
        return 1
    is_joined = spans_nodes or (
        instance.fabric == "infiniband"
        and instance.attaches_fabric(spans_nodes=spans_nodes)
    )
    if not is_joined:
        return None
    return cloud_limit(instance.provider, f"{instance.fabric}_{GROUP_LIMIT}")


def profile_count(
    cloud: str,
    changes: tuple[CapacityChange, ...],
    shutdown: ShutdownRule,
    *,
    is_elastic: bool = False,
) -> int:
    """Return the profiles that hold the sizes of a scaling group, 0 where a cloud counts none.

    profiles = of the group + changes * of a change + starts * of a start + of the deadline
    Starts count where machines leave by themselves: with an idle limit, or when they follow the
    load. The deadline counts with a time to live.
    """
    leaves = shutdown.idle is not None or is_elastic
    starts = sum(change.nodes > 0 for change in changes)
    counts = {
        "profiles_of_group": 1,
        "profiles_of_change": len(changes),
        "profiles_of_start": starts if leaves else 0,
        "profiles_of_deadline": int(shutdown.ttl is not None),
    }
    return sum(
        count * (cloud_limit(cloud, limit) or 0)
        for limit, count in counts.items()
    )


def exceeded_limit(
    offer: Offer,
    pool: PoolNodes,
    week: Week,
    shutdown: ShutdownRule,
    *,
    has_addresses: bool = False,
) -> ExceededLimit | None:
    """Return the limit of its cloud that a fleet bought through one offer exceeds, if any.

    With `has_addresses` each machine has a public address.
    """
    max_nodes = max_group_nodes(
        offer.instance,
        spans_nodes=pool.nodes_per_group > 1,
        has_addresses=has_addresses,
    )
    if max_nodes is not None and pool.nodes > max_nodes:
        return ExceededLimit(GROUP_LIMIT, pool.nodes, max_nodes)
    if offer.purchase == RESERVED_PURCHASE:
        together = cloud_limit(offer.provider, RESERVED_LIMIT)
        if together is not None and pool.nodes_per_group > together:
            return ExceededLimit(GROUP_LIMIT, pool.nodes_per_group, together)
    max_profiles = cloud_limit(offer.provider, PROFILE_LIMIT)
    if max_profiles is None:
        return None
    changes = _pool_changes(pool, week, shutdown.schedule, offer.purchase)
    profiles = profile_count(
        offer.provider, changes, shutdown, is_elastic=pool.is_elastic
    )
    if profiles <= max_profiles:
        return None
    return ExceededLimit(PROFILE_LIMIT, profiles, max_profiles)


@cache
def _pool_changes(
    pool: PoolNodes, week: Week, schedule: str | None, purchase: str
) -> tuple[CapacityChange, ...]:
    """The changes of a pool that is bought in one way. A search asks often of the same pool."""
    wanted_nodes = minute_nodes(week, pool, schedule)
    return capacity_changes(
        opening_nodes(wanted_nodes) if pool.is_elastic else wanted_nodes,
        # What a machine costs moves none.
        (PoolPurchase(purchase, pool.nodes, Decimal(0)),),
        of_spot=purchase == "spot",
    )

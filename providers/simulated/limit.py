"""What a world has no machines for, and what an account may not have."""

from __future__ import annotations

from fnmatch import fnmatchcase
from functools import cache
from typing import TYPE_CHECKING

from planner.facts.cloud import clouds
from providers.catalog.load import SnapshotPrices

if TYPE_CHECKING:
    from collections.abc import Sequence

    from planner.market.offer import Instance
    from providers.base import (
        CapacitySource,
        NodeGroup,
        NodeLimit,
        QuotaSource,
    )
    from providers.simulated.world import World

EVERY_ZONE = "*"


def limit_refusal(
    world: World, wanted: NodeGroup, others: Sequence[NodeGroup]
) -> tuple[str, str] | None:
    """Return error code and message when a group may not have its nodes; nothing when it may.

    Quota is refused first when both are exceeded.
    """
    quota_source: QuotaSource = world
    code = clouds()[wanted.offer_key[0]].quota_code
    for node_limit in quota_source.quota:
        message = _exceeded(node_limit, wanted, others)
        if message:
            return code, f"quota for {message}"
    return capacity_refusal(world, wanted, others)


def capacity_refusal(
    world: World, wanted: NodeGroup, others: Sequence[NodeGroup]
) -> tuple[str, str] | None:
    """Return error code and message when a cloud has no nodes for a group."""
    capacity_source: CapacitySource = world
    code = clouds()[wanted.offer_key[0]].capacity_code
    for node_limit in capacity_source.capacity:
        if node_limit.zone != EVERY_ZONE:
            continue
        message = _exceeded(node_limit, wanted, others)
        if message:
            return code, f"capacity for {message}"
    message = _zones_exceeded(capacity_source.capacity, wanted, others)
    return (code, f"capacity for {message}") if message else None


def _exceeded(
    node_limit: NodeLimit, wanted: NodeGroup, others: Sequence[NodeGroup]
) -> str:
    """Say by how much a limit is exceeded: used + requested > limit; empty when it is not."""
    if not node_limit.applies(wanted.offer_key):
        return ""
    used = sum(
        _amount(other, node_limit)
        for other in others
        if node_limit.applies(other.offer_key)
    )
    amount = _amount(wanted, node_limit)
    if used + amount <= node_limit.amount:
        return ""
    _, region, machine_type, _ = wanted.offer_key
    return (
        f"{node_limit.amount} {node_limit.unit} of {machine_type} in {region}, "
        f"{used} used, {amount} wanted"
    )


def _zones_exceeded(
    limits: Sequence[NodeLimit], wanted: NodeGroup, others: Sequence[NodeGroup]
) -> str:
    """Say that the zones of a group have too few machines; empty when they have enough.

    Exceeded when used + requested nodes > sum of what its zones have, the least of the rows that
    match each. A zone without a row has as many as anybody wants.
    """
    zones = sorted(set(wanted.zones))
    zone_rows = [
        [
            node_limit
            for node_limit in limits
            if node_limit.zone != EVERY_ZONE
            and node_limit.applies(wanted.offer_key)
            and fnmatchcase(zone, node_limit.zone)
        ]
        for zone in zones
    ]
    if not zones or not all(zone_rows):
        return ""
    limit = sum(
        min(row.amount // _amount_each(row, wanted) for row in rows)
        for rows in zone_rows
    )
    used = sum(
        other.node_count
        for other in others
        if other.zones
        and set(other.zones) <= set(zones)
        and other.offer_key == wanted.offer_key
    )
    if used + wanted.node_count <= limit:
        return ""
    return (
        f"{limit} nodes of {wanted.offer_key[2]} in {', '.join(zones)}, "
        f"{used} used, {wanted.node_count} wanted"
    )


def _amount(group: NodeGroup, node_limit: NodeLimit) -> int:
    """Return how much of a limit a group takes up, in the unit of the limit."""
    return group.node_count * _amount_each(node_limit, group)


def _amount_each(node_limit: NodeLimit, group: NodeGroup) -> int:
    """Return the same of one node; a machine type that the catalog does not have counts as 1."""
    provider, _, machine_type, _ = group.offer_key
    instance = _instances().get((provider, machine_type))
    if node_limit.unit == "nodes" or instance is None:
        return 1
    return (
        instance.vcpu if node_limit.unit == "vcpus" else instance.accelerators
    )


@cache
def _instances() -> dict[tuple[str, str], Instance]:
    """Return the machine types of the catalog, by cloud and name."""
    return {
        (offer.provider, offer.instance.instance_type): offer.instance
        for offer in SnapshotPrices().catalog().offers
    }

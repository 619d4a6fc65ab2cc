"""Serving fleets that cannot be had, or that their cloud does not build."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from planner.market.capacity import fleet_limit
from planner.solve.capacity import PoolNodes
from planner.solve.cloud_rule import (
    GROUP_LIMIT,
    exceeded_limit,
    max_group_nodes,
)
from planner.solve.serving.cost_bound import bound_nodes
from planner.solve.serving.rejection import (
    capacity_constraint,
    within_capacity,
)
from planner.solve.serving.sizing import (
    FleetSizing,
    LayoutRejection,
    machine_lead,
    run_window_s,
)
from planner.solve.serving.spot_promise import beyond_promise, kept_fleet

if TYPE_CHECKING:
    from collections.abc import Iterator

    from planner.market.offer import Offer
    from planner.solve.serving.cost_bound import LayoutOption
    from planner.solve.serving.requirement import ServingRequirement
    from planner.solve.serving.sizing import ReplicaGroup


def obtainable(
    requirement: ServingRequirement,
    offer: Offer,
    outcome: FleetSizing | LayoutRejection | None,
) -> FleetSizing | LayoutRejection | None:
    """Return a sizing that is known to be had and that its cloud builds, else why not."""
    if not isinstance(outcome, FleetSizing):
        return outcome
    fleet = kept_fleet(requirement, outcome, offer)
    if isinstance(fleet, LayoutRejection):
        return fleet
    fleet = within_capacity(offer, fleet)
    if isinstance(fleet, LayoutRejection):
        return fleet
    return _refused_by_cloud(requirement, fleet, offer) or outcome


def _refused_by_cloud(
    requirement: ServingRequirement, sizing: FleetSizing, offer: Offer
) -> LayoutRejection | None:
    """Return the limit of its cloud that a fleet exceeds, None when its cloud builds it.

    `reached` and `limit` are in the unit of the row of data/cloud_limits.csv.
    """
    pool = PoolNodes(
        role=requirement.role,
        nodes=sizing.nodes,
        nodes_per_group=sizing.nodes_per_group,
        spares=sizing.spares,
        run_window_s=run_window_s(requirement, sizing),
        is_elastic=requirement.elastic is not None,
        lead_minutes=machine_lead(requirement, sizing),
    )
    exceeded = exceeded_limit(
        offer,
        pool,
        requirement.week,
        requirement.shutdown,
        has_addresses=requirement.has_addresses,
    )
    if exceeded is None:
        return None
    return LayoutRejection(
        layout=sizing.layout,
        constraint=exceeded.limit,
        reached=float(exceeded.reached),
        limit=float(exceeded.allowed),
    )


def beyond_reach(
    requirement: ServingRequirement, offer: Offer, layout_option: LayoutOption
) -> LayoutRejection | None:
    """Return what keeps even the lower bound of the machines of a layout from being had.

    More machines than are reserved, than are known to be had on spot, or than one fabric joins;
    and a promise of availability that no number of machines on spot keeps.
    """
    replica, group, _ = layout_option
    unkept = beyond_promise(requirement, offer, replica.layout)
    if unkept is not None:
        return unkept
    nodes = bound_nodes(layout_option)
    for constraint, limit in _node_limits(requirement, offer, group):
        if nodes > limit:
            return LayoutRejection(
                layout=replica.layout,
                constraint=constraint,
                reached=nodes,
                limit=limit,
            )
    return None


def most_nodes(
    requirement: ServingRequirement, offer: Offer, group: ReplicaGroup
) -> float:
    """Return the most machines of groups that may be had at once; infinite without a limit."""
    return min(
        (limit for _, limit in _node_limits(requirement, offer, group)),
        default=math.inf,
    )


def _node_limits(
    requirement: ServingRequirement, offer: Offer, group: ReplicaGroup
) -> Iterator[tuple[str, int]]:
    """Yield by what machines of groups are limited, and how many there may be."""
    limits = (
        (capacity_constraint(offer), fleet_limit(offer)),
        (
            GROUP_LIMIT,
            max_group_nodes(
                offer.instance,
                spans_nodes=group.nodes > 1,
                has_addresses=requirement.has_addresses,
            ),
        ),
    )
    for constraint, limit in limits:
        if limit is not None:
            yield constraint, limit

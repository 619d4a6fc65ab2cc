"""Whether a fleet is within what the quotas of an account leave at each load."""

from __future__ import annotations

from typing import TYPE_CHECKING

from planner.cost.weekly_load import running_nodes
from planner.market.capacity import PEAK_LOAD
from planner.solve.capacity import quota_nodes
from planner.solve.serving.rejection import QUOTA
from planner.solve.serving.sizing import FleetSizing, LayoutRejection
from planner.solve.solution import bought_offer

if TYPE_CHECKING:
    from planner.market.offer import Offer
    from planner.solve.serving.requirement import ServingRequirement


def beyond_quota(
    requirement: ServingRequirement, sizing: FleetSizing, bought: Offer
) -> LayoutRejection | None:
    """Return the quota that a fleet exceeds at some load, None when it is within all.

    The offer says how many machines are bought in which way.
    """
    if not bought.quotas:
        return None
    purchases = bought_offer(bought, sizing.nodes, sizing.nodes_per_group)[
        "purchases"
    ]
    follows_load = requirement.mode != "batch" and requirement.elastic is None
    for quota in bought.quotas:
        wanted = sizing.nodes
        if quota.load < 0:
            wanted = 0
        elif follows_load and quota.load != PEAK_LOAD:
            wanted = running_nodes(
                sizing.peak_groups,
                sizing.nodes_per_group,
                sizing.spares,
                quota.load,
            )
        nodes = quota_nodes(purchases, wanted).get(quota.purchase, 0)
        if nodes > quota.nodes:
            return LayoutRejection(
                layout=sizing.layout,
                constraint=QUOTA,
                reached=nodes,
                limit=quota.nodes,
            )
    return None

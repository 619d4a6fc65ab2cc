"""How many groups a fleet may commit to within what quotas leave in hours of less load."""

from __future__ import annotations

from typing import TYPE_CHECKING

from planner.cost.weekly_load import running_nodes
from planner.market.capacity import PEAK_LOAD, quota_purchase
from planner.market.term import TERM_PURCHASES

if TYPE_CHECKING:
    from planner.market.offer import Offer, QuotaNodes
    from planner.solve.serving.requirement import ServingRequirement
    from planner.solve.serving.sizing import FleetSizing


def most_committed_groups(
    requirement: ServingRequirement, sizing: FleetSizing, offer: Offer
) -> int | None:
    """Return the most groups below the end of a commitment; None where no quota bounds them.

    Committed machines stand in every hour, and others of the account need theirs in some:

        min(machines of the hour, owned) + committed <= machines that a quota leaves then

    The end of the commitment is owned + committed. At the peak it changes nothing.
    """
    if requirement.mode == "batch" or requirement.elastic is not None:
        return None
    return min(
        (
            _most_nodes(sizing, offer, quota) // sizing.nodes_per_group
            for quota in offer.quotas
            if quota.load != PEAK_LOAD
            and quota.purchase == quota_purchase(TERM_PURCHASES[0])
        ),
        default=None,
    )


def _most_nodes(sizing: FleetSizing, offer: Offer, quota: QuotaNodes) -> int:
    # Below no load at all nothing of the fleet runs.
    running = (
        running_nodes(
            sizing.peak_groups,
            sizing.nodes_per_group,
            sizing.spares,
            quota.load,
        )
        if quota.load >= 0
        else 0
    )
    return quota.nodes + max(0, min(offer.owned_nodes, sizing.nodes) - running)

"""Lower bounds of the monthly cost of the fleets on an offer, or of one layout on it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, TypeAlias

from planner.market.purchase import COMMITTED_PURCHASES
from planner.perf.common.constant import constant
from planner.solve.serving.sizing import startup_time_s
from planner.units import HOURS_PER_MONTH, SECONDS_PER_HOUR

if TYPE_CHECKING:
    from planner.market.offer import Offer
    from planner.perf.serving.replica import Replica
    from planner.solve.serving.requirement import ServingRequirement
    from planner.solve.serving.sizing import ReplicaGroup

# Replica, its group, lower bound of the groups.
LayoutOption: TypeAlias = "tuple[Replica, ReplicaGroup, float]"


def offer_bound_usd(requirement: ServingRequirement, offer: Offer) -> float:
    """Return a lower bound of the cost of any fleet on an offer, USD a month.

    commitment: usd_hour * 730
    batch:      usd_hour * boot hours * runs a month
    serving:    usd_hour * running hours of a month
    bound <= cost: a fleet has at least one node, and all other bill lines are left out.
    """
    usd_hour = float(offer.usd_hour)
    if offer.purchase in COMMITTED_PURCHASES:
        return usd_hour * float(HOURS_PER_MONTH)
    if requirement.mode == "batch":
        return (
            usd_hour
            # A run pays at least the boot of one node.
            * constant("boot")
            / SECONDS_PER_HOUR
            * float(requirement.runs_per_month)
        )
    # At least one node runs in each running hour.
    return usd_hour * float(requirement.week.running_hours)


def layout_bounds_usd(
    requirement: ServingRequirement,
    offer: Offer,
    layout_options: list[LayoutOption],
) -> list[float]:
    """Return a lower bound of the cost of any fleet of each layout, USD a month.

    g = lower bound of the groups, u = usd_hour * nodes of a group
    commitment: u * max(1, ceil(g)) * 730
    batch:      u * (g * deadline + start-up) in hours * runs a month
    serving:    u * max(running hours, g * mean load * 730)
    bound <= cost: other bill lines are left out. With g infinite it is the cost of one group.
    """
    usd_hour = float(offer.usd_hour)
    month_hours = float(HOURS_PER_MONTH)
    group_counts = [
        # An infeasible layout is shown with the cost of one group.
        (replica, usd_hour * group.nodes, 1.0 if bound == math.inf else bound)
        for replica, group, bound in layout_options
    ]
    if offer.purchase in COMMITTED_PURCHASES:
        return [
            group_usd_hour
            # Committed groups are whole and paid in all 730 hours.
            * max(1.0, math.ceil(group_count - 1e-9))
            * month_hours
            for _, group_usd_hour, group_count in group_counts
        ]
    if requirement.mode == "batch":
        monthly_runs = float(requirement.runs_per_month)
        return [
            group_usd_hour
            # n groups pay work / rate + n * start-up, and work / rate = g * D.
            * (group_count * requirement.deadline_s + startup_time_s(replica))
            / SECONDS_PER_HOUR
            * monthly_runs
            for replica, group_usd_hour, group_count in group_counts
        ]
    running_hours = float(requirement.week.running_hours)
    mean_load = requirement.week.mean_load
    return [
        group_usd_hour
        * max(
            # At least one group in each running hour.
            running_hours,
            # Groups follow the load: sum of ceil(g * load) >= g * sum of load.
            group_count * mean_load * month_hours,
        )
        for _, group_usd_hour, group_count in group_counts
    ]


def bound_nodes(layout_option: LayoutOption) -> int:
    """Return the nodes behind the bound: nodes of a group * max(1, ceil(g))."""
    _, group, group_bound = layout_option
    return group.nodes * (
        1 if group_bound == math.inf else max(1, math.ceil(group_bound - 1e-9))
    )

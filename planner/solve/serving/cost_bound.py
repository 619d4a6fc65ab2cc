"""Lower bounds of the cost of the fleets on an offer, or of one layout on it.

The cost is that of the period of the bill: a month, a run, or a life of T hours. A life is
billed for at least T / 730 of what a month is, and a daily batch for its whole days.
"""

from __future__ import annotations

import math
from decimal import Decimal
from typing import TYPE_CHECKING, TypeAlias

from planner.cost.lifetime import life_hours, standing_lifetime
from planner.market.purchase import COMMITTED_PURCHASES
from planner.perf.common.constant import constant
from planner.solve.serving.sizing import saturation_rps, startup_time_s
from planner.solve.serving.spot_promise import least_usd_hour
from planner.units import HOURS_PER_MONTH, SECONDS_PER_DAY, SECONDS_PER_HOUR

if TYPE_CHECKING:
    from planner.market.offer import Offer
    from planner.perf.serving.replica import Replica
    from planner.solve.serving.requirement import ServingRequirement
    from planner.solve.serving.sizing import ReplicaGroup

# Replica, its group, lower bound of the groups.
LayoutOption: TypeAlias = "tuple[Replica, ReplicaGroup, float]"


def offer_bound_usd(requirement: ServingRequirement, offer: Offer) -> float:
    """Return a lower bound of the cost of any fleet on an offer, USD in the period.

    commitment: usd_hour * 730
    batch:      usd_hour * boot hours * runs
    serving:    usd_hour * running hours, without what is owned
    `usd_hour` is what a promise of availability leaves of it where machines are on spot.
    bound <= cost: a fleet has at least one node, and all other bill lines are left out.
    """
    usd_hour = least_usd_hour(requirement, offer)
    if offer.purchase in COMMITTED_PURCHASES:
        return usd_hour * float(HOURS_PER_MONTH)
    if requirement.mode == "batch":
        return (
            usd_hour
            # A run pays at least the boot of one node.
            * constant("boot")
            / SECONDS_PER_HOUR
            * _least_runs(requirement)
        )
    # At least one node runs in each running hour.
    running_hours = float(requirement.week.running_hours)
    bound_usd = usd_hour * running_hours * _month_share(requirement)
    return max(0.0, bound_usd - owned_usd(requirement, offer))


def layout_bounds_usd(
    requirement: ServingRequirement,
    offer: Offer,
    layout_options: list[LayoutOption],
) -> list[float]:
    """Return a lower bound of the cost of any fleet of each layout, USD in the period.

    g = lower bound of the groups, u = usd_hour * nodes of a group
    commitment: u * max(1, ceil(g)) * 730
    batch:      u * (g * e * deadline + start-up) in hours * runs, with e = rate that the deadline
                is held to / rate that is expected, since the bill is for the expected time
    serving:    u * max(running hours, g * mean load * 730), times T / 730 in a life, without
                the dearest price * 730 for each node that is owned
    bound <= cost: other bill lines are left out. With g infinite it is the cost of one group.
    """
    usd_hour = least_usd_hour(requirement, offer)
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
        run_count = _least_runs(requirement)
        return [
            group_usd_hour
            # n groups pay work / rate + n * start-up, and work / rate = g * e * D.
            * (
                group_count * _expected_share(replica) * requirement.deadline_s
                + startup_time_s(replica)
            )
            / SECONDS_PER_HOUR
            * run_count
            for replica, group_usd_hour, group_count in group_counts
        ]
    month_share = _month_share(requirement)
    running_hours = float(requirement.week.running_hours)
    mean_load = requirement.week.mean_load
    displaced_usd = owned_usd(requirement, offer)
    return [
        max(
            0.0,
            group_usd_hour
            * month_share
            * max(
                # At least one group in each running hour.
                running_hours,
                # Groups follow the load: sum of ceil(g * load) >= g * sum of load.
                group_count * mean_load * month_hours,
            )
            - displaced_usd,
        )
        for _, group_usd_hour, group_count in group_counts
    ]


def _expected_share(replica: Replica) -> float:
    """Return the rate of a replica with the margin of the confidence over what is expected."""
    expected_rps = saturation_rps(replica.predicted)
    # One without room for a request has no rate.
    return saturation_rps(replica) / expected_rps if expected_rps else 1.0


def owned_usd(requirement: ServingRequirement, offer: Offer) -> float:
    """Return what the owned machines of an offer would cost in all hours of the period, USD.

    They would be bought in the dearest way: a fleet without them costs no more than with them
    and this.
    """
    return (
        float(offer.displaced_usd)
        * offer.owned_nodes
        * float(HOURS_PER_MONTH)
        * _month_share(requirement)
    )


def _month_share(requirement: ServingRequirement) -> float:
    """Part of a month that a bill is for: T / 730 with a time to live, else 1."""
    life = standing_lifetime(requirement.shutdown)
    return float(life_hours(life) / HOURS_PER_MONTH)


def _least_runs(requirement: ServingRequirement) -> float:
    """Runs that a bill has at least; with a time to live those of its whole days, one at least."""
    ttl_s = requirement.shutdown.ttl
    if ttl_s is None or not requirement.runs_daily:
        return float(requirement.runs_per_month)
    return float(max(Decimal(1), ttl_s // SECONDS_PER_DAY))


def bound_nodes(layout_option: LayoutOption) -> int:
    """Return the nodes behind the bound: nodes of a group * max(1, ceil(g))."""
    _, group, group_bound = layout_option
    return group.nodes * (
        1 if group_bound == math.inf else max(1, math.ceil(group_bound - 1e-9))
    )


def most_groups_within(
    requirement: ServingRequirement,
    offer: Offer,
    group: ReplicaGroup,
    ceiling_usd: float,
) -> float:
    """Return an upper bound of the groups whose cost is at most `ceiling_usd` in the period.

    commitment: ceiling / (usd_hour * nodes * 730)
    serving:    ceiling / (usd_hour * nodes * mean load * 730), times 730 / T in a life
    It is that of `layout_bounds_usd`, solved for the groups.
    """
    group_usd = (
        least_usd_hour(requirement, offer)
        * group.nodes
        * float(HOURS_PER_MONTH)
    )
    if offer.purchase not in COMMITTED_PURCHASES:
        group_usd *= requirement.week.mean_load * _month_share(requirement)
    spendable_usd = ceiling_usd + owned_usd(requirement, offer)
    return spendable_usd / group_usd if group_usd else math.inf

"""When another machine of an elastic service is asked for, and when one leaves."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from planner.cost.lifetime import release_time
from planner.numeric import bisect_up
from planner.solve.serving.sizing import (
    predict_service,
    saturation_rps,
    startup_time_s,
    violated_limit,
)
from planner.solve.solution import ElasticRange
from planner.units import SECONDS_PER_HOUR

if TYPE_CHECKING:
    from planner.cost.weekly_load import Week
    from planner.perf.serving.service import Service
    from planner.solve.serving.requirement import ServingRequirement
    from planner.solve.serving.sizing import FleetSizing
    from planner.solve.serving.verify import FleetJudge

# Resolution of the highest load: 2^-12 of the loads that are searched.
LOAD_STEPS: Final = 12
# Loads that are simulated at the most.
JUDGED_STEPS: Final = 4
# A machine that leaves may be needed again: that takes a start, and a start to find out.
STARTS_TO_RETURN: Final = 2


def elastic_range(
    requirement: ServingRequirement, sizing: FleetSizing, judge: FleetJudge
) -> ElasticRange | None:
    """Return how far the machines of a fleet follow the load; None when they do not.

    target = requests in flight at the highest load within the limits / growth
             * replicas of a machine, and never less than at the planned peak
    growth = factor by which the load may rise while a machine starts
    linger = max(linger_s, 2 * start-up)
    """
    rule = requirement.elastic
    if rule is None:
        return None
    startup_s = startup_time_s(sizing.replica)
    in_flight = _highest_in_flight(requirement, sizing, judge) / load_growth(
        requirement.week, startup_s, 1 - float(rule.least)
    )
    return ElasticRange(
        least_share=float(rule.least),
        most_share=float(rule.most),
        target_requests=sizing.replicas_per_group
        * max(in_flight, sizing.service.in_flight),
        spare_nodes=sizing.spares.count * sizing.nodes_per_group,
        linger_s=math.ceil(
            max(float(release_time("linger_s")), STARTS_TO_RETURN * startup_s)
        ),
    )


def load_growth(week: Week, startup_s: float, share: float) -> float:
    """Return the factor by which the load rises at most while a machine starts.

    factor = 1 + steepest rise of an hour / load before it * start-up / 3600 * share
    `share` of the load has no machines in advance. A rise is spread over its hour.
    """
    loads = week.relative_load
    steepest = max(
        (
            (after - before) / before
            for before, after in zip(loads, (*loads[1:], loads[0]), strict=True)
            if before > 0
        ),
        default=0.0,
    )
    starting_share = min(1.0, startup_s / SECONDS_PER_HOUR)
    return 1 + max(0.0, steepest) * starting_share * share


def _highest_in_flight(
    requirement: ServingRequirement, sizing: FleetSizing, judge: FleetJudge
) -> float:
    """Return the mean requests in flight of a replica at the highest load within the limits.

    The formulas say which load that is, and the simulation judges it as it judges a fleet. What it
    refuses is halved towards the planned load, which it has confirmed.
    """
    replica_count = sizing.replicas_per_group * sizing.peak_groups

    def service_at(factor: float) -> Service | None:
        return predict_service(
            requirement.with_scaled_load(factor), sizing.replica, replica_count
        )

    def is_too_much(factor: float) -> bool:
        service = service_at(factor)
        return (
            service is None
            or violated_limit(service, requirement.limits) is not None
        )

    if is_too_much(1.0):
        return sizing.service.in_flight
    most = _most_load(requirement, sizing)
    factor = bisect_up(is_too_much, 1.0, most, LOAD_STEPS)
    # One step below what is too much.
    factor = max(1.0, factor - (most - 1) / 2**LOAD_STEPS)
    for _ in range(JUDGED_STEPS):
        loaded = requirement.with_scaled_load(factor)
        service = service_at(factor)
        if service is not None and not judge.missed_limit(
            loaded, replace(sizing, service=service)
        ):
            return min(service.in_flight, sizing.replica.max_batch)
        factor = (1 + factor) / 2
    return sizing.service.in_flight


def _most_load(requirement: ServingRequirement, sizing: FleetSizing) -> float:
    """Return the factor of the planned load at which every replica is full, at least 1."""
    replica_count = sizing.replicas_per_group * sizing.peak_groups
    if requirement.mode == "closed":
        users = sizing.replica.max_batch * replica_count
        return max(1.0, users / requirement.load.concurrency)
    rate_per_s = saturation_rps(sizing.replica) * replica_count
    return max(1.0, rate_per_s / requirement.load.rate_per_s)

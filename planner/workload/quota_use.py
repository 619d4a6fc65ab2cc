"""What the fleet of a plan adds to the quotas of its account, by the load of an hour."""

from __future__ import annotations

from typing import TYPE_CHECKING

from planner.cost.weekly_load import running_nodes
from planner.market.live import QuotaKey
from planner.market.live_catalog import machine_units, standing_nodes
from planner.solve.capacity import quota_nodes
from planner.spec.model import Inference
from planner.spec.schedule import parse_schedule
from planner.workload.quota_share import (
    ANY_TIME,
    PEAK_LOAD,
    FleetChoice,
    QuotaUse,
    WorkloadHours,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from planner.market.live import LiveFacts, QuotaFact
    from planner.market.offer_key import OfferKey
    from planner.solve.solution import SizedPool, Solution
    from planner.spec.model import Spec


def workload_hours(spec: Spec, solution: Solution) -> WorkloadHours:
    """Return when a workload needs how much: a service by the hour, all others at any time.

    What ends by itself may start at any time, and an elastic service follows its clients. Of two
    machine types with hours of their own, one may have most machines at little load.
    """
    if (
        not isinstance(spec, Inference)
        or solution.bill is None
        or solution.bill.period != "month"
        or any(pool.elastic is not None for pool in solution.pools)
        or (len(solution.pools) > 1 and solution.pools[0].week is not None)
    ):
        return ANY_TIME
    schedule = spec.shutdown.schedule
    return WorkloadHours(
        solution.week.relative_load,
        schedule,
        parse_schedule(schedule)[3] if schedule else "UTC",
        max((pool.lead_minutes for pool in solution.pools), default=0),
    )


def fleet_choice(
    solution: Solution,
    hours: WorkloadHours,
    facts: LiveFacts,
    standing: Mapping[OfferKey, int],
) -> FleetChoice | None:
    """Return the cost of a fleet, and what it adds to each quota; None without a fleet.

    units = units of a machine * machines beyond those of the stack that stand
    """
    if solution.bill is None or not solution.pools:
        return None
    return FleetChoice(
        solution.bill.total,
        tuple(
            use
            for pool in solution.pools
            for use in _pool_uses(pool, hours, facts, standing)
        ),
    )


def _pool_uses(
    pool: SizedPool,
    hours: WorkloadHours,
    facts: LiveFacts,
    standing: Mapping[OfferKey, int],
) -> Iterator[QuotaUse]:
    instance = pool.instance
    place = facts.place(instance.provider, pool.region)
    if place is None:
        return
    nodes_by_load = {
        load: quota_nodes(pool.purchases, _wanted_nodes(pool, hours, load))
        for load in hours.loads
    }
    stands = standing_nodes(standing)
    for purchase in nodes_by_load[PEAK_LOAD]:
        answer = place.quotas.get(purchase)
        here = stands[
            instance.provider, pool.region, instance.instance_type, purchase
        ]
        for quota in (answer.value if answer is not None else None) or ():
            if (
                quota.free is None
                or instance.instance_type not in quota.machine_types
            ):
                continue
            yield QuotaUse(
                key=quota_key(place.cloud, place.region, quota),
                limit=quota.free,
                units_by_load={
                    load: float(
                        machine_units(instance, quota)
                        * max(0, nodes[purchase] - here)
                    )
                    for load, nodes in nodes_by_load.items()
                },
            )


def quota_key(cloud: str, region: str, quota: QuotaFact) -> QuotaKey:
    """Return what identifies a quota of a region."""
    return QuotaKey(cloud, region, quota.purchase, quota.id)


def _wanted_nodes(pool: SizedPool, hours: WorkloadHours, load: float) -> int:
    """Return the nodes of a pool at a load: all of them for what may need its peak any time."""
    if load < 0:
        return 0
    if hours.hourly_load is None or load == PEAK_LOAD:
        return pool.nodes
    if pool.week is not None:
        hourly_nodes = pool.week.hourly_nodes(
            pool.peak_groups, pool.nodes_per_group, pool.spares
        )
        # More load never takes fewer: what stays between two busy hours counts for these.
        return max(
            nodes
            for nodes, hour_load in zip(
                hourly_nodes, hours.hourly_load, strict=True
            )
            if hour_load <= load
        )
    return running_nodes(
        pool.peak_groups, pool.nodes_per_group, pool.spares, load
    )

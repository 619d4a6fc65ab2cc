"""How many machines of a fleet run in each hour of the week, and what they cost in it."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

from msgspec import Struct

from planner.market.purchase import COMMITTED_PURCHASES
from planner.solve.capacity import hourly_most, minute_nodes
from planner.units import HOURS_PER_WEEK

if TYPE_CHECKING:
    from planner.solve.solution import SizedPool, Solution


class FleetHour(Struct, frozen=True):
    """One hour of the week, of which hour 0 is Monday 00:00 in the time zone of the schedule.

    `load`   relative to the peak, 0 to 1; outside the schedule 0
    `nodes`  machines that run at most
    `usd`    what all machines cost in it, committed ones whether they run or not
    """

    load: float
    nodes: int
    usd: Decimal


def hourly_fleet(
    solution: Solution, schedule: str | None
) -> tuple[FleetHour, ...]:
    """Return the 168 hours of a fleet; nothing of a job, which runs from its start to its end.

    USD = committed nodes * their price
        + other nodes that run * their price * share of the hour in which anything runs
    Machines that are committed serve first, then those in the order of their purchases.
    """
    is_job = any(
        pool.role == "train" or (pool.role == "batch" and not pool.run_window_s)
        for pool in solution.pools
    )
    if is_job or not solution.pools:
        return ()
    nodes = [
        hourly_most(minute_nodes(pool.week or solution.week, pool, schedule))
        for pool in solution.pools
    ]
    return tuple(
        FleetHour(
            load=solution.week.relative_load[hour]
            if solution.week.running_share[hour]
            else 0.0,
            nodes=sum(pool_nodes[hour] for pool_nodes in nodes),
            usd=sum(
                (
                    _hour_usd(
                        pool,
                        pool_nodes[hour],
                        solution.week.running_share[hour],
                    )
                    for pool, pool_nodes in zip(
                        solution.pools, nodes, strict=True
                    )
                ),
                Decimal(0),
            ),
        )
        for hour in range(HOURS_PER_WEEK)
    )


def _hour_usd(pool: SizedPool, nodes: int, running_share: Decimal) -> Decimal:
    """Return what the machines of a pool cost in an hour in which so many of them run."""
    usd = Decimal(0)
    waiting_nodes = nodes
    by_turn = sorted(
        pool.purchases,
        key=lambda part: part.purchase not in COMMITTED_PURCHASES,
    )
    for part in by_turn:
        running_nodes = min(part.nodes, waiting_nodes)
        waiting_nodes -= running_nodes
        usd += part.usd_hour * (
            part.nodes
            if part.purchase in COMMITTED_PURCHASES
            else running_nodes * running_share
        )
    return usd

"""How many machines of a fleet run in each hour of the week, and what they cost in it."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal
from typing import TYPE_CHECKING

from msgspec import Struct

from planner.market.purchase import COMMITTED_PURCHASES
from planner.solve.capacity import minute_nodes
from planner.units import MINUTES_PER_HOUR, MINUTES_PER_WEEK

if TYPE_CHECKING:
    from collections.abc import Iterator

    from planner.cost.weekly_load import Week
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
        + mean over the minutes of other nodes that run * their price
    Machines that are committed serve first, then those in the order of their purchases.
    """
    is_job = any(
        pool.role == "train" or (pool.role == "batch" and not pool.run_window_s)
        for pool in solution.pools
    )
    if is_job or not solution.pools:
        return ()
    by_pool = [
        [*_pool_hours(pool, pool.week or solution.week, schedule)]
        for pool in solution.pools
    ]
    return tuple(
        FleetHour(
            load=load if share else 0.0,
            nodes=sum(nodes for nodes, _ in pool_hours),
            usd=sum((usd for _, usd in pool_hours), Decimal(0)),
        )
        for load, share, *pool_hours in zip(
            solution.week.relative_load,
            solution.week.running_share,
            *by_pool,
            strict=True,
        )
    )


def _pool_hours(
    pool: SizedPool, week: Week, schedule: str | None
) -> Iterator[tuple[int, Decimal]]:
    """Yield the most nodes of a pool in each hour of a week, and what they cost in it, USD."""
    minutes = minute_nodes(week, pool, schedule)
    for start in range(0, MINUTES_PER_WEEK, MINUTES_PER_HOUR):
        in_hour = Counter(minutes[start : start + MINUTES_PER_HOUR])
        usd = sum(
            (
                count * _running_usd(pool, nodes)
                for nodes, count in in_hour.items()
            ),
            Decimal(0),
        )
        yield max(in_hour), usd / MINUTES_PER_HOUR


def _running_usd(pool: SizedPool, nodes: int) -> Decimal:
    """Return what a pool costs in an hour in which so many of its machines run."""
    usd = Decimal(0)
    waiting_nodes = nodes
    by_turn = sorted(
        pool.purchases,
        key=lambda part: part.purchase not in COMMITTED_PURCHASES,
    )
    for part in by_turn:
        is_committed = part.purchase in COMMITTED_PURCHASES
        running_nodes = min(part.nodes, waiting_nodes)
        waiting_nodes -= running_nodes
        usd += part.usd_hour * (part.nodes if is_committed else running_nodes)
    return usd

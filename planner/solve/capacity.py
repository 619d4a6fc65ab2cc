"""How many nodes of each purchase run at each minute of a week, and when that changes."""

from __future__ import annotations

import math
from itertools import compress
from operator import ne
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from planner.cost.capacity_block import BLOCK_PURCHASE
from planner.cost.lifetime import daily_window_s
from planner.cost.weekly_load import standing_minutes
from planner.market.capacity import quota_purchase
from planner.market.purchase import COMMITTED_PURCHASES
from planner.units import (
    HOURS_PER_WEEK,
    MINUTES_PER_DAY,
    MINUTES_PER_HOUR,
    MINUTES_PER_WEEK,
)

if TYPE_CHECKING:
    from planner.cost.weekly_load import SpareGroups, Week
    from planner.market.bought import PoolPurchase
    from planner.solve.solution import SizedPool


class CapacityChange(Struct, frozen=True):
    """From a time of these days on (Monday is 0), so many nodes; in the stack's time zone."""

    weekdays: tuple[int, ...]
    minute_of_day: int
    nodes: int


class PoolNodes(Struct, frozen=True, kw_only=True):
    """What the nodes of a pool are for, and how many there are, as SizedPool says it.

    `is_elastic` says that they follow the load by themselves while anything runs. Otherwise they
    are started `lead_minutes` before the hours that need them.
    """

    role: Literal["serve", "batch", "train", "workspace"]
    nodes: int
    nodes_per_group: int
    spares: SpareGroups
    run_window_s: int
    is_elastic: bool = False
    lead_minutes: int = 0


def minute_nodes(
    week: Week,
    pool: PoolNodes | SizedPool,
    schedule: str | None,
    load_share: float = 1.0,
) -> tuple[int, ...]:
    """Return how many nodes a pool wants at each minute of a week, from Monday 00:00.

    A daily batch runs from midnight to the end of its window. A training job runs with all of its
    nodes. Everything else follows a share of the load of the hour, all of it by default, and
    without a share nothing runs. Outside the schedule nothing does either. Within it nodes are
    there by the lead of their pool before an hour begins.
    """
    if not load_share:
        return (0,) * MINUTES_PER_WEEK
    if pool.role == "batch":
        run_minutes = (
            int(daily_window_s(pool.run_window_s)) // 60
            if pool.run_window_s
            else MINUTES_PER_DAY
        )
        rest_minutes = MINUTES_PER_DAY - run_minutes
        return 7 * (run_minutes * (pool.nodes,) + rest_minutes * (0,))
    replica_groups = pool.nodes // pool.nodes_per_group - pool.spares.count
    hourly_nodes = week.hourly_nodes(
        replica_groups * load_share, pool.nodes_per_group, pool.spares
    )
    if pool.role == "train":
        hourly_nodes = (pool.nodes,) * HOURS_PER_WEEK
    return standing_minutes(hourly_nodes, schedule, pool.lead_minutes)


def most_nodes(nodes: int, most_share: float) -> int:
    """Return the machines that an elastic group has at most: ceil(nodes * share)."""
    # 1e-9 absorbs floating-point error: 10 * 1.1 is 11 machines.
    return math.ceil(nodes * most_share - 1e-9)


def opening_nodes(wanted_nodes: tuple[int, ...]) -> tuple[int, ...]:
    """Return the nodes of each minute of a week when they only come and go as a whole.

    Those with which a stretch of running minutes begins stay until it ends, also past Sunday; all
    of the peak do when it never ends.
    """
    if 0 not in wanted_nodes:
        return (max(wanted_nodes),) * len(wanted_nodes)
    nodes_by_minute: list[int] = []
    opened = 0
    # The first round finds what runs from Sunday into Monday.
    for nodes in wanted_nodes + wanted_nodes:
        opened = (opened or nodes) if nodes else 0
        nodes_by_minute.append(opened)
    return tuple(nodes_by_minute[len(wanted_nodes) :])


def hourly_most(nodes_by_minute: tuple[int, ...]) -> tuple[int, ...]:
    """Return the most nodes of each hour of a week, by those of its minutes."""
    return tuple(
        max(nodes_by_minute[start : start + MINUTES_PER_HOUR])
        for start in range(0, len(nodes_by_minute), MINUTES_PER_HOUR)
    )


def capacity_changes(
    wanted_nodes: tuple[int, ...],
    purchases: tuple[PoolPurchase, ...],
    *,
    of_spot: bool,
) -> tuple[CapacityChange, ...]:
    """Return when the spot nodes of a pool change, or the others; nothing when they never do."""
    return _changes(purchased_nodes(wanted_nodes, purchases, of_spot=of_spot))


def purchased_nodes(
    wanted_nodes: tuple[int, ...],
    purchases: tuple[PoolPurchase, ...],
    *,
    of_spot: bool,
) -> tuple[int, ...]:
    """Return the spot nodes of a pool at each minute of a week, or the others.

    Machines that stay serve first, and spot machines what is wanted beyond them. Committed
    machines are paid for anyway, so they run all the time.
    """
    spot_nodes = sum(
        part.nodes for part in purchases if part.purchase == "spot"
    )
    steady_nodes = sum(part.nodes for part in purchases) - spot_nodes
    committed_nodes = sum(
        part.nodes for part in purchases if part.purchase in COMMITTED_PURCHASES
    )
    # A week has few numbers of nodes and many minutes, so each number is looked at once.
    running_nodes = {
        wanted: min(spot_nodes, max(0, wanted - steady_nodes))
        if of_spot
        else max(committed_nodes, min(wanted, steady_nodes))
        for wanted in set(wanted_nodes)
    }
    return tuple(map(running_nodes.__getitem__, wanted_nodes))


def quota_nodes(
    purchases: tuple[PoolPurchase, ...], wanted: int
) -> dict[str, int]:
    """Return how many nodes of a pool each quota counts while so many are wanted.

    Those of the first purchases serve first. Committed machines run all the time, and machines of
    a reservation or a block that is there already are counted by no quota.
    """
    counts: dict[str, int] = {}
    start = 0
    for part in purchases:
        running = min(part.nodes, max(0, wanted - start))
        start += part.nodes
        if part.reservation or part.purchase == BLOCK_PURCHASE:
            continue
        if part.purchase in COMMITTED_PURCHASES:
            running = part.nodes
        purchase = quota_purchase(part.purchase)
        counts[purchase] = counts.get(purchase, 0) + running
    return counts


def _changes(nodes_by_minute: tuple[int, ...]) -> tuple[CapacityChange, ...]:
    """Days on which the number changes to the same value at the same time are one change."""
    if len(set(nodes_by_minute)) == 1:
        return ()
    change_days: dict[tuple[int, int], list[int]] = {}
    # Before Monday 00:00 comes the last minute of Sunday.
    nodes_before = (nodes_by_minute[-1], *nodes_by_minute[:-1])
    # Of many minutes few begin with another number.
    for minute in compress(
        range(len(nodes_by_minute)), map(ne, nodes_before, nodes_by_minute)
    ):
        change_days.setdefault(
            (minute % MINUTES_PER_DAY, nodes_by_minute[minute]), []
        ).append(minute // MINUTES_PER_DAY)
    return tuple(
        CapacityChange(tuple(weekdays), minute, node_count)
        for (minute, node_count), weekdays in sorted(change_days.items())
    )

"""What stands, played hour by hour: load, failures and reclaims are drawn, machines are counted.

Shares nothing with the planner but the plan and the tables. The rule of a plan is: in each hour as
many groups as it says run, or else as the load needs, and the spare ones; the first of them serve
first. They are there a start before their hour. A machine that failed, or was taken back, comes
again after a while. Meanwhile it is not paid, unless it is committed to.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tests.oracles.stated import (
    DAY_H,
    MONTH_H,
    WEEK_H,
    Reclaims,
    constant,
    open_hours,
    spread_zones,
    usage,
    week_of,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.random import Generator
    from numpy.typing import NDArray

    from planner.plan.types import CostLine, Plan, Pool

HOUR_S = 3600
# Lines that grow with the hours of machines, and those that grow with what clients send and get.
MACHINE_KINDS = {"disk", "logs", "nat_data", "nat_per_node"}
BALANCER_KINDS = {"load_balancer_data", "load_balancer_unit"}
TRAFFIC_KINDS = {"cross_zone", *BALANCER_KINDS}
# Means of so many parts of a life are nearly independent, and nearly normal.
PARTS = 40
# The hours of an outage are not independent: a binomial interval of hours would be too narrow.
NORMAL_999 = 3.3
ROUNDING = 1e-9


class Machines(NamedTuple):
    """The machines of a pool as its plan tells them, in groups that serve together.

    lasting   groups that nobody takes back
    always    groups that are paid for in every hour
    hourly    groups of each hour of a week, where the plan says them
    """

    groups: int
    group_nodes: int
    peak_groups: int
    spare_groups: int
    spare_hours: int
    lasting: int
    always: int
    hourly: tuple[int, ...] = ()


class Share(NamedTuple):
    """A share of the time, with the half width of its interval of 99.9 %."""

    mean: float
    half_width: float

    def has(self, share: float) -> bool:
        """Whether a share is within the interval."""
        return abs(self.mean - share) <= self.half_width


class Life(NamedTuple):
    """Many periods of a bill, one after the other.

    usd     cost of each period
    gb      what clients send and get in each period
    short   share of the running time in which fewer groups are up than the load needs
    """

    usd: NDArray[np.float64]
    gb: NDArray[np.float64]
    short: Share


def machines_of(pool: Pool) -> Machines:
    """The groups of a pool: a machine with its replicas, or the machines of one replica."""
    group_nodes = max(1, pool.nodes // pool.replicas)
    nodes = {part.purchase: part.nodes for part in pool.purchases}
    always = sum(
        count for way, count in nodes.items() if way.startswith("reserved")
    )
    groups = pool.nodes // group_nodes
    return Machines(
        groups=groups,
        group_nodes=group_nodes,
        peak_groups=groups - pool.spare_groups,
        spare_groups=pool.spare_groups,
        spare_hours=pool.spare_hours,
        lasting=groups - nodes.get("spot", 0) // group_nodes,
        always=always // group_nodes,
        hourly=tuple(nodes // group_nodes for nodes in pool.hourly_nodes or ()),
    )


def load_of(plan: Plan) -> NDArray[np.float64]:
    """The load of each hour of a week over that of the peak, 0 where nothing runs."""
    traffic = plan.spec.normalized.get("traffic")
    # People come whenever their machines run.
    load = week_of(traffic["profile"] if traffic else "flat")
    return load * open_hours(plan.shutdown.schedule)


def groups_needed(
    machines: Machines, load: NDArray[np.float64]
) -> NDArray[np.int64]:
    """The groups of each hour of a week that its load needs: none has more than at the peak."""
    if machines.hourly:
        return np.array(machines.hourly) - spares_of(machines, load)
    needed = np.ceil(machines.peak_groups * load - ROUNDING)
    return np.where(load > 0, np.maximum(1, needed), 0).astype(int)


def groups_running(
    machines: Machines, load: NDArray[np.float64]
) -> NDArray[np.int64]:
    """The groups of each hour of a week, with the spare ones."""
    return groups_needed(machines, load) + spares_of(machines, load)


def spares_of(
    machines: Machines, load: NDArray[np.float64]
) -> NDArray[np.int64]:
    """The spare groups of each hour of a week: one fewer in all but the busiest hours."""
    order = np.array(machines.hourly) if machines.hourly else load
    busiest = np.sort(order)[::-1][machines.spare_hours - 1]
    spares = np.where(
        order >= busiest, machines.spare_groups, machines.spare_groups - 1
    )
    return np.where(load > 0, np.maximum(0, spares), 0)


class Clock:
    """A life that is looked at once in every hour, at a random minute."""

    def __init__(self, draw: Generator, hours: int) -> None:
        self._draw = draw
        self._moments = np.arange(hours) + draw.random(hours)

    def away(self, per_hour: float, mean_h: float) -> NDArray[np.bool_]:
        """When something is away that goes so often while it is there, for a mean time."""
        hours = len(self._moments)
        if not per_hour:
            return np.zeros(hours, bool)
        cycles = math.ceil(1.5 * hours / (1 / per_hour + mean_h)) + DAY_H
        turns = np.empty(2 * cycles)
        turns[::2] = self._draw.exponential(1 / per_hour, cycles)
        turns[1::2] = self._draw.exponential(mean_h, cycles)
        changes = np.cumsum(turns)
        assert changes[-1] > hours
        moments = np.searchsorted(self._moments, changes)
        turned = np.bincount(moments[moments < hours], minlength=hours)
        return np.cumsum(turned) % 2 == 1

    def away_for(self, share: float, mean_h: float) -> NDArray[np.bool_]:
        """When something is away that is away for a share of the time."""
        return self.away(share / (1 - share) / mean_h, mean_h)


def taken_back(
    clock: Clock, groups: int, group_nodes: int, pool: Pool, rate: Reclaims
) -> tuple[list[NDArray[np.bool_]], float]:
    """When each group on spot is away, and the share of such a time in which it is not paid.

    Of the reclaims a share takes all machines of a zone, the others one each. A part of the
    absences of a zone is that of its whole region. A machine that starts is paid for.
    """
    absence_h = rate.wait_h + float(pool.startup_s) / HOUR_S
    together = constant("reclaim_together")
    lost_h = together * rate.hourly * absence_h
    away = constant("spot_away") if rate.is_open else lost_h / (1 + lost_h)
    region_away = constant("reclaim_region") * away
    region = clock.away_for(region_away, absence_h)
    # Machines that work together are in one zone.
    most = spread_zones(pool.provider) if group_nodes == 1 else 1
    zone_count = min(len(pool.zones), most)
    zones = [
        region
        | clock.away_for((away - region_away) / (1 - region_away), absence_h)
        for _ in range(zone_count)
    ]
    alone = (1 - together) * rate.hourly
    return [
        any_of(
            [
                zones[group % zone_count],
                *(clock.away(alone, absence_h) for _ in range(group_nodes)),
            ]
        )
        for group in range(groups)
    ], rate.wait_h / absence_h


def any_of(parts: Sequence[NDArray[np.bool_]]) -> NDArray[np.bool_]:
    """When any of some things is so."""
    return np.logical_or.reduce(parts)


def played_life(
    plan: Plan,
    machines: Machines,
    rate: Reclaims,
    periods: int,
    seed: int,
) -> Life:
    """Play a fleet for many periods of its bill."""
    [pool] = plan.solution.pools
    period_h = round(plan.cost.life.hours) if plan.cost.life else MONTH_H
    hours = periods * period_h
    draw = np.random.default_rng(seed)
    clock = Clock(draw, hours)
    load = load_of(plan)
    of_week = np.arange(hours) % WEEK_H
    running = groups_running(machines, load)[of_week]
    needed = groups_needed(machines, load)[of_week]
    on_spot = machines.groups - machines.lasting
    reclaimed, unpaid_share = taken_back(
        clock, on_spot, machines.group_nodes, pool, rate
    )
    up = np.zeros(hours, int)
    paid = np.zeros((machines.groups, hours))
    for group in range(machines.groups):
        failed = any_of(
            [
                clock.away(
                    constant("node_failures") / DAY_H,
                    constant("node_replacement"),
                )
                for _ in range(machines.group_nodes)
            ]
        )
        gone = np.zeros(hours, bool)
        if group >= machines.lasting:
            gone = reclaimed[group - machines.lasting]
        runs = group < running
        up += runs & ~failed & ~gone
        # It starts before an hour that needs it, while the service is open.
        starts = ~runs & (group < np.roll(running, -1)) & (running > 0)
        paid[group] = (
            (runs + float(pool.startup_s) / HOUR_S * starts)
            * (1 - failed / machines.group_nodes)
            * (1 - unpaid_share * gone)
        )
    paid[: machines.always] = 1
    gb = _traffic_gb(plan, load[of_week], draw)
    usd = (
        _machine_usd(plan, machines, paid)
        + gb * _usd_of_gb(plan)
        + _standing_usd(plan) / period_h
    )
    return Life(
        usd.reshape(periods, period_h).sum(axis=1),
        gb.reshape(periods, period_h).sum(axis=1),
        _share_of(up < needed, running > 0),
    )


def _share_of(short: NDArray[np.bool_], runs: NDArray[np.bool_]) -> Share:
    """The share of the running time, with an interval from the spread of its parts."""
    shares = np.array(
        [
            part_short.sum() / part_runs.sum()
            for part_short, part_runs in zip(
                np.array_split(short, PARTS),
                np.array_split(runs, PARTS),
                strict=True,
            )
        ]
    )
    error = shares.std(ddof=1) / math.sqrt(PARTS)
    return Share(float(shares.mean()), float(NORMAL_999 * error))


def _machine_usd(
    plan: Plan, machines: Machines, paid: NDArray[np.float64]
) -> NDArray[np.float64]:
    """What machines cost in each hour, and what grows with them, at the rates of the bill."""
    [pool] = plan.solution.pools
    stated_hours = sum(
        float(line.quantity) for line in plan.cost.lines if _is_machine(line)
    )
    beside_usd = (
        sum(
            float(line.usd or 0)
            for line in plan.cost.lines
            if line.kind in MACHINE_KINDS
        )
        / stated_hours
    )
    usd = np.zeros(paid.shape[1])
    group = 0
    for part in pool.purchases:
        end = group + part.nodes // machines.group_nodes
        each_usd = float(part.usd_per_hour) + beside_usd
        usd += paid[group:end].sum(axis=0) * machines.group_nodes * each_usd
        group = end
    return usd


def _traffic_gb(
    plan: Plan, load: NDArray[np.float64], draw: Generator
) -> NDArray[np.float64]:
    """What clients send and get in each hour: requests come in clumps where the spec says so."""
    traffic = plan.spec.normalized.get("traffic")
    if traffic is None:
        return np.zeros(len(load))
    mean_requests = HOUR_S * _peak_rps(plan) * load
    # The variance of a number is that of the gaps over their mean, times the number.
    spread = float(traffic["burstiness"]) * np.sqrt(mean_requests)
    prompt = float(traffic["input_tokens"]["mean"])
    answer = float(traffic["output_tokens"]["mean"])
    request_bytes = prompt * usage("prompt_bytes_per_token") + answer * usage(
        "stream_bytes_per_token"
    )
    return draw.normal(mean_requests, spread) * request_bytes / 1e9


def balancer_line(plan: Plan) -> CostLine | None:
    """The line that counts each GB that clients send and get; None where nobody does."""
    return next(
        (line for line in plan.cost.lines if line.kind in BALANCER_KINDS), None
    )


def _usd_of_gb(plan: Plan) -> float:
    """What a GB costs that passes the balancer, and maybe a border of a zone as well."""
    balancer = balancer_line(plan)
    if balancer is None:
        return 0.0
    usd = sum(
        float(line.usd or 0)
        for line in plan.cost.lines
        if line.kind in TRAFFIC_KINDS
    )
    return usd / float(balancer.quantity)


def _peak_rps(plan: Plan) -> float:
    """Requests a second at the peak; users of a closed loop send as many as are answered."""
    traffic = plan.spec.normalized["traffic"]
    if "peak_rps" in traffic:
        return float(traffic["peak_rps"])
    if "requests_per_day" in traffic:
        day_s = DAY_H * HOUR_S
        mean_load = float(load_of(plan).mean())
        return float(traffic["requests_per_day"]) / day_s / mean_load
    return float(plan.solution.predicted["requests_per_s"].value)


def _standing_usd(plan: Plan) -> float:
    """What costs the same in each hour of the period."""
    return sum(
        float(line.usd or 0)
        for line in plan.cost.lines
        if line.kind not in MACHINE_KINDS | TRAFFIC_KINDS
        and not _is_machine(line)
    )


def _is_machine(line: CostLine) -> bool:
    return line.kind == "accelerators"

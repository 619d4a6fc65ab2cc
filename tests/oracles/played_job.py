"""A job, played from its first machine to its last: failures, reclaims, restarts and lost work.

Shares nothing with the planner but the plan and the tables. The pace of the work is that of the
plan. Machines are paid while they exist: also while they wait for one that they work with, and
those that wait for a zone to have machines again do not exist. Where some are on demand, these go
on without those on spot, which join them again at a checkpoint. Times are in hours.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tests.oracles.stated import DAY_H, Reclaims, constant, release_s

if TYPE_CHECKING:
    from numpy.random import Generator
    from numpy.typing import NDArray

    from planner.plan.types import Plan

HOUR_S = 3600
# Lines that grow with the hours of machines, and those that are paid once. The others grow with
# the hours of the job.
MACHINE_KINDS = {
    "disk",
    "logs",
    "nat_data",
    "nat_per_node",
    "private_endpoint_data",
}
ONCE_KINDS = {"egress"}
TOLERANCE = 1e-9


class Outcomes(NamedTuple):
    """Many jobs of one plan: when each is over, without its release, and what it costs."""

    end_h: NDArray[np.float64]
    usd: NDArray[np.float64]


class Machines(NamedTuple):
    """How many machines work, and how many of them are on spot."""

    nodes: int
    on_spot: int


class Hazards(NamedTuple):
    """What stops a job an hour: failures, reclaims of a whole zone, and of one machine."""

    failures: float
    zones: float
    machines: float

    @property
    def all(self) -> float:
        return self.failures + self.zones + self.machines


def machines_of(plan: Plan, spares: int = 0) -> Machines:
    [pool] = plan.solution.pools
    on_spot = sum(
        part.nodes for part in pool.purchases if part.purchase == "spot"
    )
    return Machines(pool.nodes - spares, on_spot)


def hazards(machines: Machines, rate: Reclaims | None) -> Hazards:
    """What stops machines that work together in one zone."""
    failures = machines.nodes * constant("node_failures") / DAY_H
    if rate is None:
        return Hazards(failures, 0.0, 0.0)
    together = constant("reclaim_together")
    return Hazards(
        failures,
        together * rate.hourly,
        (1 - together) * rate.hourly * machines.on_spot,
    )


class Training:
    """A training run by its plan: work, checkpoints, and machines that stand by."""

    def __init__(self, plan: Plan, rate: Reclaims | None) -> None:
        run = plan.solution.run
        assert run is not None
        self.spares = run.spares
        self.on_spot = machines_of(plan).on_spot
        self.rate = rate
        self.hazards = hazards(machines_of(plan, run.spares), rate)
        # Of the machines on demand alone, where there are some.
        self.base_speed = float(run.base.speed) if run.base else 0.0
        base_nodes = run.base.nodes if run.base else 0
        self.base_failures = base_nodes * constant("node_failures") / DAY_H
        self.start_h = float(run.billed_hours.start)
        self.work_h = float(run.billed_hours.steps)
        self.closing_h = float(run.billed_hours.closing)
        self.interval_h = float(run.checkpoint_interval_s) / HOUR_S
        self.blocks_h = float(run.checkpoint_blocks_s) / HOUR_S
        self.restart_h = (
            constant("train_restart") + float(run.storage.checkpoint_load_s)
        ) / HOUR_S
        self.boot_h = constant("boot") / HOUR_S
        # What a notice is too short for is lost.
        self.is_warned = rate is not None and rate.notice_s >= float(
            run.storage.checkpoint_write_s
        )

    def played(self, draw: Generator) -> tuple[float, float]:
        """When a run is over, and the part of that time in which machines on spot are away."""
        clock = self.start_h
        away = done = 0.0
        back: list[float] = []
        gap = self._gap(draw)
        while gap < (left := self._left(done)):
            clock += gap
            done += self._saved(gap)
            kind = draw.random() * self.hazards.all
            if kind >= self.hazards.failures:
                absence = passed = draw.exponential(self._wait_h)
                if self.is_warned:
                    done += self._warned(gap)
                if self.base_speed:
                    passed, worked = self._on_base(draw, absence, done)
                    done += worked
                clock += passed
                is_whole = kind < self.hazards.failures + self.hazards.zones
                absence = min(absence, passed)
                away += absence if is_whole else absence / self.on_spot
                pause = self.restart_h
            else:
                pause = self._pause(clock, back)
            gap = self._gap(draw)
            # What happens before the work goes on makes it start again.
            while gap < pause:
                clock += gap
                pause = self._pause(clock, back)
                gap = self._gap(draw)
            clock += pause
            gap -= pause
        return clock + left + self.closing_h, away

    def _on_base(
        self, draw: Generator, absence: float, done: float
    ) -> tuple[float, float]:
        """How long the base works alone, and how much of the whole speed's work it does.

        Until the first checkpoint after the others are back, or the end of the work.
        """
        clock, worked = self.restart_h, 0.0
        cycle = self.interval_h + self.blocks_h
        gap = draw.exponential(1 / self.base_failures)
        while True:
            step = min(
                self.interval_h * self.base_speed, self.work_h - done - worked
            )
            if step <= 0:
                return clock, worked
            if gap < cycle:
                # What was done since the last checkpoint is lost.
                clock += gap + self._pause(clock, [])
                gap = draw.exponential(1 / self.base_failures)
                continue
            gap -= cycle
            clock += step / self.base_speed + self.blocks_h
            worked += step
            if clock >= absence:
                return clock, worked

    @property
    def _wait_h(self) -> float:
        return self.rate.wait_h if self.rate is not None else 0.0

    def _gap(self, draw: Generator) -> float:
        return draw.exponential(1 / self.hazards.all)

    def _left(self, done: float) -> float:
        """The time of what is left: a checkpoint after each interval but the last."""
        left = self.work_h - done
        saves = math.ceil(left / self.interval_h - TOLERANCE) - 1
        return left + self.blocks_h * max(0, saves)

    def _saved(self, gap: float) -> float:
        """The work of a time that is in a checkpoint."""
        return gap // (self.interval_h + self.blocks_h) * self.interval_h

    def _warned(self, gap: float) -> float:
        """The work that a last checkpoint saves after a notice."""
        begun = gap % (self.interval_h + self.blocks_h)
        return min(self.interval_h, max(0.0, begun - self.blocks_h))

    def _pause(self, clock: float, back: list[float]) -> float:
        """From a failure to the work: a spare machine is there, or another one has to boot."""
        busy = [moment for moment in back if moment > clock]
        back[:] = [*busy, clock + self.boot_h]
        has_spare = len(busy) < self.spares
        return self.restart_h + (0.0 if has_spare else self.boot_h)


def played_runs(
    plan: Plan, rate: Reclaims | None, runs: int, seed: int
) -> Outcomes:
    """Play a training run many times."""
    draw = np.random.default_rng(seed)
    training = Training(plan, rate)
    outcomes = np.array([training.played(draw) for _ in range(runs)])
    end_h, away_h = outcomes.T
    # The job says that it is done, and its machines are given back.
    billed_h = end_h + release_s("release_s") / HOUR_S
    return Outcomes(end_h, _usd(plan, billed_h, away_h, billed_h))


def played_batches(
    plan: Plan, rate: Reclaims | None, runs: int, seed: int
) -> Outcomes:
    """Play a batch many times: machines share the input, and what one has answered stays.

    A machine that comes again boots again. Without an idle limit a daily batch keeps its machines
    until the end of its window.
    """
    draw = np.random.default_rng(seed)
    [pool] = plan.solution.pools
    machines = machines_of(plan)
    boot_h = float(pool.startup_s) / HOUR_S
    traffic = plan.spec.normalized["traffic"]
    requests = traffic.get("total_requests") or traffic["requests_per_day"]
    rps = float(plan.solution.predicted["requests_per_s"].value)
    work_h = float(requests) / rps / HOUR_S
    outcomes = np.array(
        [
            played_batch(draw, machines, boot_h, work_h, rate)
            for _ in range(runs)
        ]
    )
    end_h, away_h = outcomes.T
    if "requests_per_day" in traffic:
        held_h = np.full(runs, pool.run_window_s / HOUR_S)
        period_h = np.full(runs, float(plan.shutdown.ttl or 0) / HOUR_S)
    else:
        held_h = period_h = end_h + release_s("release_s") / HOUR_S
    return Outcomes(end_h, _usd(plan, held_h, away_h, period_h))


def played_batch(
    draw: Generator,
    machines: Machines,
    boot_h: float,
    work_h: float,
    rate: Reclaims | None,
) -> tuple[float, float]:
    """When the input is answered, and how long machines on spot are away, as a mean of these.

    Each stop takes its machines away and lets them boot: all that a zone has on spot, or one.
    """
    nodes, on_spot = machines
    stops = hazards(machines, rate)
    end = boot_h + work_h
    away = 0.0
    clock = draw.exponential(1 / stops.all)
    while clock < end:
        kind = draw.random() * stops.all
        wait_h = constant("node_replacement")
        if rate is not None and kind >= stops.failures:
            wait_h = rate.wait_h
        is_whole = stops.failures <= kind < stops.failures + stops.zones
        share = (on_spot if is_whole else 1) / nodes
        absence = draw.exponential(wait_h)
        # Machines on demand that fail are few: they count as some that are on spot.
        away += share * nodes / (on_spot or nodes) * absence
        # The others go on, and all are done at once.
        end += share * (absence + boot_h)
        clock += draw.exponential(1 / stops.all)
    return end, away


def _usd(
    plan: Plan,
    held_h: NDArray[np.float64],
    away_h: NDArray[np.float64],
    period_h: NDArray[np.float64],
) -> NDArray[np.float64]:
    """What jobs cost whose machines are held for some hours, at the rates of the bill.

    Those on spot are away for some of them, and where none is on spot, all are.
    """
    [pool] = plan.solution.pools
    nodes, on_spot = machines_of(plan)
    machine_lines = [
        line for line in plan.cost.lines if line.kind == "accelerators"
    ]
    stated_node_h = sum(float(line.quantity) for line in machine_lines)
    usd = np.zeros_like(held_h)
    for line, part in zip(machine_lines, pool.purchases, strict=True):
        is_away = part.purchase == "spot" or not on_spot
        node_h = part.nodes * (held_h - away_h * is_away)
        usd += node_h * float(line.usd or 0) / float(line.quantity)
    held_node_h = nodes * held_h - (on_spot or nodes) * away_h
    [stated_period_h] = [
        float(line.quantity)
        for line in plan.cost.lines
        if line.kind == "public_ip"
    ]
    for line in plan.cost.lines:
        line_usd = float(line.usd or 0)
        if line.kind in ONCE_KINDS:
            usd += line_usd
        elif line.kind in MACHINE_KINDS:
            usd += held_node_h / stated_node_h * line_usd
        elif line.kind != "accelerators":
            usd += period_h / stated_period_h * line_usd
    return usd

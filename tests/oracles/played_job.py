"""A job, played from its first machine to its last: failures, reclaims, restarts and lost work.

Shares nothing with the planner but the plan and the tables. The pace of the work is that of the
plan. Machines are paid while they exist: also while they wait for one that they work with, and
those that wait for a zone to have machines again do not exist. Times are in hours.
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
    "accelerators",
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


class Hazards(NamedTuple):
    """What stops a job an hour: failures, reclaims of a whole zone, and of one machine."""

    failures: float
    zones: float
    machines: float

    @property
    def all(self) -> float:
        return self.failures + self.zones + self.machines


def hazards(nodes: int, rate: Reclaims | None) -> Hazards:
    """What stops machines that work together in one zone."""
    failures = nodes * constant("node_failures") / DAY_H
    if rate is None:
        return Hazards(failures, 0.0, 0.0)
    together = constant("reclaim_together")
    return Hazards(
        failures,
        together * rate.hourly,
        (1 - together) * rate.hourly * nodes,
    )


class Training:
    """A training run by its plan: work, checkpoints, and machines that stand by."""

    def __init__(self, plan: Plan, rate: Reclaims | None) -> None:
        [pool] = plan.solution.pools
        run = plan.solution.run
        assert run is not None
        self.spares = run.spares
        self.nodes = pool.nodes - run.spares
        self.rate = rate
        self.hazards = hazards(self.nodes, rate)
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
        """When a run is over, and the part of that time in which its machines are away."""
        clock = self.start_h
        away = done = 0.0
        back: list[float] = []
        gap = self._gap(draw)
        while gap < (left := self._left(done)):
            clock += gap
            done += self._saved(gap)
            kind = draw.random() * self.hazards.all
            if kind >= self.hazards.failures:
                absence = draw.exponential(self._wait_h)
                clock += absence
                is_whole = kind < self.hazards.failures + self.hazards.zones
                away += absence if is_whole else absence / self.nodes
                if self.is_warned:
                    done += self._warned(gap)
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
    return Outcomes(end_h, _usd(plan, billed_h - away_h, billed_h))


def played_batches(
    plan: Plan, rate: Reclaims | None, runs: int, seed: int
) -> Outcomes:
    """Play a batch many times: machines share the input, and what one has answered stays.

    A machine that comes again boots again. Without an idle limit a daily batch keeps its machines
    until the end of its window.
    """
    draw = np.random.default_rng(seed)
    [pool] = plan.solution.pools
    boot_h = float(pool.startup_s) / HOUR_S
    traffic = plan.spec.normalized["traffic"]
    requests = traffic.get("total_requests") or traffic["requests_per_day"]
    rps = float(plan.solution.predicted["requests_per_s"].value)
    work_h = float(requests) / rps / HOUR_S
    outcomes = np.array(
        [
            played_batch(draw, pool.nodes, boot_h, work_h, rate)
            for _ in range(runs)
        ]
    )
    end_h, away_h = outcomes.T
    if "requests_per_day" in traffic:
        held_h = np.full(runs, pool.run_window_s / HOUR_S)
        period_h = np.full(runs, float(plan.shutdown.ttl or 0) / HOUR_S)
    else:
        held_h = period_h = end_h + release_s("release_s") / HOUR_S
    return Outcomes(end_h, _usd(plan, held_h - away_h, period_h))


def played_batch(
    draw: Generator,
    nodes: int,
    boot_h: float,
    work_h: float,
    rate: Reclaims | None,
) -> tuple[float, float]:
    """When the input is answered, and how long machines are away, as a mean of all.

    Each stop takes its machines away and lets them boot: all of a zone, or one.
    """
    stops = hazards(nodes, rate)
    end = boot_h + work_h
    away = 0.0
    clock = draw.exponential(1 / stops.all)
    while clock < end:
        kind = draw.random() * stops.all
        wait_h = constant("node_replacement")
        if rate is not None and kind >= stops.failures:
            wait_h = rate.wait_h
        is_whole = stops.failures <= kind < stops.failures + stops.zones
        share = 1.0 if is_whole else 1 / nodes
        absence = draw.exponential(wait_h)
        away += share * absence
        # The others go on, and all are done at once.
        end += share * (absence + boot_h)
        clock += draw.exponential(1 / stops.all)
    return end, away


def _usd(
    plan: Plan,
    machine_h: NDArray[np.float64],
    period_h: NDArray[np.float64],
) -> NDArray[np.float64]:
    """What jobs cost whose machines are paid for some hours, at the rates of the bill."""
    [pool] = plan.solution.pools
    stated_machine_h = stated_period_h = 0.0
    machine_usd = period_usd = once_usd = 0.0
    for line in plan.cost.lines:
        usd = float(line.usd or 0)
        if line.kind == "accelerators":
            stated_machine_h = float(line.quantity) / pool.nodes
        if line.kind == "public_ip":
            stated_period_h = float(line.quantity)
        if line.kind in MACHINE_KINDS:
            machine_usd += usd
        elif line.kind in ONCE_KINDS:
            once_usd += usd
        else:
            period_usd += usd
    return (
        machine_h / stated_machine_h * machine_usd
        + period_h / stated_period_h * period_usd
        + once_usd
    )

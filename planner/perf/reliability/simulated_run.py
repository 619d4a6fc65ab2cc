"""Plays whole runs, with failures, reclaims and waits drawn: when they end, what is paid.

The same seed gives the same runs.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from planner.perf.reliability.interruption import Hazard

RUN_COUNT: Final = 1000
SEED: Final = 1


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """One run: seconds until it ended, seconds in which machines were paid, and its stops."""

    end_s: float
    paid_s: float
    stop_count: int


@dataclass(frozen=True, slots=True)
class RunDistribution:
    """Many runs, in the order of their ends and of what was paid."""

    end_times_s: tuple[float, ...]
    paid_times_s: tuple[float, ...]
    mean_stops: float

    def end_quantile_s(self, run_share: float) -> float:
        """Seconds within which this share of the runs ends."""
        return _empirical_quantile(self.end_times_s, run_share)

    def paid_quantile_s(self, run_share: float) -> float:
        """Paid seconds that this share of the runs stays within."""
        return _empirical_quantile(self.paid_times_s, run_share)


def simulate_run(
    work_s: float,
    save_s: float,
    interval_s: float,
    hazard: Hazard,
    generator: random.Random,
) -> RunOutcome:
    """Play one run of `work_s` seconds of progress, saving for `save_s` seconds after every `interval_s`.

    Stops come as a Poisson process. What was done since the last checkpoint is done again, except
    that a notice long enough to save loses nothing. Spot is not paid while it is gone.
    """
    stops_per_s = hazard.failures_per_s + hazard.reclaims_per_s
    cycle_s = interval_s + save_s
    paid_s = absence_s = done_s = 0.0
    stop_count = 0
    draw_uniform = generator.random
    natural_log = math.log
    needed_s = _remaining_time(work_s, save_s, interval_s)
    while stops_per_s:
        time_to_stop_s = -natural_log(1.0 - draw_uniform()) / stops_per_s
        if time_to_stop_s >= needed_s:
            break
        stop_count += 1
        whole_cycles = time_to_stop_s // cycle_s
        paid_s += time_to_stop_s + hazard.restart_s
        done_s += whole_cycles * interval_s
        if draw_uniform() * stops_per_s < hazard.reclaims_per_s:
            away_s = (
                generator.expovariate(1 / hazard.wait_s)
                if hazard.wait_s
                else 0.0
            )
            if hazard.partial_speed:
                away_s = min(
                    away_s, max(0.0, work_s - done_s) / hazard.partial_speed
                )
                done_s += away_s * hazard.partial_speed
            absence_s += away_s
            if hazard.notice_s:
                done_s += max(
                    0.0,
                    min(
                        interval_s,
                        time_to_stop_s - whole_cycles * cycle_s - save_s,
                    ),
                )
        needed_s = _remaining_time(work_s - done_s, save_s, interval_s)
    paid_s += needed_s
    return RunOutcome(paid_s + absence_s, paid_s, stop_count)


def _remaining_time(
    remaining_s: float, save_s: float, interval_s: float
) -> float:
    """Seconds for what is left without any stop: the last piece ends the run, not a checkpoint."""
    return remaining_s + save_s * max(
        0, math.ceil(remaining_s / interval_s - 1e-9) - 1
    )


def simulate_runs(
    work_s: float,
    save_s: float,
    interval_s: float,
    hazard: Hazard,
    seed: int = SEED,
) -> RunDistribution:
    """Play a thousand runs."""
    generator = random.Random(seed)  # noqa: S311 - a simulation, not a secret
    outcomes = [
        simulate_run(work_s, save_s, interval_s, hazard, generator)
        for _ in range(RUN_COUNT)
    ]
    return RunDistribution(
        tuple(sorted(outcome.end_s for outcome in outcomes)),
        tuple(sorted(outcome.paid_s for outcome in outcomes)),
        sum(outcome.stop_count for outcome in outcomes) / RUN_COUNT,
    )


def _empirical_quantile(
    sorted_times_s: tuple[float, ...], run_share: float
) -> float:
    return sorted_times_s[
        min(
            len(sorted_times_s) - 1,
            max(0, math.ceil(run_share * len(sorted_times_s)) - 1),
        )
    ]

"""Plays whole runs, with failures, reclaims and waits drawn: when they end, what is paid.

The same seed gives the same runs.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from planner.perf.train.run import Hazard

RUNS: Final = 1000
SEED: Final = 1


@dataclass(frozen=True, slots=True)
class Outcome:
    """One run: seconds until it ended, seconds in which machines were paid, and its stops."""

    ended: float
    paid: float
    stops: int


@dataclass(frozen=True, slots=True)
class Trials:
    """Many runs, in the order of their ends and of what was paid."""

    ended: tuple[float, ...]
    paid: tuple[float, ...]
    stops: float

    def end(self, run_share: float) -> float:
        """Seconds within which this share of the runs ends."""
        return _quantile(self.ended, run_share)

    def cost(self, run_share: float) -> float:
        """Paid seconds that this share of the runs stays within."""
        return _quantile(self.paid, run_share)


def play(
    work_s: float,
    save_s: float,
    interval_s: float,
    hazard: Hazard,
    generator: random.Random,
) -> Outcome:
    """Play one run of `work` seconds of progress, saving for `save` seconds after every `every`.

    Stops come as a Poisson process. What was done since the last checkpoint is done again, except
    that a notice long enough to save loses nothing. Spot is not paid while it is gone.
    """
    stops_per_s, cycle_s = (
        hazard.failures + hazard.reclaims,
        interval_s + save_s,
    )
    paid_s = absence_s = done_s = 0.0
    stop_count, draw_uniform, natural_log = 0, generator.random, math.log
    needed_s = _needed(work_s, save_s, interval_s)
    while stops_per_s:
        time_to_stop_s = -natural_log(1.0 - draw_uniform()) / stops_per_s
        if time_to_stop_s >= needed_s:
            break
        stop_count += 1
        whole_cycles = time_to_stop_s // cycle_s
        paid_s += time_to_stop_s + hazard.restart
        done_s += whole_cycles * interval_s
        if draw_uniform() * stops_per_s < hazard.reclaims:
            away_s = (
                generator.expovariate(1 / hazard.wait) if hazard.wait else 0.0
            )
            if hazard.meanwhile:
                away_s = min(
                    away_s, max(0.0, work_s - done_s) / hazard.meanwhile
                )
                done_s += away_s * hazard.meanwhile
            absence_s += away_s
            if hazard.notice:
                done_s += max(
                    0.0,
                    min(
                        interval_s,
                        time_to_stop_s - whole_cycles * cycle_s - save_s,
                    ),
                )
        needed_s = _needed(work_s - done_s, save_s, interval_s)
    paid_s += needed_s
    return Outcome(paid_s + absence_s, paid_s, stop_count)


def _needed(remaining_s: float, save_s: float, interval_s: float) -> float:
    """Seconds for what is left without any stop: the last piece ends the run, not a checkpoint."""
    return remaining_s + save_s * max(
        0, math.ceil(remaining_s / interval_s - 1e-9) - 1
    )


def trials(
    work_s: float,
    save_s: float,
    interval_s: float,
    hazard: Hazard,
    seed: int = SEED,
) -> Trials:
    """Play a thousand runs."""
    generator = random.Random(seed)  # noqa: S311 - a simulation, not a secret
    outcomes = [
        play(work_s, save_s, interval_s, hazard, generator) for _ in range(RUNS)
    ]
    return Trials(
        tuple(sorted(outcome.ended for outcome in outcomes)),
        tuple(sorted(outcome.paid for outcome in outcomes)),
        sum(outcome.stops for outcome in outcomes) / RUNS,
    )


def _quantile(sorted_times_s: tuple[float, ...], run_share: float) -> float:
    return sorted_times_s[
        min(
            len(sorted_times_s) - 1,
            max(0, math.ceil(run_share * len(sorted_times_s)) - 1),
        )
    ]

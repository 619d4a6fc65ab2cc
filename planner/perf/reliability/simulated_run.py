"""Monte Carlo simulation of runs with failures, spot reclaims and waits.

The same seed gives the same runs. Times are in seconds.
"""

from __future__ import annotations

import itertools
import math
import random
from array import array
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from planner.numeric import nearest_rank

if TYPE_CHECKING:
    from collections.abc import Iterator

    from planner.perf.reliability.interruption import Hazard

RUN_COUNT: Final = 1000
SEED: Final = 1
# Distributions that are kept, 64 kB each: a plan asks for those of one cluster several times.
MOST_KEPT: Final = 32
DRAWN_TOGETHER: Final = 65_536  # numbers that are drawn at once
READ_TOGETHER: Final = 256  # stops of a run that are read at once


class RunOutcome(Struct, frozen=True):
    """Outcome of one simulated run.

    end_s       time until the run ends, s
    paid_s      time in which the machines are paid, s
    stop_count  failures and reclaims
    """

    end_s: float
    paid_s: float
    stop_count: int


class RunDistribution(Struct, frozen=True):
    """Distribution of many simulated runs.

    end_times_s   times until the runs end, ascending, s
    paid_times_s  paid times, ascending, s
    mean_stops    mean number of stops
    """

    end_times_s: tuple[float, ...]
    paid_times_s: tuple[float, ...]
    mean_stops: float

    def end_quantile_s(self, run_share: float) -> float:
        """Return the time within which `run_share` of the runs end, in seconds."""
        return nearest_rank(self.end_times_s, run_share)

    def paid_quantile_s(self, run_share: float) -> float:
        """Return the paid time that `run_share` of the runs do not exceed, in s."""
        return nearest_rank(self.paid_times_s, run_share)


def simulate_run(
    work_s: float,
    save_s: float,
    interval_s: float,
    hazard: Hazard,
    generator: random.Random,
) -> RunOutcome:
    """Simulate one run of `work_s` seconds of progress.

    A checkpoint of `save_s` seconds follows every `interval_s` seconds of work. Stops are a
    Poisson process. A stop loses the work since the last checkpoint. A reclaim with a notice
    saves that work first. Spot machines are not paid while they are absent.
    """
    # Long runs stop some hundred times: what does not change is looked up once.
    reclaims_per_s, restart_s = hazard.reclaims_per_s, hazard.restart_s
    stops_per_s = hazard.failures_per_s + reclaims_per_s
    cycle_s = interval_s + save_s
    paid_s = absence_s = done_s = 0.0
    remaining_s = work_s
    stop_count = 0
    draw_uniform = generator.random
    natural_log = math.log
    while stops_per_s:
        time_to_stop_s = -natural_log(1.0 - draw_uniform()) / stops_per_s
        # Saves only add time, so most stops are known to come first without counting them.
        if time_to_stop_s >= remaining_s and time_to_stop_s >= _remaining_time(
            remaining_s, save_s, interval_s
        ):
            break
        stop_count += 1
        whole_cycles = time_to_stop_s // cycle_s
        paid_s += time_to_stop_s + restart_s
        # Only work with a checkpoint survives the stop.
        done_s += whole_cycles * interval_s
        # The kind of a stop is drawn in proportion to the rates.
        if draw_uniform() * stops_per_s < reclaims_per_s:
            away_s = (
                generator.expovariate(1 / hazard.wait_s)
                if hazard.wait_s
                else 0.0
            )
            # The remaining machines may finish the work during the absence.
            if hazard.partial_speed:
                away_s = min(
                    away_s, max(0.0, work_s - done_s) / hazard.partial_speed
                )
                done_s += away_s * hazard.partial_speed
            absence_s += away_s
            if hazard.notice_s:
                # The notice is long enough for one more checkpoint.
                done_s += max(
                    0.0,
                    min(
                        interval_s,
                        time_to_stop_s - whole_cycles * cycle_s - save_s,
                    ),
                )
        remaining_s = work_s - done_s
    paid_s += _remaining_time(remaining_s, save_s, interval_s)
    # Absence delays the end and is not paid.
    return RunOutcome(paid_s + absence_s, paid_s, stop_count)


def _remaining_time(
    remaining_s: float, save_s: float, interval_s: float
) -> float:
    """Return the time of the remaining work without a stop, in seconds.

    remaining + save * (ceil(remaining / interval) - 1)

    No checkpoint follows the last interval.
    """
    return remaining_s + save_s * max(
        # The tolerance ignores rounding at a whole number of intervals.
        0,
        math.ceil(remaining_s / interval_s - 1e-9) - 1,
    )


class _UnitTimes:
    """Uniform numbers of a seed as exponential times of mean 1, drawn once for all clusters.

    Without reclaims a stop takes two numbers: when it comes, and its kind, which is known then.
    """

    def __init__(self, seed: int) -> None:
        # S311: a simulation, not a secret.
        self._draw_uniform = random.Random(seed).random  # noqa: S311
        self._times = array("d")

    def stops_from(self, position: int) -> Iterator[float]:
        """Yield the times between the stops of a run that begins at a number, without end."""
        return itertools.chain.from_iterable(self._blocks(position))

    def _blocks(self, position: int) -> Iterator[array[float]]:
        for first in itertools.count(position, 2 * READ_TOGETHER):
            last = first + 2 * READ_TOGETHER
            while len(self._times) < last:
                self._draw()
            yield self._times[first:last:2]

    def _draw(self) -> None:
        natural_log, draw_uniform = math.log, self._draw_uniform
        # A list first: an array that takes numbers one by one takes twice as long.
        drawn = [
            -natural_log(1.0 - draw_uniform()) for _ in range(DRAWN_TOGETHER)
        ]
        self._times.extend(array("d", drawn))


@lru_cache(1)
def _unit_times(seed: int) -> _UnitTimes:
    return _UnitTimes(seed)


def _simulate_failing_run(
    work_s: float,
    save_s: float,
    interval_s: float,
    hazard: Hazard,
    unit_times: Iterator[float],
) -> RunOutcome:
    """Simulate one run as `simulate_run` does where nothing is reclaimed."""
    failures_per_s, restart_s = hazard.failures_per_s, hazard.restart_s
    cycle_s = interval_s + save_s
    paid_s = done_s = 0.0
    remaining_s = work_s
    stop_count = 0
    for unit_time in unit_times:
        time_to_stop_s = unit_time / failures_per_s
        if time_to_stop_s >= remaining_s and time_to_stop_s >= _remaining_time(
            remaining_s, save_s, interval_s
        ):
            break
        stop_count += 1
        paid_s += time_to_stop_s + restart_s
        done_s += time_to_stop_s // cycle_s * interval_s
        remaining_s = work_s - done_s
    paid_s += _remaining_time(remaining_s, save_s, interval_s)
    return RunOutcome(paid_s, paid_s, stop_count)


def _failing_runs(
    work_s: float, save_s: float, interval_s: float, hazard: Hazard, seed: int
) -> Iterator[RunOutcome]:
    """Yield the runs of a cluster that only fails, with the numbers of `simulate_run`."""
    unit_times = _unit_times(seed)
    position = 0
    for _ in range(RUN_COUNT):
        outcome = _simulate_failing_run(
            work_s, save_s, interval_s, hazard, unit_times.stops_from(position)
        )
        yield outcome
        # The last number of a run says that no more stop comes before its end.
        position += 2 * outcome.stop_count + 1


@lru_cache(MOST_KEPT)
def simulate_runs(
    work_s: float,
    save_s: float,
    interval_s: float,
    hazard: Hazard,
    seed: int = SEED,
) -> RunDistribution:
    """Simulate `RUN_COUNT` runs from one seed."""
    if hazard.failures_per_s and not hazard.reclaims_per_s:
        outcomes = list(_failing_runs(work_s, save_s, interval_s, hazard, seed))
    else:
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

"""Simulated runs of training: the numbers that clusters share give the runs of each alone."""

from __future__ import annotations

import random

import pytest

from planner.perf.reliability.interruption import Hazard
from planner.perf.reliability.simulated_run import (
    RUN_COUNT,
    simulate_run,
    simulate_runs,
)

DAY = 86_400.0


@pytest.mark.parametrize("work_days", [0.01, 3.0, 40.0])
@pytest.mark.parametrize("stops_a_day", [0.1, 20.0])
def test_clusters_that_only_fail_have_the_runs_of_a_generator_of_their_own(
    work_days: float, stops_a_day: float
) -> None:
    """The same floating-point numbers, whichever cluster was simulated before."""
    hazard = Hazard(
        failures_per_s=stops_a_day / DAY,
        reclaims_per_s=0.0,
        restart_s=600.0,
        wait_s=0.0,
        notice_s=0.0,
    )
    seed = 5
    generator = random.Random(seed)
    outcomes = [
        simulate_run(work_days * DAY, 30.0, 900.0, hazard, generator)
        for _ in range(RUN_COUNT)
    ]
    found = simulate_runs(work_days * DAY, 30.0, 900.0, hazard, seed)
    assert found.end_times_s == tuple(sorted(run.end_s for run in outcomes))
    assert found.paid_times_s == tuple(sorted(run.paid_s for run in outcomes))
    assert (
        found.mean_stops == sum(run.stop_count for run in outcomes) / RUN_COUNT
    )

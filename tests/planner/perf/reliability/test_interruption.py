"""What stops a run: rates and pauses, against pauses that are drawn."""

from __future__ import annotations

import random

import pytest

from planner.perf.common.constant import constant
from planner.perf.reliability.interruption import progress_share, run_hazard

PAUSES = 100_000
NEGLIGIBLE = 1e-15


@pytest.mark.parametrize("machines", [64, 1024, 4096])
def test_a_stop_during_a_restart_begins_it_again(machines: int) -> None:
    hazard = run_hazard(machines, "aws", "p5", load_s=300.0)
    whole_s = constant("train_restart") + constant("boot") + 300.0
    draw = random.Random(3)

    def drawn_s() -> float:
        passed_s = 0.0
        while (gap_s := draw.expovariate(hazard.failures_per_s)) < whole_s:
            passed_s += gap_s
        return passed_s + whole_s

    # Without spare machines nearly each failure waits for a boot.
    assert hazard.restart_s == pytest.approx(
        sum(drawn_s() for _ in range(PAUSES)) / PAUSES, rel=0.01
    )


def test_restarts_that_never_end_leave_no_progress() -> None:
    for machines in (10**6, 10**9):
        hazard = run_hazard(machines, "aws", "p5", load_s=3600.0)
        assert 0 <= progress_share(300.0, 1.0, hazard) < NEGLIGIBLE

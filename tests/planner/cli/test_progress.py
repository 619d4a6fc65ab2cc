"""How far a run is, and how long the rest takes."""

from __future__ import annotations

from typing import Literal

from planner.cli.progress import Pace
from stacks.engine.protocol import ProgressEvent, ResourceStep

STEP = ResourceStep("create", "aws:ec2/vpc:Vpc", "vpc")


def event(
    elapsed_s: float, phase: Literal["begin", "done", "failed"] = "done"
) -> ProgressEvent:
    return ProgressEvent(elapsed_s, STEP, phase)


def test_the_rest_takes_as_long_a_step_as_what_is_done() -> None:
    pace = Pace(4)
    assert pace.counted(event(10, "begin")) == ""
    assert pace.counted(event(30)) == "  (1 of 4, about 01:30 left)"
    assert pace.counted(event(60, "failed")) == "  (2 of 4, about 01:00 left)"
    assert pace.counted(event(0)) == "  (3 of 4)"
    assert pace.counted(event(90)) == "  (4 of 4)"


def test_more_than_was_expected_is_never_more_than_all() -> None:
    pace = Pace(1)
    assert [pace.counted(event(1)) for _ in range(2)] == [
        "  (1 of 1)",
        "  (2 of 2)",
    ]


def test_what_nobody_counted_is_not_counted() -> None:
    assert Pace(0).counted(event(1)) == ""

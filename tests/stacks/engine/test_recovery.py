"""Crashes of the in-process engine: cut anywhere, the next run leaves what an uncut one leaves."""

from __future__ import annotations

from pathlib import Path

import pytest

from planner.errors import CancelledError
from providers.simulated import world
from stacks.engine.protocol import ProgressEvent, RunControl
from stacks.engine.simulated import SimulatedEngine
from stacks.engine.stop import StopRequest
from tests.conftest import find, only, present
from tests.reliability.crash import (
    CrashCase,
    crash_cases,
    crash_moments,
    differences_after,
)
from tests.stacks.engine.test_simulated import TEXT, objects, plan_of, quiet

# How many moments are passed over between two that are tried; all are in `make reliability`.
STRIDE = 37
MOVES = {"aws": "gcp", "gcp": "azure", "azure": "aws"}


def cases_of(catalog, cloud: str) -> tuple[CrashCase, ...]:
    text = TEXT.replace("CLOUD", cloud)
    kinds = {p.instance.instance_type for p in find(catalog, text).pools}
    same = only(catalog, lambda o: o.instance.instance_type in kinds)
    return crash_cases(
        plan_of(same, text),
        plan_of(same, busier_text(text)),
        plan_of(catalog, TEXT.replace("CLOUD", MOVES[cloud])),
    )


def busier_text(text: str) -> str:
    """More machines, and another template for them."""
    return text.replace("peak_rps: 2", "peak_rps: 40").replace(
        "idle: 30m", "idle: 40m"
    )


@pytest.mark.parametrize("cloud", sorted(MOVES))
def test_a_run_that_is_cut_anywhere_is_put_right_by_the_next(
    catalog, cloud: str, tmp_path: Path
) -> None:
    for number, case in enumerate(cases_of(catalog, cloud)):
        folder = tmp_path / str(number)
        moments = crash_moments(case, folder)
        assert moments > 10
        for cut in range(number % STRIDE, moments, STRIDE):
            assert differences_after(case, folder, cut) == [], (case.name, cut)


@pytest.mark.parametrize("cloud", sorted(MOVES))
def test_a_run_that_is_asked_to_end_finishes_what_is_in_flight(
    catalog, cloud: str, tmp_path: Path
) -> None:
    plan = plan_of(catalog, TEXT.replace("CLOUD", cloud))
    for stop_after in range(1, 60, 7):
        engine = SimulatedEngine(
            world.default_world(), tmp_path / str(stop_after)
        )
        stop = StopRequest()
        events: list[ProgressEvent] = []

        def listen(
            event: ProgressEvent,
            events: list[ProgressEvent] = events,
            stop: StopRequest = stop,
            stop_after: int = stop_after,
        ) -> None:
            events.append(event)
            if len(events) == stop_after:
                stop.make()

        with pytest.raises(CancelledError) as caught:
            engine.apply(plan, listen, RunControl(stop=stop))
        assert caught.value.exit_code == 8
        begun = {e.step.name for e in events if e.phase == "begin"}
        done = {e.step.name for e in events if e.phase == "done"}
        assert begun == done
        status = present(engine.stack_status("chat"))
        assert status.operation == "applying"
        assert status.pending == ()
        assert {resource.name for resource in status.resources} == done
        engine.apply(plan, quiet)
        assert present(engine.stack_status("chat")).complete
        assert len(objects(engine)) == len(plan.graph.resources)

"""Tasks beside each other give what they give one after the other."""

from __future__ import annotations

import os
from functools import partial

import pytest

from planner.cli import parallel


def share(number: int) -> tuple[int, int]:
    return number * number, os.getpid()


def fail(number: int) -> int:
    raise ValueError(f"no root of {number}")


@pytest.fixture
def two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel, "usable_cores", lambda: 2)


@pytest.mark.usefixtures("two_cores")
def test_a_task_aside_runs_in_another_process() -> None:
    result, process_id = parallel.run_aside(partial(share, 7))()
    assert result == 49
    assert process_id != os.getpid()


@pytest.mark.usefixtures("two_cores")
def test_other_tasks_may_run_before_its_result_is_asked_for() -> None:
    wait = parallel.run_aside(partial(share, 3))
    others = parallel.run_in_parallel([partial(share, n) for n in range(4)])
    assert [result for result, _ in others] == [0, 1, 4, 9]
    assert wait()[0] == 9


@pytest.mark.usefixtures("two_cores")
def test_the_error_of_a_task_aside_is_raised_with_its_result() -> None:
    wait = parallel.run_aside(partial(fail, -1))
    with pytest.raises(ValueError, match="no root of -1"):
        wait()


def test_one_core_runs_a_task_when_its_result_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(parallel, "usable_cores", lambda: 1)
    assert parallel.run_aside(partial(share, 5))() == (25, os.getpid())

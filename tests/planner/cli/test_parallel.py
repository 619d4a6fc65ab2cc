"""Tasks in processes of their own: what they return, in which order, and how they fail."""

from __future__ import annotations

import os

import pytest

from planner.cli.parallel import results_in_order, run_in_parallel


@pytest.fixture(params=[1, 2])
def cores(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> int:
    """One core, or two."""
    count = int(request.param)
    monkeypatch.setattr("planner.cli.parallel.usable_cores", lambda: count)
    return count


def test_results_are_in_the_order_of_tasks(cores: int) -> None:
    numbers = list(range(20))
    tasks = [lambda number=number: number**2 for number in numbers]
    assert run_in_parallel(tasks) == [number**2 for number in numbers]


def test_other_processes_are_used_where_there_are_cores(cores: int) -> None:
    processes = set(run_in_parallel([os.getpid] * 8))
    assert (os.getpid() in processes) == (cores == 1)


def test_workers_start_no_workers(cores: int) -> None:
    def within() -> bool:
        return set(run_in_parallel([os.getpid] * 2)) == {os.getpid()}

    assert run_in_parallel([within] * 3) == [True] * 3


def test_a_task_that_fails_raises_its_error(cores: int) -> None:
    def fail() -> int:
        raise ValueError("no fleet")

    results = results_in_order([lambda: 1, fail, lambda: 3])
    assert next(results) == 1
    with pytest.raises(ValueError, match="no fleet"):
        next(results)

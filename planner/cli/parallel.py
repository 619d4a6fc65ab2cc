"""Tasks in parallel processes, where the system can fork."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

ResultT = TypeVar("ResultT")

# What a worker runs. It is set before the workers start, so that they inherit it with all that
# it refers to, and only numbers and results are sent.
_tasks: list[Callable[[], Any]] = []


def run_in_parallel(
    tasks: Sequence[Callable[[], ResultT]],
) -> list[ResultT]:
    """Run tasks that do not depend on each other, and return their results in order."""
    return list(results_in_order(tasks))


def results_in_order(
    tasks: Sequence[Callable[[], ResultT]],
) -> Iterator[ResultT]:
    """Yield the results of tasks in order; raises the error of a task that fails.

    A worker runs its own tasks one after the other, so workers never start workers.
    """
    import multiprocessing

    if (
        len(tasks) < 2
        or multiprocessing.parent_process() is not None
        or usable_cores() < 2
        or "fork" not in multiprocessing.get_all_start_methods()
    ):
        yield from (task() for task in tasks)
        return
    from concurrent.futures import ProcessPoolExecutor

    _tasks[:] = tasks
    with ProcessPoolExecutor(
        min(len(tasks), usable_cores()),
        multiprocessing.get_context("fork"),
    ) as workers:
        yield from workers.map(_run_task, range(len(tasks)))
    _tasks.clear()


def usable_cores() -> int:
    """Return the cores that this process may use: in a container often not all of the machine."""
    # Not on every system.
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _run_task(position: int) -> Any:
    return _tasks[position]()

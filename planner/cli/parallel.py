"""Tasks in parallel processes, where the system can fork."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from concurrent.futures import ProcessPoolExecutor

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
    if len(tasks) < 2 or not _may_fork():
        yield from (task() for task in tasks)
        return
    with _forked_workers(tasks) as workers:
        yield from workers.map(_run_task, range(len(tasks)))
    _tasks.clear()


def run_aside(task: Callable[[], ResultT]) -> Callable[[], ResultT]:
    """Start a task in a worker, and return what waits for its result.

    Without a second core that is the task itself.
    """
    if not _may_fork():
        return task
    workers = _forked_workers([task])
    # That forks, so the worker has the task.
    future = workers.submit(_run_task, 0)
    _tasks.clear()
    workers.shutdown(wait=False)
    return future.result


def _forked_workers(tasks: Sequence[Callable[[], Any]]) -> ProcessPoolExecutor:
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor

    _tasks[:] = tasks
    return ProcessPoolExecutor(
        min(len(tasks), usable_cores()), multiprocessing.get_context("fork")
    )


def _may_fork() -> bool:
    """Whether workers help: a worker starts none, and one core runs one task."""
    import multiprocessing

    return (
        multiprocessing.parent_process() is None
        and usable_cores() > 1
        and "fork" in multiprocessing.get_all_start_methods()
    )


def usable_cores() -> int:
    """Return the cores that this process may use: in a container often not all of the machine."""
    # Not on every system.
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _run_task(position: int) -> Any:
    return _tasks[position]()

"""Workers keep what they learned, end with their server, and are replaced when they are gone."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from planner.cli.compose import PlanningOptions
from planner.cli.served.pool import PlannerPool, _is_alive
from planner.cli.served.worker import FolderPlanner
from planner.errors import MissingError, Problem, ResourceError


def process_id(planner: FolderPlanner) -> int:
    return os.getpid()


def fail(planner: FolderPlanner, message: str) -> None:
    raise MissingError(Problem(code="x", message=message, next_step="y"))


@pytest.fixture
def pool(here: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PlannerPool]:
    monkeypatch.setattr("planner.cli.served.pool.usable_cores", lambda: 2)
    opened = PlannerPool(here, PlanningOptions())
    yield opened
    opened.close()


def test_one_home_has_one_worker_and_errors_come_through(
    pool: PlannerPool,
) -> None:
    async def ask() -> list[int]:
        homes = ("a", "b", "a", "b", "c")
        return [await pool.run(home, process_id) for home in homes]

    first, second, *others = asyncio.run(ask())
    assert len({os.getpid(), first, second}) == 3
    assert others == [first, second, first]
    with pytest.raises(MissingError, match="nothing"):
        asyncio.run(pool.run("a", fail, "nothing"))


def test_workers_begin_however_python_begins_them(here: Path) -> None:
    """Processes are forked on some systems and versions, and not on others."""
    usual = multiprocessing.get_start_method()
    multiprocessing.set_start_method("forkserver", force=True)
    pool = PlannerPool(here, PlanningOptions())
    try:
        assert asyncio.run(pool.run("a", process_id)) != os.getpid()
        time.sleep(0.1)
        assert _is_alive(asyncio.run(pool.run("a", process_id)))
    finally:
        pool.close()
        multiprocessing.set_start_method(usual, force=True)


def test_a_worker_that_is_ended_is_replaced(pool: PlannerPool) -> None:
    async def ask() -> tuple[int, int]:
        before = await pool.run("a", process_id)
        os.kill(before, signal.SIGKILL)
        with pytest.raises(ResourceError, match="ended the process"):
            await pool.run("a", process_id)
        return before, await pool.run("a", process_id)

    before, after = asyncio.run(ask())
    assert before != after


def test_no_worker_stays(pool: PlannerPool) -> None:
    number = asyncio.run(pool.run("a", process_id))
    pool.close()
    deadline = time.monotonic() + 30
    while _is_alive(number) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not _is_alive(number)

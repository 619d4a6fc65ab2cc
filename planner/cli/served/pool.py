"""Processes that plan, so that one question does not wait for the answer to another."""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import os
import signal
import threading
import time
from concurrent.futures import BrokenExecutor, ProcessPoolExecutor
from typing import TYPE_CHECKING, Final, TypeVar

from planner.cli.parallel import usable_cores
from planner.cli.served.worker import FolderPlanner
from planner.errors import Problem, ResourceError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from planner.cli.compose import PlanningOptions

MOST_WORKERS: Final = 4
# How often a worker looks whether anybody still asks it.
LOOK_S: Final = 2.0
AnswerT = TypeVar("AnswerT")

# Of this process, where it is a worker.
_planners: list[FolderPlanner] = []


class PlannerPool:
    """Workers, each with a planner that it keeps.

    What is asked of one file goes to one worker: the next answer takes half of the time.
    """

    def __init__(self, root: Path, options: PlanningOptions) -> None:
        self.root = root
        self.options = options
        self._workers = [
            self._open() for _ in range(min(usable_cores(), MOST_WORKERS))
        ]
        self._homes: dict[str, int] = {}

    async def run(
        self,
        home: str,
        work: Callable[..., AnswerT],
        *arguments: object,
    ) -> AnswerT:
        """Let a worker call a method of its planner: for equal homes the same one.

        Raises what it raises, and ResourceError where the system has ended the worker.
        """
        number = self._homes.setdefault(
            home, len(self._homes) % len(self._workers)
        )
        worker = self._workers[number]
        try:
            return await asyncio.get_running_loop().run_in_executor(
                worker, _work, work, arguments
            )
        except BrokenExecutor as error:
            # Several calls may learn of it.
            if worker is self._workers[number]:
                self._workers[number] = self._open()
            raise ResourceError(
                Problem(
                    code="worker",
                    message="the system has ended the process that planned",
                    cause="it may have had too little memory",
                    next_step="load the page again",
                )
            ) from error

    def close(self) -> None:
        """End the workers, whatever they are at: nothing of theirs is kept."""
        for worker in self._workers:
            worker.shutdown(wait=False, cancel_futures=True)
        for process in multiprocessing.active_children():
            process.terminate()

    def _open(self) -> ProcessPoolExecutor:
        worker = ProcessPoolExecutor(
            1,
            initializer=_begin,
            initargs=(self.root, self.options, os.getpid()),
        )
        # It begins now, and not among the threads that a server and its terminal may have.
        worker.submit(_is_there)
        return worker


def _begin(root: Path, options: PlanningOptions, server: int) -> None:
    """Make a worker: a Ctrl-C is for the server, which ends its workers."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    # Commands end soon, and need no collector; a worker does.
    gc.enable()
    threading.Thread(target=_end_with, args=(server,), daemon=True).start()
    _planners[:] = [FolderPlanner(root, options)]


def _is_there() -> bool:
    return bool(_planners)


def _end_with(server: int) -> None:
    """End this process when its server has been killed, and could not do it.

    Its parent may be another process than the server: one that makes new ones from a clean start.
    """
    while _is_alive(server):
        time.sleep(LOOK_S)
    os._exit(1)


def _is_alive(process: int) -> bool:
    try:
        # Signal 0 is sent to nobody.
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def _work(
    work: Callable[..., AnswerT], arguments: tuple[object, ...]
) -> AnswerT:
    return work(_planners[0], *arguments)

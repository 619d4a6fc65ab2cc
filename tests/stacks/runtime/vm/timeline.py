"""Programs that run at the same time on a clock of their own: one at a time, always alike."""

from __future__ import annotations

import heapq
import threading
from collections.abc import Callable


def closed_lock() -> threading.Lock:
    """A lock that one thread opens for another: turns change a million times, and it is fast."""
    lock = threading.Lock()
    lock.acquire()
    return lock


class Killed(BaseException):
    """The machine of a program is gone."""


class Program:
    """A program that runs until it sleeps. It is killed when it should wake and may not."""

    def __init__(self, timeline: Timeline, target: Callable[[], None]) -> None:
        self.timeline = timeline
        self.wake_s = timeline.now_s
        self.is_killed = False
        self.has_ended = False
        self.error: BaseException | None = None
        self._turn = closed_lock()
        self._target = target
        self.thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        self._turn.acquire()
        try:
            if not self.is_killed:
                self._target()
        except Killed:
            pass
        except BaseException as error:  # noqa: BLE001 - told by the timeline
            self.error = error
        self.has_ended = True
        self.timeline.turn.release()

    def sleep(self, seconds: float) -> None:
        self.wake_s = self.timeline.now_s + seconds
        self.timeline.turn.release()
        self._turn.acquire()
        if self.is_killed:
            raise Killed

    def resume(self) -> None:
        self._turn.release()
        self.timeline.turn.acquire()
        if self.error is not None:
            raise self.error


class Timeline:
    """A clock that moves only when every program sleeps, and events of the world."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.turn = closed_lock()
        self._programs: list[Program] = []
        self._events: list[tuple[float, int, Callable[[], None]]] = []

    def start(self, target: Callable[[], None]) -> Program:
        program = Program(self, target)
        program.thread.start()
        self._programs.append(program)
        return program

    def at(self, time_s: float, event: Callable[[], None]) -> None:
        heapq.heappush(self._events, (time_s, len(self._events), event))

    def kill(self, program: Program) -> None:
        """End a program where it sleeps."""
        program.is_killed = True
        if threading.current_thread() is not program.thread:
            program.wake_s = self.now_s

    def current(self) -> Program | None:
        thread = threading.current_thread()
        return next((p for p in self._programs if p.thread is thread), None)

    def run(
        self, until_s: float, stop: Callable[[], bool] = lambda: False
    ) -> None:
        """Run until a time, or until something is so."""
        while not stop():
            self._programs = [p for p in self._programs if not p.has_ended]
            program = min(self._programs, key=lambda p: p.wake_s, default=None)
            wake_s = program.wake_s if program else float("inf")
            event_s = self._events[0][0] if self._events else float("inf")
            if min(wake_s, event_s) > until_s:
                self.now_s = until_s
                return
            self.now_s = max(self.now_s, min(wake_s, event_s))
            if event_s <= wake_s:
                heapq.heappop(self._events)[2]()
            elif program is not None:
                program.resume()

    def close(self) -> None:
        """End all programs."""
        for program in self._programs:
            program.is_killed = True
            if not program.has_ended:
                program.resume()

"""Programs that run at the same time on a clock of their own: one at a time, always alike."""

from __future__ import annotations

import heapq
from collections.abc import Callable

from greenlet import getcurrent, greenlet


class Killed(BaseException):
    """The machine of a program is gone."""


class Program:
    """A program that runs until it sleeps. It is killed when it should wake and may not."""

    def __init__(self, timeline: Timeline, target: Callable[[], None]) -> None:
        self.timeline = timeline
        self.wake_s = timeline.now_s
        self.is_killed = False
        self.has_ended = False
        self.context = greenlet(self._run)
        self._target = target

    def _run(self) -> None:
        try:
            if not self.is_killed:
                self._target()
        except Killed:
            pass
        finally:
            self.has_ended = True

    def sleep(self, seconds: float) -> None:
        self.wake_s = self.timeline.now_s + seconds
        self.timeline.context.switch()
        if self.is_killed:
            raise Killed

    def resume(self) -> None:
        """Let it run until it sleeps again, or has ended; its errors are raised here."""
        self.context.parent = self.timeline.context = getcurrent()
        self.context.switch()


class Timeline:
    """A clock that moves only when every program sleeps, and events of the world."""

    def __init__(self) -> None:
        self.now_s = 0.0
        # Who lets the programs run.
        self.context = getcurrent()
        self._programs: list[Program] = []
        self._events: list[tuple[float, int, Callable[[], None]]] = []

    def start(self, target: Callable[[], None]) -> Program:
        program = Program(self, target)
        self._programs.append(program)
        return program

    def at(self, time_s: float, event: Callable[[], None]) -> None:
        heapq.heappush(self._events, (time_s, len(self._events), event))

    def kill(self, program: Program) -> None:
        """End a program where it sleeps."""
        program.is_killed = True
        if program is not self.current():
            program.wake_s = self.now_s

    def current(self) -> Program | None:
        context = getcurrent()
        return next((p for p in self._programs if p.context is context), None)

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

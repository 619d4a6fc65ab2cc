"""Ending a run on a signal: what is in flight is finished and saved, and nothing more is begun."""

from __future__ import annotations

import signal
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from planner.errors import CancelledError, Problem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

STOP_SIGNALS: Final = tuple(
    getattr(signal, signal_name)
    for signal_name in ("SIGINT", "SIGTERM", "SIGHUP")
    if hasattr(signal, signal_name)
)
# CI systems kill a process 7.5 s after they have asked it to end.
GRACE_S: Final = 5.0
WAIT_STEP_S: Final = 0.1


class StopRequest:
    """Whether a run was asked to end.

    overdue_s   time of the monotonic clock at which it has to be over; none: whenever it is done
    is_unheard  whether nobody can be told anything any more
    """

    def __init__(self) -> None:
        self.is_made = False
        self.is_unheard = False
        self.overdue_s: float | None = None

    def make(self, overdue_s: float | None = None) -> None:
        """Ask the run to end after what is in flight."""
        self.is_made = True
        self.overdue_s = overdue_s

    def wait(self, seconds: float) -> None:
        """Wait, but no longer than until the request is made."""
        end_s = time.monotonic() + seconds
        while not self.is_made and time.monotonic() < end_s:
            time.sleep(WAIT_STEP_S)

    def is_overdue(self, monotonic_s: float) -> bool:
        """Whether what is in flight can be waited for no longer."""
        return self.overdue_s is not None and monotonic_s >= self.overdue_s


def cancelled_error(stack_name: str, verb: str) -> CancelledError:
    """Return the error of a run that was asked to end, and did."""
    return CancelledError(
        Problem(
            code="cancelled",
            message=f"{verb} of {stack_name} was cancelled",
            cause="what was in flight is finished, and what was done is saved",
            next_step="run the same command again: it goes on from there",
        )
    )


@contextmanager
def stop_on_signals(
    stop: StopRequest, on_first: Callable[[str], None]
) -> Iterator[None]:
    """Make the request at the first signal; a second one ends the process at once.

    Whatever is lost of an answer then is looked up by the next run. Only the main thread may
    have handlers, so in another one nothing changes.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def take_signal(signal_number: int, _frame: object) -> None:
        if stop.is_made:
            raise KeyboardInterrupt
        # A person waits; a system that ends processes kills them soon.
        stop.make(
            None
            if signal_number == signal.SIGINT
            else time.monotonic() + GRACE_S
        )
        on_first(signal.Signals(signal_number).name)

    prior_handlers = {
        stop_signal: signal.signal(stop_signal, take_signal)
        for stop_signal in STOP_SIGNALS
    }
    try:
        yield
    finally:
        for stop_signal, prior_handler in prior_handlers.items():
            signal.signal(stop_signal, prior_handler)

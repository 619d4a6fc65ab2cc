"""Signals: the first one asks, the second one ends, and handlers are put back."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest

from stacks.engine.stop import (
    GRACE_S,
    STOP_SIGNALS,
    StopRequest,
    stop_on_signals,
)


@pytest.mark.parametrize("stop_signal", STOP_SIGNALS)
def test_the_first_signal_asks_and_the_second_ends(
    stop_signal: signal.Signals,
) -> None:
    before = signal.getsignal(stop_signal)
    stop = StopRequest()
    said: list[str] = []
    with stop_on_signals(stop, said.append):
        os.kill(os.getpid(), stop_signal)
        assert stop.is_made
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), stop_signal)
    assert said == [stop_signal.name]
    assert signal.getsignal(stop_signal) == before


def test_a_person_waits_and_a_system_does_not() -> None:
    patient, hurried = StopRequest(), StopRequest()
    now = time.monotonic()
    with stop_on_signals(patient, lambda _: None):
        os.kill(os.getpid(), signal.SIGINT)
    with stop_on_signals(hurried, lambda _: None):
        os.kill(os.getpid(), signal.SIGTERM)
    assert not patient.is_overdue(now + 1e6)
    assert not hurried.is_overdue(now)
    assert hurried.is_overdue(now + GRACE_S + 1)


def test_a_wait_ends_with_the_request() -> None:
    stop = StopRequest()
    threading.Timer(0.05, stop.make).start()
    started = time.monotonic()
    stop.wait(60)
    assert time.monotonic() - started < 30


def test_other_threads_keep_the_handlers() -> None:
    before = signal.getsignal(signal.SIGINT)
    seen: list[object] = []

    def work() -> None:
        with stop_on_signals(StopRequest(), lambda _: None):
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [before]

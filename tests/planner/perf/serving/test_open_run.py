"""Laws of runs that send requests at a rate: what is answered, and who waits."""

from __future__ import annotations

import itertools
import math

import pytest

from planner.perf.serving import open_run
from planner.perf.serving.load_shape import offline_throughput
from tests.planner.perf.serving.test_load_shape import rates

LOADS = (0.01, 0.1, 0.3, 0.5, 0.7, 0.9, 0.99, 1.0, 1.01, 1.5, 3.0, 100.0)
RUNS = (20.0, 500.0, 5_000.0, math.inf)


def answered(load: float, request_count: float) -> float:
    """Requests a second over capacity, at a rate of so much of it."""
    replica = rates()
    most = open_run.capacity(replica)
    return open_run.answered_rate(replica, load * most, request_count) / most


def test_capacity_is_the_rate_of_a_full_batch() -> None:
    replica = rates()
    assert open_run.capacity(replica) * replica.answer_tokens == pytest.approx(
        offline_throughput(replica)
    )


@pytest.mark.parametrize("request_count", RUNS)
def test_no_run_answers_more_than_is_sent_or_than_a_full_batch(
    request_count: float,
) -> None:
    for load in LOADS:
        most = min(load, 1.0) * (1 + 1e-9)
        assert 0 < answered(load, request_count) <= most


@pytest.mark.parametrize("request_count", RUNS)
def test_who_sends_faster_is_not_done_later(request_count: float) -> None:
    reached = [answered(load, request_count) for load in LOADS]
    for slower, faster in itertools.pairwise(reached):
        assert faster >= slower * (1 - 1e-3)


@pytest.mark.parametrize("request_count", RUNS)
def test_above_capacity_more_does_not_help(request_count: float) -> None:
    above = [answered(load, request_count) for load in LOADS if load >= 1]
    assert above == pytest.approx([above[0]] * len(above), rel=1e-6)


def test_the_longer_a_run_the_less_its_end_takes_of_it() -> None:
    reached = [answered(0.9, count) for count in RUNS]
    assert reached == sorted(reached)
    assert reached[-1] == pytest.approx(0.9)


def test_a_backlog_grows_with_the_rate_and_the_run_and_only_above_capacity() -> (
    None
):
    replica = rates()
    most = open_run.capacity(replica)

    def waited(load: float, request_count: float) -> float:
        return open_run.mean_backlog_wait(replica, load * most, request_count)

    assert [waited(load, 500) for load in (0.1, 0.9, 1.0)] == [0, 0, 0]
    late = [waited(load, 500) for load in (1.01, 1.1, 2.0, 100.0)]
    assert late == sorted(late)
    # All at once: half of the time that all of them take.
    assert late[-1] == pytest.approx(250 / most, rel=0.02)
    assert waited(2.0, 1000) == pytest.approx(2 * waited(2.0, 500))
    assert waited(0.9, math.inf) == 0.0
    assert math.isinf(waited(1.1, math.inf))

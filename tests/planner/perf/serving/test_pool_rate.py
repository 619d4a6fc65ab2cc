"""What a replica can complete at most: no simulated run completes more, however it is loaded."""

from __future__ import annotations

import math
import random

import pytest

from planner.perf.serving import monte_carlo
from planner.perf.serving.pool_rate import context_load, most_rate
from tests.planner.perf.serving.test_simulation import LOAD, machine

REQUESTS = 3000


def completed_rate(slots: int, pool: float, rate: float) -> float:
    """Requests/s of a run in which requests wait until nearly all have ended."""
    requests = monte_carlo.draw_requests(LOAD, REQUESTS, 3, 1.0, rate)
    monte_carlo.route_requests(machine(slots, pool), requests, 1, "random")
    return REQUESTS / max(request.end_s for request in requests)


@pytest.mark.parametrize("slots", [4, 32, 128])
@pytest.mark.parametrize("pool_requests", [2, 8, 40, math.inf])
def test_no_overload_completes_more(slots: int, pool_requests: float) -> None:
    """Pools from two mean contexts to all, at three times the rate."""
    drawn = monte_carlo.draw_requests(LOAD, REQUESTS, 3, 1.0, 1.0)
    load = context_load([(r.prompt_tokens, r.answer_tokens) for r in drawn])
    pool = pool_requests * load.context_tokens
    most = most_rate(machine(slots, pool), load)
    completed = completed_rate(slots, pool, 3 * most)
    assert completed <= most


@pytest.mark.parametrize("slots", [4, 32])
def test_slots_that_are_full_complete_nearly_as_much(slots: int) -> None:
    """Where the pool holds all and prompts stop nothing, the bound is what is reached."""
    drawn = monte_carlo.draw_requests(LOAD, REQUESTS, 3, 1.0, 1.0)
    load = context_load([(r.prompt_tokens, r.answer_tokens) for r in drawn])
    most = most_rate(machine(slots), load)
    assert completed_rate(slots, math.inf, 3 * most) >= most * 0.85


@pytest.mark.parametrize("seed", range(20))
def test_the_mean_context_is_that_of_all_decode_steps(seed: int) -> None:
    """Counted out: each step of a request holds its prompt and what it has generated."""
    draw = random.Random(seed)
    lengths = [(draw.randint(1, 400), draw.randint(2, 300)) for _ in range(50)]
    contexts = [
        prompt + generated + 0.5
        for prompt, answer in lengths
        for generated in range(answer - 1)
    ]
    load = context_load(lengths)
    assert load.context_tokens == pytest.approx(sum(contexts) / len(contexts))
    assert load.steps == pytest.approx(len(contexts) / len(lengths))


def test_a_larger_pool_never_completes_less() -> None:
    load = context_load([(500, 100), (900, 300)])
    rates = [
        most_rate(machine(64, pool), load)
        for pool in (500, 2_000, 10_000, 100_000, math.inf)
    ]
    assert rates == sorted(rates)

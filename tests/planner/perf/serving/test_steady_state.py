"""What a replica reaches at best: no simulated run completes more, or gives tokens faster."""

from __future__ import annotations

import itertools
import math
import random
import statistics

import pytest
from msgspec.structs import replace

from planner.numeric import nearest_rank
from planner.perf.serving import monte_carlo, simulation
from planner.perf.serving.load import LengthDistribution, ServingLoad
from planner.perf.serving.replica_table import ReplicaTable
from planner.perf.serving.steady_state import (
    SteadyState,
    context_load,
    steady_state,
)
from tests.planner.perf.serving.test_simulation import LOAD, machine

REQUESTS = 3000
Lengths = list[tuple[int, int]]


def best(table: ReplicaTable, lengths: Lengths) -> SteadyState:
    return steady_state(
        table, context_load(lengths), [prompt for prompt, _ in lengths]
    )


def most_rate(found: SteadyState) -> float:
    """Requests/s that are completed at most.

    Each takes the time of its steps and that in which its prompt stops those of others, and the
    first stage for its prompt.
    """
    prompt_s = statistics.fmean(found.prompts_s)
    decode_s = found.steps / found.tokens_per_s[-1]
    return 1 / max(decode_s + found.interference * prompt_s, prompt_s)


def drawn_lengths(load: ServingLoad, count: int) -> Lengths:
    return monte_carlo.RequestStream(load, 3).lengths(count)


def completed_rate(table: ReplicaTable, rate: float) -> float:
    """Requests/s of a run in which requests wait until nearly all have ended."""
    requests = monte_carlo.draw_requests(LOAD, REQUESTS, 3, 1.0, rate)
    monte_carlo.route_requests(table, requests, 1, "random")
    return REQUESTS / max(request.end_s for request in requests)


@pytest.mark.parametrize("slots", [4, 32, 128])
@pytest.mark.parametrize("pool_requests", [2, 8, 40, math.inf])
@pytest.mark.parametrize("slowed", [1.0, 0.1])
def test_no_overload_completes_more(
    slots: int, pool_requests: float, slowed: float
) -> None:
    """Pools from two mean contexts to all, at three times the rate."""
    lengths = drawn_lengths(LOAD, REQUESTS)
    pool = pool_requests * context_load(lengths).context_tokens
    table = machine(slots, pool, slowed)
    most = most_rate(best(table, lengths))
    assert completed_rate(table, 3 * most) <= most


@pytest.mark.parametrize("slots", [4, 32])
def test_slots_that_are_full_complete_nearly_as_much(slots: int) -> None:
    """Where the pool holds all and prompts stop nothing, the bound is what is reached."""
    most = most_rate(best(machine(slots), drawn_lengths(LOAD, REQUESTS)))
    assert completed_rate(machine(slots), 3 * most) >= most * 0.85


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
    lengths = [(500, 100), (900, 300)]
    rates = [
        most_rate(best(machine(64, pool), lengths))
        for pool in (500, 2_000, 10_000, 100_000, math.inf)
    ]
    assert rates == sorted(rates)


def test_the_hull_is_concave_and_over_all_numbers_of_requests() -> None:
    """Steps that get no longer with the batch up to 8, as those of experts that are all read."""
    table = machine(64)
    base = tuple(
        0.0 if not n else 0.02 * min(n, 8) + 0.001 * n for n in range(65)
    )
    table = replace(table, base_steps_s=base)
    lengths = [(500, 100), (900, 300)]
    found = best(table, lengths)
    corners = list(zip(found.in_flight, found.tokens_per_s, strict=True))
    slopes = [
        (y1 - y0) / (x1 - x0)
        for (x0, y0), (x1, y1) in itertools.pairwise(corners)
    ]
    assert slopes == sorted(slopes, reverse=True)
    assert slopes[-1] > 0
    context = context_load(lengths).context_tokens
    for n in range(1, 65):
        tokens_per_s = n / (base[n] + table.step_growths_s[n] * n * context)
        left = max(c for c in corners if c[0] <= n)
        right = min((c for c in corners if c[0] >= n), default=left)
        share = (n - left[0]) / (right[0] - left[0]) if right != left else 0
        assert (
            tokens_per_s
            <= left[1] + share * (right[1] - left[1]) + 1e-9 * tokens_per_s
        )


def drawn_case(draw: random.Random) -> tuple[ReplicaTable, ServingLoad, float]:
    """A replica, a load, and the squared variation of its interarrival times."""
    prompt = draw.choice([100, 1000, 4000])
    answer = draw.choice([20, 50, 150, 600])
    load = ServingLoad(
        prompt_lengths=LengthDistribution(
            mean_tokens=prompt, p95_tokens=prompt * draw.choice([1, 1.5, 3, 6])
        ),
        answer_lengths=LengthDistribution(
            mean_tokens=answer, p95_tokens=answer * draw.choice([1, 1.5, 3, 5])
        ),
    )
    slots = draw.choice([32, 128, 512])
    pool = draw.choice([0.3, 0.6, 1.0, math.inf]) * slots * (prompt + answer)
    first, more = draw.choice([0.01, 0.03]), draw.choice([1e-5, 2e-4, 1e-3])
    table = replace(
        machine(slots, pool, draw.choice([0.05, 0.12, 0.3, 1.0])),
        base_steps_s=(0.0, *(first + more * n for n in range(1, slots + 1))),
        step_growths_s=(draw.choice([1e-9, 5e-8, 1e-6]),) * (slots + 1),
        stage_count=draw.choice([1, 1, 2, 4, 8]),
        token_budget=draw.choice([2048, 8192, 1e9]),
    )
    return table, load, draw.choice([0.05, 0.5, 1.0, 2.0, 10.0])


@pytest.mark.parametrize("seed", range(100))
def test_late_tokens_are_later_than_the_bound_of_their_mean(seed: int) -> None:
    """Drawn replicas, loads and bursts, from a tenth of the most rate to nearly all of it.

    The p90 of the time per token is that of requests after the first sixth of a run. A replica
    whose waits grow for ever completes less than arrives, and may be faster.
    """
    draw = random.Random(seed)
    table, load, variation = drawn_case(draw)
    stream = monte_carlo.RequestStream(load, seed)
    found = best(table, stream.lengths(8000))
    rate = most_rate(found) * draw.uniform(0.1, 0.97)
    bound_s = found.least_tpot(0.985 * rate, variation)
    requests = list(itertools.islice(stream.requests(variation, rate), 8000))
    monte_carlo.route_requests(table, requests, 1, "random")
    times = simulation.request_times(table, requests)
    late_s = nearest_rank(sorted(times["tpot"][1300:]), 0.9)
    waits_s = [
        statistics.median(times["ttft"][first : first + 1000])
        for first in (3000, 7000)
    ]
    assert late_s >= bound_s or waits_s[1] > 1.5 * waits_s[0] > 1


@pytest.mark.parametrize("slowed", [1.0, 0.3])
def test_the_bound_is_near_what_many_requests_reach(slowed: float) -> None:
    """Of all tokens with some hundred requests in flight: it is less than a twentieth below."""
    table = machine(1024, slowed=slowed)
    table = replace(
        table,
        base_steps_s=(0.0, *(0.05 + 0.0002 * n for n in range(1, 1025))),
        step_growths_s=(1e-8,) * 1025,
    )
    found = best(table, drawn_lengths(LOAD, 8000))
    rate = most_rate(found) / 2
    requests = monte_carlo.draw_requests(LOAD, 8000, 3, 1.0, rate)
    monte_carlo.route_requests(table, requests, 1, "random")
    decode_s = sum(r.end_s - r.first_token_s for r in requests)
    steps = sum(r.answer_tokens - 1 for r in requests)
    assert found.least_tpot(rate, 1.0) == pytest.approx(
        decode_s / steps, rel=0.05
    )


def test_more_than_is_ever_completed_takes_for_ever() -> None:
    """Where prompts take less than half of the speed."""
    found = best(machine(32, slowed=0.9), drawn_lengths(LOAD, 1000))
    assert found.least_tpot(most_rate(found) * 1.001, 1.0) == math.inf
    assert found.least_tpot(most_rate(found) * 0.999, 1.0) < math.inf

"""The simulation of single requests, against queueing theory and a clock that counts every token."""

from __future__ import annotations

import math
import statistics
from dataclasses import replace
from itertools import pairwise

import pytest

from planner.facts.llm import find
from planner.perf import simulate
from planner.perf.layout import Layout
from planner.perf.load import Lengths, Load
from planner.perf.physics import prompt
from planner.perf.serve import Replica
from planner.perf.simulate import Lane, Machine, Request
from tests.planner.test_perf import node

LOAD = Load(prompt=Lengths(mean=1000, p95=3000), answer=Lengths(mean=150, p95=500))


def replica() -> Replica:
    layout = Layout(precision="fp8", kv_precision="bf16", tp=1)
    return Replica(find("llama-3.1-8b"), layout, node("h100-sxm"), LOAD)


def machine(slots: int, pool: float = math.inf, slowed: float = 1.0) -> Machine:
    """A replica with steps of 10 ms plus 1 ms for each request, and 1 us for each token held."""
    one = simulate.of_replica(replica())
    base = (0.0, *(0.010 + 0.001 * n for n in range(1, slots + 1)))
    growth = (0.0, *(1e-6 for _ in range(slots)))
    c = replace(one.coefficients, interference=1 - slowed)
    return replace(
        one, base=base, growth=growth, coefficients=c, pool=pool, reserved=0.5, slots=slots,
        slowed=max(simulate.CRAWL, slowed),
    )  # fmt: skip


def counted(one: Machine, requests: list[Request]) -> dict[int, float]:
    """Play token by token: each step lasts as its batch and context say, prompts stop nothing."""
    rates = one.rates
    waiting = sorted(range(len(requests)), key=lambda i: requests[i].due)
    ends: dict[int, float] = {}
    ready: list[tuple[float, int]] = []
    free = 0.0
    for i in waiting:  # enough slots: prompts pass one after the other
        free = max(free, requests[i].due) + prompt(rates, requests[i].prompt)
        ready.append((free, i))
    running: dict[int, int] = {}
    now = 0.0
    while ready or running:
        if not running:
            now = max(now, ready[0][0])
        while ready and ready[0][0] <= now:
            running[ready.pop(0)[1]] = 0
        held = sum(requests[i].prompt + got for i, got in running.items())
        now += one.base[len(running)] + one.growth[len(running)] * held
        for i in list(running):
            running[i] += 1
            if running[i] == requests[i].answer - 1:
                ends[i] = now
                del running[i]
    return ends


def test_the_virtual_clock_agrees_with_counting_every_token() -> None:
    one = machine(slots=64)
    requests = simulate.arrivals(LOAD, 60, 7, 1.0, 3.0)
    expected = counted(one, requests)
    simulate.play(one, requests, 1, "round_robin")
    spent = [(r.end - r.due) / (expected[i] - r.due) for i, r in enumerate(requests)]
    assert statistics.mean(spent) == pytest.approx(1.0, abs=0.01)
    assert min(spent) > 0.9
    assert max(spent) < 1.1


def test_prompts_wait_as_in_an_m_g_1_queue() -> None:
    """Pollaczek and Khinchine: W = rate * E[S^2] / (2 (1 - rho)), answers being instantaneous."""
    one = simulate.of_replica(replica())
    base = (0.0, *(1e-9 for _ in range(512)))
    c = replace(one.coefficients, interference=0.0)
    instant = replace(
        one, base=base, growth=(0.0,) * 513, coefficients=c, pool=math.inf, slots=512, slowed=1.0
    )
    rates, load = one.rates, LOAD
    rate = 0.6 / prompt(rates, load.prompt.mean)
    waits, service = [], []
    for seed in range(12):
        requests = simulate.arrivals(load, 4000, seed, 1.0, rate)
        simulate.play(instant, requests, 1, "random")
        waits += [r.begun - r.due for r in requests]
        service += [prompt(rates, r.prompt) for r in requests]
    square = statistics.fmean(s * s for s in service)
    theory = rate * square / (2 * (1 - rate * statistics.fmean(service)))
    assert statistics.fmean(waits) == pytest.approx(theory, rel=0.07)


@pytest.mark.parametrize("router", ["random", "round_robin", "least_loaded"])
def test_every_request_is_answered_once_and_in_order_of_time(router: simulate.Router) -> None:
    one = machine(slots=8, slowed=0.1)
    requests = simulate.arrivals(LOAD, 400, 3, 2.0, 9.0)
    assert all(a.due <= b.due for a, b in pairwise(requests))
    simulate.play(one, requests, 3, router)
    for r in requests:
        assert r.due <= r.begun < r.first <= r.end


def test_a_pool_that_overflows_restarts_the_newest_and_loses_nobody() -> None:
    one = machine(slots=32, pool=12_000)
    requests = simulate.arrivals(LOAD, 300, 5, 1.0, 6.0)
    lane = Lane(one)
    lane.queue.extend(requests)
    lane.advance(math.inf)
    assert len(lane.done) == len(requests)
    assert lane.kept == pytest.approx(0, abs=1e-6)
    free = machine(slots=32)
    again = simulate.play(free, simulate.arrivals(LOAD, 300, 5, 1.0, 6.0), 1, "random")
    assert statistics.fmean(r.end - r.due for r in requests) > statistics.fmean(
        r.end - r.due for r in again
    )


def test_the_best_router_waits_least() -> None:
    one = machine(slots=6, slowed=0.1)
    waits = {}
    for router in ("random", "round_robin", "least_loaded"):
        requests = simulate.arrivals(LOAD, 4000, 11, 1.0, 6.0)
        simulate.play(one, requests, 4, router)  # type: ignore[arg-type]
        waits[router] = statistics.fmean(r.begun - r.due for r in requests)
    assert waits["least_loaded"] <= waits["round_robin"] <= waits["random"]


def test_bursts_make_waiting_longer() -> None:
    one = simulate.of_replica(replica())
    late = []
    for variation in (0.25, 1.0, 4.0, 9.0):
        requests = simulate.arrivals(LOAD, 4000, 1, variation, 12.0)
        played = simulate.times(one, simulate.play(one, requests, 1, "random"))
        late.append(sorted(played["ttft"])[int(0.95 * len(played["ttft"]))])
    assert late == sorted(late)


def test_a_seed_gives_the_same_run() -> None:
    def run() -> list[float]:
        one = simulate.of_replica(replica())
        requests = simulate.arrivals(LOAD, 300, 4, 1.5, 8.0)
        return [r.end for r in simulate.play(one, requests, 2, "random")]

    assert run() == run()


def test_a_closed_loop_keeps_its_users_busy() -> None:
    """Little: users = flow * time, when nobody thinks."""
    one = simulate.of_replica(replica())
    requests = simulate.arrivals(LOAD, 1500, 2, 1.0, math.inf)
    done = simulate.loop(one, requests, 24)
    middle = sorted(done, key=lambda r: r.end)[300:-100]
    flow = (len(middle) - 1) / (middle[-1].end - middle[0].end)
    spent = statistics.fmean(r.end - r.due for r in middle)
    assert flow * spent == pytest.approx(24, rel=0.05)


@pytest.mark.parametrize("share", [0.3, 0.6, 0.8])
def test_the_formulas_agree_with_the_simulation(share: float) -> None:
    subject = replica()
    rate = share * subject.completion(subject.max_batch)
    service = subject.at(rate)
    assert service is not None
    one = simulate.of_replica(subject)
    runs = []
    for seed in (1, 2, 3):
        requests = simulate.arrivals(subject.load, 2500, seed, 1.0, rate)
        runs.append(simulate.times(one, simulate.play(one, requests, 1, "random")))
    asked = (("e2e", 95), ("ttft", 95), ("tpot", 50))
    found = simulate.summary(runs, asked).found
    for metric, percentile in asked:
        expected = service.quantile(metric, percentile)
        assert found[metric, percentile].value == pytest.approx(expected, rel=0.3)

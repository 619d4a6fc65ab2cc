"""Pools of prompts and of answers in a chain, against a clock that counts every token."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from planner.perf.common import memory
from planner.perf.serving import monte_carlo, pool_chain
from planner.perf.serving.hand_over import HandOver, LinkEnd, hand_over
from planner.perf.serving.pool_chain import Journey, PoolChain, PoolLoad
from planner.perf.serving.simulation import AnsweringReplica, Request
from planner.perf.serving.trial import LOOKS, Trial, TrialLimit
from tests.planner.perf.serving.test_simulation import (
    LOAD,
    machine,
    replica,
)

if TYPE_CHECKING:
    from planner.perf.serving.load import Routing
    from planner.perf.serving.replica_table import ReplicaTable

ENOUGH = 64
MANY = 200


def link(gb_s: float, cached_share: float = 0.0) -> HandOver:
    """A way of so many GB/s, without margins."""
    one = replica()
    return HandOver(
        stored_llm=one.stored_llm,
        layout=one.layout,
        gb_s=gb_s,
        cached_share=cached_share,
        factor=1.0,
    )


def drawn(count: int, rate_per_s: float) -> list[Request]:
    return monte_carlo.draw_requests(LOAD, count, 5, 1.0, rate_per_s)


def played(
    chain: PoolChain, requests: list[Request], batch_size: int = 10
) -> list[Journey]:
    """Play requests to their end: more of them follow, far behind."""
    last_s = requests[-1].due_s
    later = (
        Request(last_s + 1000.0 * number, 10, 2)
        for number in itertools.count(1)
    )
    batches = chain.batches(itertools.chain(requests, later), batch_size)
    journeys: list[Journey] = []
    while len(journeys) < len(requests):
        journeys += next(batches)
    return journeys[: len(requests)]


def prompts_counted(
    table: ReplicaTable, dues_s: dict[int, float], requests: list[Request]
) -> dict[int, float]:
    """When each prompt of one replica ends: those that wait are computed together."""
    waiting = sorted(dues_s, key=lambda index: dues_s[index])
    ends: dict[int, float] = {}
    free_s = 0.0
    while waiting:
        start_s = max(free_s, dues_s[waiting[0]])
        together: list[int] = []
        tokens = 0
        for index in waiting:
            tokens += requests[index].prompt_tokens
            if dues_s[index] > start_s or (
                together and tokens > table.token_budget
            ):
                break
            together.append(index)
        free_s = start_s + sum(
            table.busy_time(requests[index].prompt_tokens) for index in together
        )
        ends.update(dict.fromkeys(together, free_s))
        waiting = waiting[len(together) :]
    return ends


def answers_counted(
    table: ReplicaTable, dues_s: dict[int, float], requests: list[Request]
) -> dict[int, tuple[float, float]]:
    """When the first and the last token of each request come, step by step on one replica.

    Who comes within a step joins the next one.
    """
    waiting = sorted(dues_s, key=lambda index: dues_s[index])
    running: dict[int, int] = {}
    first_s: dict[int, float] = {}
    times: dict[int, tuple[float, float]] = {}
    now_s = 0.0
    while waiting or running:
        if not running:
            now_s = max(now_s, dues_s[waiting[0]])
        while waiting and dues_s[waiting[0]] <= now_s:
            running[waiting.pop(0)] = 0
        context = sum(
            requests[index].prompt_tokens + made
            for index, made in running.items()
        )
        now_s += (
            table.base_steps_s[len(running)]
            + table.step_growths_s[len(running)] * context
        )
        for index in list(running):
            running[index] += 1
            first_s.setdefault(index, now_s)
            if running[index] == requests[index].answer_tokens:
                times[index] = first_s[index], now_s
                del running[index]
    return times


def counted(
    table: ReplicaTable,
    way: HandOver,
    counts: tuple[int, int],
    requests: list[Request],
) -> dict[int, tuple[float, float]]:
    """The first and the last token of requests that are sent to replicas in turn."""
    prompt_count, answer_count = counts
    ends: list[tuple[float, int, int]] = []
    for place in range(prompt_count):
        mine = {
            index: request.due_s
            for index, request in enumerate(requests)
            if index % prompt_count == place
        }
        ends += (
            (end_s, place, index)
            for index, end_s in prompts_counted(table, mine, requests).items()
        )
    sent_s, fetched_s = [0.0] * prompt_count, [0.0] * answer_count
    arrivals: list[dict[int, float]] = [{} for _ in range(answer_count)]
    for turn, (end_s, sender, index) in enumerate(
        sorted(ends, key=lambda end: end[0])
    ):
        fetcher = turn % answer_count
        start_s = max(end_s, sent_s[sender], fetched_s[fetcher])
        cache = memory.kv_bytes(
            way.stored_llm, way.layout, requests[index].prompt_tokens
        )
        arrivals[fetcher][index] = start_s + cache / (way.gb_s * 1e9)
        sent_s[sender] = fetched_s[fetcher] = arrivals[fetcher][index]
    times: dict[int, tuple[float, float]] = {}
    for dues_s in arrivals:
        times.update(answers_counted(table, dues_s, requests))
    return times


@pytest.mark.parametrize("counts", [(1, 1), (2, 1), (1, 3), (3, 2)])
def test_the_chain_agrees_with_counting_every_token(
    counts: tuple[int, int],
) -> None:
    table = machine(slots=ENOUGH)
    requests, way = drawn(MANY, 4.0), link(1.0)
    expected = counted(table, way, counts, requests)
    chain = PoolChain(
        PoolLoad(table, counts[0]),
        PoolLoad(table, counts[1]),
        way,
        "round-robin",
    )
    journeys = played(chain, requests)
    for index, journey in enumerate(journeys):
        answer = journey.answer
        first_s = answer.prompt_start_s + answer.busy_s
        # A step more or less: in the chain nobody waits for the step that runs.
        step_s = table.base_steps_s[-1] + table.step_growths_s[-1] * (
            ENOUGH * LOAD.prompt_lengths.mean_tokens
        )
        assert first_s == pytest.approx(expected[index][0], abs=step_s)
        assert answer.end_s == pytest.approx(expected[index][1], rel=0.01)


@pytest.mark.parametrize("routing", ["random", "round-robin", "least-loaded"])
def test_everybody_passes_both_pools_in_order(routing: Routing) -> None:
    table = machine(slots=ENOUGH)
    requests = drawn(MANY, 6.0)
    chain = PoolChain(
        PoolLoad(table, 2), PoolLoad(table, 2), link(2.0), routing
    )
    for request, journey in zip(requests, played(chain, requests), strict=True):
        prompt, answer = journey.prompt, journey.answer
        assert request.due_s <= prompt.prompt_start_s < prompt.end_s
        assert prompt.end_s < answer.due_s <= answer.prompt_start_s
        assert answer.prompt_start_s + answer.busy_s <= answer.end_s * (
            1 + 1e-9
        )


def test_a_lone_request_takes_what_its_parts_take() -> None:
    """Two fixed parts, the prompt, the way of the cache, and every step of the answer."""
    table = machine(slots=ENOUGH)
    way = link(0.5)
    chain = PoolChain(PoolLoad(table, 1), PoolLoad(table, 1), way, "random")
    [journey] = played(chain, [Request(1.0, 1200, 50)], batch_size=1)
    times = chain.times_of([journey])
    shares = table.coefficients
    step_s = table.base_steps_s[1] + table.step_growths_s[1] * 1200
    assert times["ttft"][0] == pytest.approx(
        2 * shares.first_token
        + shares.prompt_share * table.prompt_latency(1200)
        + way.seconds(1200)
        + step_s
    )
    growth_s = table.step_growths_s[1]
    # Each token is one more of the context of the steps after it.
    assert times["tpot"][0] == pytest.approx(
        step_s + growth_s * 50 * 50 / 2 / 49, rel=1e-3
    )
    assert times["e2e"][0] == pytest.approx(
        times["ttft"][0] + 49 * times["tpot"][0]
    )


def test_prompts_never_slow_the_answers_of_others() -> None:
    """With the same batch the time per token is that of a replica without prompts."""
    table = machine(slots=ENOUGH, slowed=0.0)
    answering = AnsweringReplica(table)
    answering.receive_all(
        pool_chain.answer_request(Request(0.0, 100, 200), due_s)
        for due_s in (0.0, 0.1, 0.2)
    )
    answering.advance(math.inf)
    lone = AnsweringReplica(table)
    lone.receive(pool_chain.answer_request(Request(0.0, 100, 200), 0.0))
    lone.advance(math.inf)
    crowded_s = max(request.end_s for request in answering.finished)
    # Steps of three requests are 1 + 0.002 / 0.011 as long as those of one.
    assert crowded_s < 1.25 * lone.finished[0].end_s + 0.2


def test_who_is_preempted_computes_the_prompt_where_it_is() -> None:
    table = machine(slots=4, pool=950.0)
    one = AnsweringReplica(table)
    one.receive_all(
        pool_chain.answer_request(Request(0.0, 300, 300), 0.0) for _ in range(2)
    )
    one.advance(math.inf)
    assert one.preempted_count
    wide = AnsweringReplica(replace(table, pool_tokens=math.inf))
    wide.receive_all(
        pool_chain.answer_request(Request(0.0, 300, 300), 0.0) for _ in range(2)
    )
    wide.advance(math.inf)
    last_s = max(request.end_s for request in one.finished)
    assert last_s > max(request.end_s for request in wide.finished) + (
        table.busy_time(300)
    )


def test_a_slower_way_or_a_busier_fleet_is_never_faster() -> None:
    table = machine(slots=ENOUGH)

    def p95_s(gb_s: float, counts: tuple[int, int]) -> float:
        chain = PoolChain(
            PoolLoad(table, counts[0]),
            PoolLoad(table, counts[1]),
            link(gb_s),
            "random",
        )
        requests = monte_carlo.RequestStream(LOAD, 3).requests(1.0, 6.0)
        trial = Trial(chain.times(requests, 120, 60))
        return trial.percentile("ttft", 95, LOOKS[0]).estimate_s

    assert p95_s(4.0, (2, 2)) < p95_s(1.0, (2, 2)) < p95_s(0.5, (2, 2))
    assert p95_s(2.0, (4, 4)) < p95_s(2.0, (2, 2))


def test_an_overload_is_found_and_ends() -> None:
    """A link that carries less than comes misses any limit, after some batches."""
    table = machine(slots=ENOUGH)
    chain = PoolChain(
        PoolLoad(table, 1), PoolLoad(table, 1), link(0.05), "random"
    )
    requests = monte_carlo.RequestStream(LOAD, 3).requests(1.0, 6.0)
    trial = Trial(chain.times(requests, 120, 60))
    assert trial.misses([TrialLimit("ttft", 95, 2.0)])


def test_the_cached_part_of_a_prompt_is_handed_over_too() -> None:
    """The connector fetches all blocks of a prompt that the other engine does not have."""
    whole, half = link(1.0), link(1.0, cached_share=0.5)
    assert half.seconds(800) == pytest.approx(whole.seconds(1600))


def test_the_slower_end_and_the_connections_set_the_rate() -> None:
    """Five Gb/s of a connection, and four fifths of what the NIC of the slower machine has."""
    one = replica()
    assert hand_over(LinkEnd(one, 400), LinkEnd(one, 400)).gb_s == 0.625
    shared = one.node.accelerator_count
    slow = hand_over(LinkEnd(one, 1.0), LinkEnd(one, 400))
    assert slow.gb_s == pytest.approx(
        one.coefficients.network_bandwidth / 8 / shared
    )
    assert slow == hand_over(LinkEnd(one, 400), LinkEnd(one, 1.0))

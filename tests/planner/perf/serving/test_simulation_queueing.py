"""The simulation against queues whose waits are known exactly.

A replica is a station with slots. With a constant step it serves each slot at the same speed,
with a step that grows with the batch it shares its speed, and prompts are a queue of their own.
Lengths are geometric, so that the time of an answer is exponential but for its rounding.
"""

from __future__ import annotations

import itertools
import math
import random
import statistics
from typing import TYPE_CHECKING, Final

import pytest
from msgspec import Struct
from msgspec.structs import replace

from planner.numeric import student_quantile
from planner.perf.serving import monte_carlo
from planner.perf.serving.replica_table import ReplicaTable
from planner.perf.serving.simulation import Request
from tests.planner.perf.serving.test_simulation import machine

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from planner.perf.serving.load import Routing

STEP_S: Final = 1e-3  # of a batch of one
MEAN_TOKENS: Final = (
    1000  # long enough for a geometric length to be exponential
)
SERVICE_S: Final = STEP_S * MEAN_TOKENS
REQUESTS: Final = 140_000  # of a run
BATCHES: Final = 20
# Each estimate may leave this interval once in 1,000 seeds; the seeds are fixed.
CHANCE: Final = 0.9995
WIDEST: Final = (
    0.15  # share of the truth that an interval may be wide to either side
)


class Estimate(Struct, frozen=True):
    """A mean over batches of a long run, with its interval."""

    mean: float
    half_width: float


def estimated(samples: Sequence[float]) -> Estimate:
    """The mean of a run after its first tenth, by batch means."""
    steady = samples[len(samples) // 10 :]
    size = len(steady) // BATCHES
    means = [
        statistics.fmean(steady[start : start + size])
        for start in range(0, size * BATCHES, size)
    ]
    return Estimate(
        statistics.fmean(means),
        student_quantile(CHANCE, BATCHES - 1)
        * statistics.stdev(means)
        / math.sqrt(BATCHES),
    )


def assert_agrees(samples: Sequence[float], truth: float) -> None:
    found = estimated(samples)
    assert abs(found.mean - truth) <= found.half_width, (found, truth)
    # An interval that includes everything would prove nothing.
    assert found.half_width <= WIDEST * truth, (found, truth)


def station(slots: int, steps_s: Sequence[float] | None = None) -> ReplicaTable:
    """A replica whose prompts take no time; by default each step lasts the same."""
    steps_s = steps_s or [STEP_S] * slots
    return replace(
        machine(slots),
        base_steps_s=(0.0, *steps_s),
        step_growths_s=(0.0,) * (slots + 1),
        busy_time=lambda _: 0.0,
        prompt_decode_speed=1.0,
    )


def geometric(source: random.Random, mean: float) -> int:
    return 1 + math.floor(
        math.log(1 - source.random()) / math.log(1 - 1 / mean)
    )


def arrivals(
    count: int, rate: float, variation: float, seed: int, tokens: int = 0
) -> list[Request]:
    """Requests with Gamma gaps, and answers of geometric length or of `tokens`.

    The first token of an answer is that of the prompt: the others take a step each.
    """
    source = random.Random(seed)
    shape = 1 / max(variation, 1e-6)
    now_s = 0.0
    requests = []
    for _ in range(count):
        now_s += source.gammavariate(shape, 1 / (shape * rate))
        answer = tokens or geometric(source, MEAN_TOKENS)
        requests.append(Request(now_s, 1, 1 + answer))
    return requests


def played(
    table: ReplicaTable,
    requests: list[Request],
    replicas: int = 1,
    routing: Routing = "random",
) -> list[Request]:
    return monte_carlo.route_requests(table, requests, replicas, routing)


def waits(requests: list[Request]) -> list[float]:
    return [request.prompt_start_s - request.due_s for request in requests]


def stays(requests: list[Request]) -> list[float]:
    return [request.end_s - request.due_s for request in requests]


def erlang_c(servers: int, offered: float) -> float:
    """The chance to wait: Erlang's second formula, by the recursion of his first."""
    blocked = 1.0
    for count in range(1, servers + 1):
        blocked = offered * blocked / (count + offered * blocked)
    return blocked / (1 - offered / servers * (1 - blocked))


@pytest.mark.parametrize(("slots", "load"), [(1, 0.6), (2, 0.8), (4, 0.7)])
def test_slots_are_the_servers_of_erlang(slots: int, load: float) -> None:
    """M/M/c: W = C(c, a) * service / (c - a), and C is the share that waits."""
    offered = load * slots
    requests = played(
        station(slots), arrivals(REQUESTS, offered / SERVICE_S, 1.0, slots)
    )
    chance = erlang_c(slots, offered)
    assert_agrees(waits(requests), chance * SERVICE_S / (slots - offered))
    assert_agrees([float(wait > 1e-9) for wait in waits(requests)], chance)


def test_equal_answers_wait_half_as_long() -> None:
    """M/D/1: W = rho * service / (2 (1 - rho))."""
    load = 0.7
    requests = arrivals(REQUESTS, load / SERVICE_S, 1.0, 5, MEAN_TOKENS)
    truth = load * SERVICE_S / (2 * (1 - load))
    assert_agrees(waits(played(station(1), requests)), truth)


def busy_root(load: float, variation: float) -> float:
    """The share of arrivals that wait in GI/M/1: sigma = A*(mu (1 - sigma)), Gamma gaps."""
    shape = 1 / max(variation, 1e-6)
    sigma = load
    for _ in range(10_000):
        sigma = (1 + (1 - sigma) / (load * shape)) ** -shape
    return sigma


@pytest.mark.parametrize("variation", [0.0, 0.25, 1.0, 4.0])
def test_bursts_wait_as_in_gi_m_1(variation: float) -> None:
    """W = sigma * service / (1 - sigma): even gaps (D/M/1) to bursts of a variation of 2."""
    load = 0.7
    requests = arrivals(REQUESTS, load / SERVICE_S, variation, 7)
    sigma = busy_root(load, variation)
    assert_agrees(
        waits(played(station(1), requests)), sigma * SERVICE_S / (1 - sigma)
    )


@pytest.mark.parametrize("routing", ["random", "round-robin"])
def test_a_router_leaves_each_replica_the_arrivals_that_it_should(
    routing: Routing,
) -> None:
    """Of Poisson arrivals each of k has Poisson ones at random, Erlang-k ones in turn."""
    load, replicas = 0.7, 4
    requests = arrivals(REQUESTS, replicas * load / SERVICE_S, 1.0, 9)
    sigma = busy_root(load, 1.0 if routing == "random" else 1 / replicas)
    assert_agrees(
        waits(played(station(1), requests, replicas, routing)),
        sigma * SERVICE_S / (1 - sigma),
    )


@pytest.mark.parametrize("tokens", [0, MEAN_TOKENS], ids=["geometric", "equal"])
def test_a_batch_that_shares_its_speed_is_processor_sharing(
    tokens: int,
) -> None:
    """M/G/1-PS: T = service / (1 - rho), whatever the lengths are."""
    load, slots = 0.6, 200
    table = station(slots, [STEP_S * batch for batch in range(1, slots + 1)])
    requests = arrivals(REQUESTS, load / SERVICE_S, 1.0, 11, tokens)
    assert_agrees(stays(played(table, requests)), SERVICE_S / (1 - load))


def test_a_batch_is_a_birth_and_death_process() -> None:
    """p(n) / p(n - 1) = rate / completions(n), with steps of a part that all share.

    completions(n) = min(n, slots) / (step * mean length)
    """
    slots, rate = 6, 4.0
    steps_s = [0.6 * STEP_S + 0.1 * STEP_S * n for n in range(1, slots + 1)]
    chances = [1.0]
    for in_flight in range(1, 2000):
        running = min(in_flight, slots)
        completions = running / (steps_s[running - 1] * MEAN_TOKENS)
        chances.append(chances[-1] * rate / completions)
    mean = sum(n * chance for n, chance in enumerate(chances)) / sum(chances)
    requests = arrivals(REQUESTS, rate, 1.0, 13)
    # Little: time = requests in flight / rate.
    assert_agrees(stays(played(station(slots, steps_s), requests)), mean / rate)


@pytest.mark.parametrize("stages", [1, 4])
def test_equal_prompts_wait_for_the_first_stage_as_in_m_d_1(
    stages: int,
) -> None:
    """A stage is free for the next prompt after its part of the work."""
    stage_s, load = 0.25, 0.7
    table = replace(
        station(256),
        busy_time=lambda _: stage_s,
        stage_count=stages,
        # Each prompt has a step of its own.
        token_budget=1,
    )
    requests = arrivals(REQUESTS, load / stage_s, 1.0, 15, 1)
    played(table, requests)
    assert_agrees(waits(requests), load * stage_s / (2 * (1 - load)))
    for request in requests:
        assert request.first_token_s == pytest.approx(
            request.prompt_start_s + stages * stage_s
        )


def mean_value_analysis(users: int, service_s: float, delay_s: float) -> float:
    """Requests/s of a queue and a delay that users go around: exact by their number."""
    queued = 0.0
    rate = 0.0
    for count in range(1, users + 1):
        response_s = service_s * (1 + queued)
        rate = count / (response_s + delay_s)
        queued = rate * response_s
    return rate


@pytest.mark.parametrize("users", [1, 4, 9, 20])
def test_a_closed_loop_is_the_machine_repair_model(users: int) -> None:
    """Prompts are the repairman, answers the time until the next repair."""
    prompt_s = 0.1 * SERVICE_S

    def endless() -> Iterator[Request]:
        source = random.Random(users)
        while True:
            yield Request(
                0.0,
                geometric(source, MEAN_TOKENS),
                1 + geometric(source, MEAN_TOKENS),
            )

    table = replace(
        station(64),
        busy_time=lambda tokens: prompt_s * tokens / MEAN_TOKENS,
        token_budget=1,
    )
    batches = monte_carlo.closed_batches(table, endless(), users, 40_000)
    requests = next(batches)
    truth = users / mean_value_analysis(users, prompt_s, SERVICE_S)
    assert_agrees(stays(requests), truth)


def test_users_beyond_the_slots_wait_for_those_that_are_served() -> None:
    """All slots are busy: rate = slots / service, time = users / rate."""
    slots, users = 4, 10
    source = random.Random(17)
    requests = (
        Request(0.0, 1, 1 + geometric(source, MEAN_TOKENS))
        for _ in itertools.count()
    )
    batches = monte_carlo.closed_batches(
        station(slots), requests, users, 40_000
    )
    assert_agrees(stays(next(batches)), users * SERVICE_S / slots)

"""The simulation of requests, against queueing theory and a clock that counts every token."""

from __future__ import annotations

import itertools
import math
import statistics
from array import array
from itertools import pairwise

import pytest
from msgspec.structs import replace

from planner.facts.llm import find_model
from planner.numeric import nearest_rank
from planner.perf.common.layout import ReplicaLayout
from planner.perf.serving import monte_carlo, replica_table, simulation
from planner.perf.serving.load import LengthDistribution, Routing, ServingLoad
from planner.perf.serving.prompt import prompt_busy_time
from planner.perf.serving.replica import Replica
from planner.perf.serving.replica_table import ReplicaTable
from planner.perf.serving.service import Wait
from planner.perf.serving.simulation import ReplicaSimulation, Request
from planner.perf.serving.trace import Trace, busiest_span
from planner.perf.serving.trial import LOOKS, Trial, TrialLimit
from tests.planner.perf.test_serving import node

LOAD = ServingLoad(
    prompt_lengths=LengthDistribution(mean_tokens=1000, p95_tokens=3000),
    answer_lengths=LengthDistribution(mean_tokens=150, p95_tokens=500),
)


def replica() -> Replica:
    layout = ReplicaLayout(precision="fp8", kv_precision="bf16", tp=1)
    return Replica(find_model("llama-3.1-8b"), layout, node("h100-sxm"), LOAD)


def machine(
    slots: int, pool: float = math.inf, slowed: float = 1.0
) -> ReplicaTable:
    """A replica with steps of 10 ms plus 1 ms for each request, and 1 us for each token held."""
    one = replica_table.tabulate_replica(replica())
    base = (0.0, *(0.010 + 0.001 * n for n in range(1, slots + 1)))
    growth = (0.0, *(1e-6 for _ in range(slots)))
    c = replace(one.coefficients, interference=1 - slowed)
    return replace(
        one,
        base_steps_s=base,
        step_growths_s=growth,
        coefficients=c,
        pool_tokens=pool,
        answer_share=0.5,
        slot_count=slots,
        prompt_decode_speed=max(replica_table.MIN_DECODE_SPEED, slowed),
    )


def counted(one: ReplicaTable, requests: list[Request]) -> dict[int, float]:
    """Play token by token: each step lasts as its batch and context say, prompts stop nothing."""
    rates = one.step_times
    waiting = sorted(range(len(requests)), key=lambda i: requests[i].due_s)
    ends: dict[int, float] = {}
    ready: list[tuple[float, int]] = []
    free = 0.0
    for i in waiting:  # enough slots: prompts pass one after the other
        free = max(free, requests[i].due_s) + prompt_busy_time(
            rates, requests[i].prompt_tokens
        )
        ready.append((free, i))
    running: dict[int, int] = {}
    now = 0.0
    while ready or running:
        if not running:
            now = max(now, ready[0][0])
        while ready and ready[0][0] <= now:
            running[ready.pop(0)[1]] = 0
        held = sum(
            requests[i].prompt_tokens + got for i, got in running.items()
        )
        now += (
            one.base_steps_s[len(running)]
            + one.step_growths_s[len(running)] * held
        )
        for i in list(running):
            running[i] += 1
            if running[i] == requests[i].answer_tokens - 1:
                ends[i] = now
                del running[i]
    return ends


def test_the_virtual_clock_agrees_with_counting_every_token() -> None:
    one = machine(slots=64)
    requests = monte_carlo.draw_requests(LOAD, 60, 7, 1.0, 3.0)
    expected = counted(one, requests)
    monte_carlo.route_requests(one, requests, 1, "round-robin")
    counted_s = [expected[i] - r.due_s for i, r in enumerate(requests)]
    spent_s = [r.end_s - r.due_s for r in requests]
    assert sum(spent_s) == pytest.approx(sum(counted_s), rel=0.01)
    for spent, whole in zip(spent_s, counted_s, strict=True):
        # The clock does not wait for the end of the step that runs.
        assert spent == pytest.approx(whole, rel=0.1, abs=0.02)


def test_prompts_wait_as_in_an_m_g_1_queue() -> None:
    """Pollaczek and Khinchine: W = rate * E[S^2] / (2 (1 - rho)), answers being instantaneous."""
    one = replica_table.tabulate_replica(replica())
    base = (0.0, *(1e-9 for _ in range(512)))
    c = replace(one.coefficients, interference=0.0)
    instant = replace(
        one,
        base_steps_s=base,
        step_growths_s=(0.0,) * 513,
        coefficients=c,
        pool_tokens=math.inf,
        slot_count=512,
        # Each prompt has a step of its own.
        token_budget=1,
        prompt_decode_speed=1.0,
    )
    rates = one.step_times
    load = LOAD
    rate = 0.6 / prompt_busy_time(rates, load.prompt_lengths.mean_tokens)
    waits = []
    service = []
    for seed in range(12):
        requests = monte_carlo.draw_requests(load, 4000, seed, 1.0, rate)
        monte_carlo.route_requests(instant, requests, 1, "random")
        waits += [r.prompt_start_s - r.due_s for r in requests]
        service += [prompt_busy_time(rates, r.prompt_tokens) for r in requests]
    square = statistics.fmean(s * s for s in service)
    theory = rate * square / (2 * (1 - rate * statistics.fmean(service)))
    assert statistics.fmean(waits) == pytest.approx(theory, rel=0.07)


@pytest.mark.parametrize("router", ["random", "round-robin", "least-loaded"])
def test_every_request_is_answered_once_and_in_order_of_time(
    router: Routing,
) -> None:
    one = machine(slots=8, slowed=0.1)
    requests = monte_carlo.draw_requests(LOAD, 400, 3, 2.0, 9.0)
    assert all(a.due_s <= b.due_s for a, b in pairwise(requests))
    monte_carlo.route_requests(one, requests, 3, router)
    for r in requests:
        assert r.due_s <= r.prompt_start_s < r.first_token_s <= r.end_s


def test_a_pool_that_overflows_preempts_the_newest_and_loses_nobody() -> None:
    one = machine(slots=32, pool=12_000)
    requests = monte_carlo.draw_requests(LOAD, 300, 5, 1.0, 6.0)
    lane = ReplicaSimulation(one)
    lane.receive_all(requests)
    lane.advance(math.inf)
    assert len(lane.finished) == len(requests)
    assert lane.reserved_tokens == pytest.approx(0, abs=1e-6)
    free = machine(slots=32)
    again = monte_carlo.route_requests(
        free, monte_carlo.draw_requests(LOAD, 300, 5, 1.0, 6.0), 1, "random"
    )
    assert statistics.fmean(
        r.end_s - r.due_s for r in requests
    ) > statistics.fmean(r.end_s - r.due_s for r in again)


def test_the_best_router_waits_least() -> None:
    one = machine(slots=6, slowed=0.1)
    waits = {}
    for router in ("random", "round-robin", "least-loaded"):
        requests = monte_carlo.draw_requests(LOAD, 4000, 11, 1.0, 6.0)
        monte_carlo.route_requests(one, requests, 4, router)
        waits[router] = statistics.fmean(
            r.prompt_start_s - r.due_s for r in requests
        )
    assert waits["least-loaded"] <= waits["round-robin"] <= waits["random"]


def test_bursts_make_waiting_longer() -> None:
    one = replica_table.tabulate_replica(replica())
    late = []
    for variation in (0.25, 1.0, 4.0, 9.0):
        requests = monte_carlo.draw_requests(LOAD, 4000, 1, variation, 12.0)
        played = simulation.request_times(
            one, monte_carlo.route_requests(one, requests, 1, "random")
        )
        late.append(sorted(played["ttft"])[int(0.95 * len(played["ttft"]))])
    assert late == sorted(late)


def test_a_seed_gives_the_same_run() -> None:
    def run() -> list[float]:
        one = replica_table.tabulate_replica(replica())
        requests = monte_carlo.draw_requests(LOAD, 300, 4, 1.5, 8.0)
        return [
            r.end_s
            for r in monte_carlo.route_requests(one, requests, 2, "random")
        ]

    assert run() == run()


def test_a_closed_loop_keeps_its_users_busy() -> None:
    """Little: users = flow * time, when nobody thinks."""
    one = replica_table.tabulate_replica(replica())
    requests = monte_carlo.draw_requests(LOAD, 1500, 2, 1.0, math.inf)
    batches = monte_carlo.closed_batches(one, iter(requests), 24, 100)
    done = [request for batch in batches for request in batch]
    assert len(done) == len(requests)
    middle = sorted(done, key=lambda r: r.end_s)[300:-100]
    flow = (len(middle) - 1) / (middle[-1].end_s - middle[0].end_s)
    spent = statistics.fmean(r.end_s - r.due_s for r in middle)
    assert flow * spent == pytest.approx(24, rel=0.05)


def test_who_is_alone_waits_for_no_step_of_others() -> None:
    """The first token comes after the fixed part and the prompt, by formula and by simulation."""
    subject = replica()
    service = subject.open_service(1e-4)
    assert service is not None
    one = replica_table.tabulate_replica(subject)
    lone = [Request(1e6 * i, 1000, 50) for i in range(3)]
    followed = [Request(9e6, 1000, 500), Request(9e6 + 1.0, 1000, 50)]
    played = monte_carlo.route_requests(one, [*lone, *followed], 1, "random")
    *alone_s, second_s = simulation.request_times(one, played)["ttft"]
    own_s = (
        subject.coefficients.first_token
        + subject.coefficients.prompt_share * one.prompt_latency(1000)
    )
    assert alone_s == pytest.approx([own_s] * 4)
    assert second_s > own_s
    assert service.ttft(50) == pytest.approx(subject.idle_quantile("ttft", 50))


@pytest.mark.parametrize("share", [0.01, 0.3, 0.6, 0.8])
def test_the_formulas_agree_with_the_simulation(share: float) -> None:
    subject = replica()
    rate = share * subject.completion_rate(subject.max_batch)
    service = subject.open_service(rate)
    assert service is not None
    one = replica_table.tabulate_replica(subject)
    requests = monte_carlo.RequestStream(LOAD, 1).requests(1.0, rate)
    batches = monte_carlo.open_batches(one, requests, 1, "random", 7500)
    found = simulation.request_times(one, next(batches))
    asked = (
        ("e2e", 95),
        ("ttft", 95),
        ("tpot", 50),
        ("tpot", 99),
        ("ttft", 99),
        ("e2e", 99),
    )
    for metric, percentile in asked:
        expected = service.quantile(metric, percentile)
        simulated = nearest_rank(sorted(found[metric]), percentile / 100)
        assert simulated == pytest.approx(expected, rel=0.3)


def test_batches_are_the_whole_run_in_order_of_arrival() -> None:
    one = replica_table.tabulate_replica(replica())
    drawn = monte_carlo.draw_requests(LOAD, 600, 4, 1.0, 6.0)
    monte_carlo.route_requests(one, drawn, 1, "random")
    endless = monte_carlo.RequestStream(LOAD, 4).requests(1.0, 6.0)
    batches = monte_carlo.open_batches(one, endless, 1, "random", 150)
    played = [
        request for batch in itertools.islice(batches, 3) for request in batch
    ]
    # The last of them overlap with requests that the whole run ends without.
    assert [r.end_s for r in played] == pytest.approx(
        [r.end_s for r in drawn[:450]]
    )


def open_run(one: ReplicaTable, rate: float) -> monte_carlo.OpenRun:
    requests = monte_carlo.RequestStream(LOAD, 1).requests(1.0, rate)
    steps = monte_carlo.open_steps(one, requests, 1, "random", 120)
    return monte_carlo.OpenRun(steps, 120, one)


@pytest.mark.parametrize("load_share", [0.7, 0.95, 1.05, 1.5, 4.0])
@pytest.mark.parametrize("slots", [8, 64])
def test_what_is_late_for_sure_is_late_when_the_run_has_ended(
    load_share: float, slots: int
) -> None:
    """Misses are found with fewer requests in an overload, and are the same ones everywhere."""
    one = machine(slots, pool=1500.0 * slots)
    # Of answers of 150 tokens.
    capacity = slots / (one.base_steps_s[slots] + 0.0015 * slots) / 150
    verdicts = []
    for metric, seconds in itertools.product(
        ("ttft", "e2e", "tpot"), (0.05, 0.5, 5.0, 50.0)
    ):
        limits = [TrialLimit(metric, 95, seconds)]
        run = open_run(one, load_share * capacity)
        early = Trial(run)
        verdicts.append(early.misses(limits))
        whole = Trial(open_run(one, load_share * capacity)).decide(limits)
        assert verdicts[-1] == (whole.limit is not None), (metric, seconds)
        # What it has not played it still plays when it is asked.
        assert early.decide(limits) == whole
    assert True in verdicts


@pytest.mark.parametrize("known_pool", [15_000.0, 25_000.0, 90_000.0])
@pytest.mark.parametrize("known_slots", [8, 16, 64])
def test_a_run_without_waiting_is_that_of_a_replica_with_other_room(
    known_slots: int, known_pool: float
) -> None:
    """Where one run says so, the other has the same times; each of both happens."""
    limits = [TrialLimit("ttft", 95, 2.0)]
    known = Trial(open_run(machine(known_slots, pool=known_pool), 0.8))
    decided = known.decide(limits)
    shared = set()
    for slots, pool in itertools.product(
        (8, 11, 12, 64), (15_000.0, 20_000.0, 24_000.0, 90_000.0)
    ):
        is_shared = known.is_that_of(slots, pool)
        shared.add(is_shared)
        other = Trial(open_run(machine(slots, pool=pool), 0.8))
        if is_shared:
            assert other.decide(limits) == decided
            for metric, percentile in itertools.product(
                ("ttft", "tpot", "e2e"), (50, 99)
            ):
                assert other.percentile(
                    metric, percentile, decided.batch_count
                ) == known.percentile(metric, percentile, decided.batch_count)
    # Up to 12 requests with 20,892 tokens meet: a replica that is full itself stands for no other.
    has_room = known_slots > 12 and known_pool > 20_892
    assert shared == ({False, True} if has_room else {False})


def test_an_overload_is_proved_before_its_requests_end() -> None:
    limits = [TrialLimit("ttft", 95, 1.0)]
    late, whole = (Trial(open_run(machine(8), 20.0)) for _ in range(2))
    assert late.misses(limits)
    assert late.request_count < LOOKS[0] * 120
    assert whole.decide(limits).verdict == "misses"


@pytest.mark.parametrize("metric", ["ttft", "tpot", "e2e"])
def test_what_is_known_of_a_batch_encloses_what_becomes_of_it(
    metric: str,
) -> None:
    """Shares of late requests, from all that may be to exactly one, as requests end."""
    one = machine(8, pool=12_000.0)
    whole = list(itertools.islice(open_run(one, 0.4), 20))
    for seconds in (0.02, 0.05, 0.5, 5.0):
        run = open_run(one, 0.4)
        ended = 0
        for _ in range(12):
            run.play_on()
            ended += len(run.take_ended())
            for position in range(run.unended_count):
                least, most = run.late_shares(position, metric, seconds)
                times_s = whole[ended + position][metric]
                late = statistics.fmean(time_s > seconds for time_s in times_s)
                assert least <= late <= most


def test_what_fills_a_replica_is_not_measured() -> None:
    one = replica_table.tabulate_replica(replica())
    requests = monte_carlo.draw_requests(LOAD, 400, 4, 1.0, 6.0)
    monte_carlo.route_requests(one, requests, 1, "random")
    batches = [requests[start : start + 100] for start in range(0, 400, 100)]
    measured = list(monte_carlo.measured_batches(batches, 150, one))
    assert measured == [
        simulation.request_times(one, batch) for batch in batches[2:]
    ]


def test_a_stream_has_the_same_lengths_at_every_rate() -> None:
    stream = monte_carlo.RequestStream(LOAD, 3)
    slow = list(itertools.islice(stream.requests(1.0, 2.0), 600))
    fast = list(itertools.islice(stream.requests(1.0, 8.0), 600))
    bursty = list(itertools.islice(stream.requests(4.0, 2.0), 600))
    for other in (fast, bursty):
        assert [(r.prompt_tokens, r.answer_tokens) for r in slow] == [
            (r.prompt_tokens, r.answer_tokens) for r in other
        ]
    assert [r.due_s for r in slow] == pytest.approx([r.due_s * 4 for r in fast])


def recorded(requests: list[Request], start_s: float = 0.0) -> Trace:
    return Trace(
        array("d", [start_s + r.due_s for r in requests]),
        array("d", [r.prompt_tokens for r in requests]),
        array("d", [r.answer_tokens for r in requests]),
    )


def test_parts_of_a_stream_vary_as_their_routing_says() -> None:
    """Squared variation of the gaps that one of 4 replicas sees, of bursts of 4 and of Poisson."""
    for variation in (1.0, 4.0):
        whole = recorded(
            monte_carlo.draw_requests(LOAD, 40_000, 5, variation, 9.0)
        )
        for routing in ("random", "round-robin"):
            # Type: ignore[arg-type].
            load = replace(LOAD, arrival_variation=variation, routing=routing)
            due = [
                r.due_s
                for r in monte_carlo.trace_requests(whole, load, 4, 1, 3)
            ]
            gaps = [b - a for a, b in pairwise(due)]
            found = (statistics.pstdev(gaps) / statistics.fmean(gaps)) ** 2
            assert found == pytest.approx(load.replica_variation(4), rel=0.1)


def test_the_parts_of_a_trace_are_the_whole_and_lose_what_is_cached() -> None:
    whole = recorded(
        monte_carlo.draw_requests(LOAD, 500, 5, 1.0, 9.0), start_s=50
    )
    load = replace(LOAD, routing="round-robin", prefix_hit=0.5)
    parts = [
        monte_carlo.trace_requests(whole, load, 3, 1, seed) for seed in range(3)
    ]
    assert sorted(r.due_s for part in parts for r in part) == pytest.approx(
        [at - whole.arrival_s[0] for at, _, _ in whole]
    )
    fresh = sum(r.prompt_tokens for part in parts for r in part)
    assert fresh == pytest.approx(sum(x[1] for x in whole) / 2, rel=0.01)


def test_the_busiest_stretch_is_the_shortest_of_its_length() -> None:
    whole = recorded(monte_carlo.draw_requests(LOAD, 300, 8, 6.0, 2.0))
    found = busiest_span(whole, 40)
    due = list(whole.arrival_s)
    spans = [due[i + 39] - due[i] for i in range(len(whole) - 39)]
    assert len(found) == 40
    assert found.arrival_s[-1] - found.arrival_s[0] == min(spans)
    first = spans.index(min(spans))
    assert list(found) == list(whole)[first : first + 40]
    assert busiest_span(whole, 300) is whole


def test_a_wait_of_two_phases_has_the_moments_that_were_asked_for() -> None:
    for variation in (1.0, 2.5, 9.0):
        phases = Wait(0.5, 3.0, variation).phases()
        assert sum(chance * mean for chance, mean in phases) == pytest.approx(
            3.0
        )
        square = sum(chance * 2 * mean * mean for chance, mean in phases)
        assert square / 9 - 1 == pytest.approx(variation)


def test_prompts_that_wait_share_steps_up_to_the_token_budget() -> None:
    """Ten prompts of 1,000 tokens at once: steps of 4,000 tokens take four of them each."""
    table = replace(machine(slots=64), token_budget=4000)
    requests = [Request(0.0, 1000, 50) for _ in range(10)]
    monte_carlo.route_requests(table, requests, 1, "random")
    first_tokens = [request.first_token_s for request in requests]
    prompt_s = table.busy_time(1000)
    assert first_tokens == pytest.approx(
        [4 * prompt_s] * 4 + [8 * prompt_s] * 4 + [10 * prompt_s] * 2
    )


def test_a_prompt_longer_than_a_step_has_its_steps_for_itself() -> None:
    table = replace(machine(slots=64), token_budget=500)
    requests = [Request(0.0, 1000, 50) for _ in range(3)]
    monte_carlo.route_requests(table, requests, 1, "random")
    prompt_s = table.busy_time(1000)
    assert [request.first_token_s for request in requests] == pytest.approx(
        [prompt_s, 2 * prompt_s, 3 * prompt_s]
    )


@pytest.mark.parametrize("stages", [1, 2, 4])
def test_a_token_waits_while_a_prompt_is_in_any_stage(stages: int) -> None:
    """One prompt delays a decoder by its whole time; the next one may start after a stage."""
    table = replace(machine(slots=8, slowed=0.0), stage_count=stages)
    answering = Request(0.0, 1, 400)
    # An answer of one token ends with its prompt.
    later = [Request(2.0, 4000, 1), Request(2.0, 4000, 1)]
    table = replace(table, token_budget=4000)
    monte_carlo.route_requests(table, [answering, *later], 1, "random")
    alone = Request(0.0, 1, 400)
    monte_carlo.route_requests(table, [alone], 1, "random")
    stage_s = table.busy_time(4000)
    assert later[0].first_token_s == pytest.approx(2.0 + stages * stage_s)
    assert later[1].first_token_s == pytest.approx(2.0 + (stages + 1) * stage_s)
    delay_s = answering.end_s - alone.end_s
    assert delay_s == pytest.approx((stages + 1) * stage_s, rel=0.01)


def test_a_preempted_request_keeps_the_tokens_that_it_has() -> None:
    """Two answers outgrow the pool: the newer one computes its tokens again, as one prompt."""
    table = machine(slots=2, pool=1500)
    table = replace(table, answer_share=0.0)
    requests = [Request(0.0, 500, 600), Request(0.0, 500, 600)]
    simulation_run = ReplicaSimulation(table)
    simulation_run.receive_all(requests)
    simulation_run.advance(math.inf)
    older, newer = requests
    assert simulation_run.preempted_count == 1
    # Each has 250 tokens when the pool of 1,500 is full.
    assert newer.generated_tokens == pytest.approx(251, abs=1)
    alone_s = sum(
        table.base_steps_s[1] + table.step_growths_s[1] * context
        for context in range(751, 1100)
    )
    recomputed_s = table.busy_time(500 + newer.generated_tokens)
    assert newer.end_s - older.end_s == pytest.approx(
        recomputed_s + alone_s, rel=0.01
    )


def test_no_request_is_longer_than_the_context() -> None:
    heavy = LengthDistribution(mean_tokens=2000, p95_tokens=7700)
    load = replace(
        LOAD,
        prompt_lengths=heavy,
        answer_lengths=heavy,
        max_context_tokens=32_768,
    )
    requests = monte_carlo.draw_requests(load, 20_000, 1, 1.0, 5.0)
    totals = [r.prompt_tokens + r.answer_tokens for r in requests]
    assert max(totals) == 32_768
    free = replace(load, max_context_tokens=0)
    unlimited = monte_carlo.draw_requests(free, 20_000, 1, 1.0, 5.0)
    assert max(r.prompt_tokens + r.answer_tokens for r in unlimited) > 32_768

"""Sends requests to simulated replicas, and measures what came of them."""

from __future__ import annotations

import math
import random
import statistics
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from planner.perf.serving.simulation import NEVER, ReplicaSimulation, Request
from planner.perf.serving.step import prompt_latency

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from planner.perf.serving.load import Arrival, Routing, ServingLoad
    from planner.perf.serving.simulation import ReplicaTable

WARM_UP_SHARE: Final = (
    0.15  # share of requests that fill the replica, and are not counted
)
DRAIN_SHARE: Final = 0.05  # share that no arrivals stand behind
STUDENT_QUANTILES: Final = (
    0.0,
    0.0,
    6.31,
    2.92,
    2.35,
    2.13,
    2.02,
    1.94,
    1.89,
)  # 90 %, by seeds


def draw_requests(
    load: ServingLoad,
    request_count: int,
    seed: int,
    variation: float,
    rate_per_s: float,
) -> list[Request]:
    """Draw requests: Gamma gaps of a squared variation, lognormal lengths.

    The same seed gives the same requests.
    """
    generator = random.Random(seed)  # noqa: S311 - a simulation, not a secret
    gamma_shape = 1 / max(variation, 1e-3)
    arrival_s = 0.0
    requests = []
    log_sigmas = load.prompt_lengths.sigma, load.answer_lengths.sigma
    mean_tokens = (
        load.prompt_lengths.mean_tokens * (1 - load.prefix_hit),
        load.answer_lengths.mean_tokens,
    )
    log_means = [
        math.log(location) - log_sigma * log_sigma / 2
        for location, log_sigma in zip(mean_tokens, log_sigmas, strict=True)
    ]
    for _ in range(request_count):
        arrival_s += (
            generator.gammavariate(gamma_shape, 1 / (gamma_shape * rate_per_s))
            if rate_per_s < NEVER
            else 0.0
        )
        prompt_tokens, answer_tokens = (
            max(
                1,
                round(
                    generator.lognormvariate(location, log_sigma)
                    if log_sigma
                    else math.exp(location)
                ),
            )
            for location, log_sigma in zip(log_means, log_sigmas, strict=True)
        )
        requests.append(
            Request(arrival_s, prompt_tokens, max(2, answer_tokens))
        )
    return requests


def trace_requests(
    trace: Sequence[Arrival],
    load: ServingLoad,
    replica_count: int,
    simulated_count: int,
    seed: int,
) -> list[Request]:
    """Return what `simulated_count` of `replica_count` replicas get of a recorded trace, as its router spreads it.

    Prompts are without what the prefix cache holds.
    """
    generator = random.Random(seed)
    trace_start_s = trace[0][0]
    uncached_share = 1 - load.prefix_hit
    requests = []
    for position, (arrival_s, prompt_tokens, answer_tokens) in enumerate(trace):
        router_turn = (
            position + seed
            if load.routing == "round-robin"
            else generator.randrange(replica_count)
        )
        if router_turn % replica_count < simulated_count:
            uncached_tokens = max(1, round(prompt_tokens * uncached_share))
            requests.append(
                Request(
                    arrival_s - trace_start_s,
                    uncached_tokens,
                    max(2, round(answer_tokens)),
                )
            )
    return requests


def busiest_span(
    trace: Sequence[Arrival], request_count: int
) -> Sequence[Arrival]:
    """Return the consecutive requests, at most so many, that came fastest."""
    if len(trace) <= request_count:
        return trace
    last_start = len(trace) - request_count
    start_index = min(
        range(last_start + 1),
        key=lambda index: trace[index + request_count - 1][0] - trace[index][0],
    )
    return trace[start_index : start_index + request_count]


def route_requests(
    replica_table: ReplicaTable,
    requests: list[Request],
    replica_count: int,
    routing: Routing,
) -> list[Request]:
    """Send requests to replicas as a router does, and play them to the end; they are changed."""
    simulations = [
        ReplicaSimulation(replica_table) for _ in range(replica_count)
    ]
    generator = random.Random(len(requests))  # noqa: S311 - a simulation, not a secret
    for position, request in enumerate(requests):
        if routing == "round-robin":
            simulation = simulations[position % replica_count]
        elif routing == "random":
            simulation = simulations[generator.randrange(replica_count)]
        else:
            simulation = _least_loaded(simulations, request.due_s, position)
        simulation.queue.append(request)
    for simulation in simulations:
        simulation.advance(NEVER)
    return requests


def _least_loaded(
    simulations: list[ReplicaSimulation], now_s: float, position: int
) -> ReplicaSimulation:
    """Play all lanes up to now; return the one with the fewest requests, turn by turn."""
    for simulation in simulations:
        simulation.advance(now_s)
    replica_count = len(simulations)
    return simulations[
        min(
            range(replica_count),
            key=lambda index: (
                simulations[index].request_count,
                (index - position) % replica_count,
            ),
        )
    ]


def closed_loop(
    replica_table: ReplicaTable, requests: list[Request], user_count: int
) -> list[Request]:
    """Play a closed loop: each of the users sends the next request when one of theirs ends."""
    simulation = ReplicaSimulation(replica_table)
    unsent_requests = deque(requests)
    for _ in range(min(user_count, len(unsent_requests))):
        simulation.queue.append(unsent_requests.popleft())
    while unsent_requests and simulation.request_count:
        finished_count = len(simulation.finished)
        simulation.advance(simulation.advance(simulation.now_s))
        for request in simulation.finished[finished_count:]:
            if unsent_requests:
                next_request = unsent_requests.popleft()
                next_request.due_s = request.end_s
                simulation.queue.append(next_request)
    simulation.advance(NEVER)
    return simulation.finished


@dataclass(frozen=True, slots=True)
class SimulatedPercentile:
    """A percentile over all simulated requests with its 90 % Monte Carlo band, in seconds."""

    estimate_s: float
    low_s: float
    high_s: float


@dataclass(frozen=True, slots=True)
class SimulationSummary:
    """What a simulation measured, by (metric, percentile)."""

    request_count: int
    seed_count: int
    percentiles: dict[tuple[str, int], SimulatedPercentile]


def request_times(
    replica_table: ReplicaTable, requests: list[Request]
) -> dict[str, list[float]]:
    """Return ttft, tpot and e2e of the requests in the middle of a run."""
    counted_requests = requests[
        int(WARM_UP_SHARE * len(requests)) : len(requests)
        - int(DRAIN_SHARE * len(requests))
    ]
    coefficients = replica_table.coefficients
    step_times = replica_table.step_times
    first_token_times = [
        replica_table.ttft_factor
        * (
            coefficients.first_token
            + coefficients.step_wait * request.step_s
            + coefficients.prompt_share
            * (
                request.prompt_start_s
                - request.due_s
                + prompt_latency(step_times, request.prompt_tokens)
            )
        )
        for request in counted_requests
    ]
    return {
        "ttft": first_token_times,
        "tpot": [
            (request.end_s - request.first_token_s)
            / (request.answer_tokens - 1)
            for request in counted_requests
        ],
        "e2e": [
            first_token_s + request.end_s - request.first_token_s
            for first_token_s, request in zip(
                first_token_times, counted_requests, strict=True
            )
        ],
    }


def summarize(
    runs: list[dict[str, list[float]]],
    percentile_keys: Iterable[tuple[str, int]],
) -> SimulationSummary:
    """Return percentiles over all runs, and how far they spread from seed to seed."""
    percentiles = {}
    for metric, percentile in sorted(percentile_keys):
        pooled_times = sorted(
            seconds for seed_times in runs for seconds in seed_times[metric]
        )
        seed_quantiles = [
            _empirical_quantile(sorted(seed_times[metric]), percentile)
            for seed_times in runs
        ]
        half_width_s = 0.0
        if len(seed_quantiles) > 1:
            student_quantile = STUDENT_QUANTILES[
                min(len(seed_quantiles), len(STUDENT_QUANTILES) - 1)
            ]
            half_width_s = (
                student_quantile
                * statistics.stdev(seed_quantiles)
                / math.sqrt(len(seed_quantiles))
            )
        quantile_s = _empirical_quantile(pooled_times, percentile)
        percentiles[metric, percentile] = SimulatedPercentile(
            quantile_s,
            max(0.0, quantile_s - half_width_s),
            quantile_s + half_width_s,
        )
    return SimulationSummary(
        sum(len(seed_times["ttft"]) for seed_times in runs),
        len(runs),
        percentiles,
    )


def _empirical_quantile(sorted_values: list[float], percentile: int) -> float:
    position = max(0, math.ceil(percentile / 100 * len(sorted_values)) - 1)
    return sorted_values[position]

"""Monte Carlo runs of simulated replicas and the percentiles of their times."""

from __future__ import annotations

import itertools
import math
import random
import statistics
from collections import deque
from operator import itemgetter
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from planner.numeric import nearest_rank
from planner.perf.serving.prompt import latency_timer
from planner.perf.serving.simulation import NEVER, ReplicaSimulation, Request

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from planner.perf.serving.load import Arrival, Routing, ServingLoad
    from planner.perf.serving.simulation import ReplicaTable

# Shares of requests at the start and at the end of a run that are not counted: the replica
# fills, then no arrivals follow.
WARM_UP_SHARE: Final = 0.15
DRAIN_SHARE: Final = 0.05
# 95 % quantiles of Student's t, by the number of seeds: the ends of a 90 % band.
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
)


def draw_requests(
    load: ServingLoad,
    request_count: int,
    seed: int,
    variation: float,
    rate_per_s: float,
) -> list[Request]:
    """Draw requests with Gamma interarrival times and lognormal lengths.

    `variation` is the squared coefficient of variation of interarrival times. Prompts are
    without the share in the prefix cache. The same seed gives the same requests. An infinite
    rate makes all requests arrive at time 0.
    """
    generator = random.Random(seed)  # noqa: S311 - a simulation, not a secret
    # A Gamma distribution of shape k has the squared variation 1 / k.
    gamma_shape = 1 / max(variation, 1e-3)
    arrival_s = 0.0
    requests = []
    log_sigmas = load.prompt_lengths.sigma, load.answer_lengths.sigma
    mean_tokens = (
        load.prompt_lengths.mean_tokens * (1 - load.prefix_hit),
        load.answer_lengths.mean_tokens,
    )
    prompt_logs, answer_logs = (
        # The mean of a lognormal is exp(mu + sigma^2 / 2).
        (math.log(location) - log_sigma * log_sigma / 2, log_sigma)
        for location, log_sigma in zip(mean_tokens, log_sigmas, strict=True)
    )
    for _ in range(request_count):
        arrival_s += (
            generator.gammavariate(gamma_shape, 1 / (gamma_shape * rate_per_s))
            if rate_per_s < NEVER
            else 0.0
        )
        prompt_tokens = _draw_length(generator, *prompt_logs)
        answer_tokens = _draw_length(generator, *answer_logs)
        requests.append(
            # A time per token needs at least two tokens.
            Request(arrival_s, max(1, prompt_tokens), max(2, answer_tokens))
        )
    return requests


def _draw_length(
    generator: random.Random, log_mean: float, log_sigma: float
) -> int:
    """Return a lognormal number of tokens; equal lengths draw no number."""
    return round(
        math.exp(
            generator.normalvariate(log_mean, log_sigma)
            if log_sigma
            else log_mean
        )
    )


def trace_requests(
    trace: Sequence[Arrival],
    load: ServingLoad,
    replica_count: int,
    simulated_count: int,
    seed: int,
) -> list[Request]:
    """Return the requests of a trace that reach the simulated replicas.

    These are `simulated_count` of `replica_count` replicas.

    Prompts are without the share in the prefix cache. Times count from the start of the trace.
    """
    generator = random.Random(seed)  # noqa: S311 - a simulation, not a secret
    trace_start_s = trace[0][0]
    uncached_share = 1 - load.prefix_hit
    requests = []
    for position, (arrival_s, prompt_tokens, answer_tokens) in enumerate(trace):
        # Round-robin counts positions; other routers are drawn at random.
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
    """Return the `request_count` consecutive requests with the shortest duration."""
    if len(trace) <= request_count:
        return trace
    last_start = len(trace) - request_count
    start_index = min(
        range(last_start + 1),
        # Shortest time between first and last request: the highest rate.
        key=lambda index: trace[index + request_count - 1][0] - trace[index][0],
    )
    return trace[start_index : start_index + request_count]


def route_requests(
    replica_table: ReplicaTable,
    requests: list[Request],
    replica_count: int,
    routing: Routing,
) -> list[Request]:
    """Route requests to replicas and simulate all of them to the end.

    The requests are modified in place and returned.
    """
    simulations = [
        ReplicaSimulation(replica_table) for _ in range(replica_count)
    ]
    generator = random.Random(len(requests))  # noqa: S311 - a simulation, not a secret
    for position, request in enumerate(requests):
        if routing == "least-loaded":
            # The choice depends on the state of all replicas at the arrival.
            simulation = _least_loaded(simulations, request.due_s, position)
        elif routing == "round-robin" or replica_count == 1:
            simulation = simulations[position % replica_count]
        else:
            simulation = simulations[generator.randrange(replica_count)]
        simulation.queue.append(request)
    for simulation in simulations:
        simulation.advance(NEVER)
    return requests


def _least_loaded(
    simulations: list[ReplicaSimulation], now_s: float, position: int
) -> ReplicaSimulation:
    """Advance all replicas to `now_s`; return the one with the fewest requests."""
    for simulation in simulations:
        simulation.advance(now_s)
    replica_count = len(simulations)
    return simulations[
        min(
            range(replica_count),
            key=lambda index: (
                simulations[index].request_count,
                # Ties go to the replicas in turn.
                (index - position) % replica_count,
            ),
        )
    ]


def closed_loop(
    replica_table: ReplicaTable, requests: list[Request], user_count: int
) -> list[Request]:
    """Simulate a closed loop and return the finished requests.

    Each of `user_count` users sends its next request when its previous one ends.
    """
    simulation = ReplicaSimulation(replica_table)
    unsent_requests = deque(requests)
    for _ in range(min(user_count, len(unsent_requests))):
        simulation.queue.append(unsent_requests.popleft())
    while unsent_requests and simulation.request_count:
        finished_count = len(simulation.finished)
        # Advance to the next event: inner call finds it, outer one runs it.
        simulation.advance(simulation.advance(simulation.now_s))
        for request in simulation.finished[finished_count:]:
            if unsent_requests:
                next_request = unsent_requests.popleft()
                # A user has no think time.
                next_request.due_s = request.end_s
                simulation.queue.append(next_request)
    simulation.advance(NEVER)
    return simulation.finished


class SimulatedPercentile(Struct, frozen=True):
    """A percentile of all simulated requests with its 90 % band, in seconds."""

    estimate_s: float
    low_s: float
    high_s: float


class SimulationSummary(Struct, frozen=True):
    """Percentiles measured by a simulation.

    request_count  counted requests over all seeds
    seed_count     independent runs
    percentiles    estimate and band by (metric, percentile)
    """

    request_count: int
    seed_count: int
    percentiles: dict[tuple[str, int], SimulatedPercentile]


def request_times(
    replica_table: ReplicaTable, requests: list[Request]
) -> dict[str, list[float]]:
    """Return ttft, tpot and e2e in seconds of the requests in the middle of a run.

    ttft = ttft_factor * (first_token + step_wait * step + prompt_share * prompt)
    prompt = wait of the prompt + prompt latency
    tpot = (end - first token) / (answer - 1)
    e2e  = ttft + end - first token
    """
    counted_requests = requests[
        int(WARM_UP_SHARE * len(requests)) : len(requests)
        - int(DRAIN_SHARE * len(requests))
    ]
    coefficients = replica_table.coefficients
    latency = latency_timer(replica_table.step_times)
    first_token_times = [
        replica_table.ttft_factor
        * (
            coefficients.first_token
            # Wait for the decode step that runs when the prompt is due.
            + coefficients.step_wait * request.step_s
            + coefficients.prompt_share
            * (
                request.prompt_start_s
                - request.due_s
                + latency(request.prompt_tokens)
            )
        )
        for request in counted_requests
    ]
    return {
        "ttft": first_token_times,
        "tpot": [
            (request.end_s - request.first_token_s)
            # The first token counts in ttft, the others in tpot.
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
    """Return percentiles of all runs with their 90 % bands.

    half width = t(0.95, seeds - 1) * standard deviation over seeds / sqrt(seeds)
    """
    percentiles = {}
    for metric, metric_keys in itertools.groupby(
        sorted(percentile_keys), key=itemgetter(0)
    ):
        # Sorted once for all percentiles of a metric.
        seed_samples = [sorted(seed_times[metric]) for seed_times in runs]
        pooled_samples = sorted(itertools.chain.from_iterable(seed_samples))
        for percentile_key in metric_keys:
            percentiles[percentile_key] = _banded_percentile(
                pooled_samples, seed_samples, percentile_key[1] / 100
            )
    return SimulationSummary(
        sum(len(seed_times["ttft"]) for seed_times in runs),
        len(runs),
        percentiles,
    )


def _banded_percentile(
    pooled_samples: list[float], seed_samples: list[list[float]], share: float
) -> SimulatedPercentile:
    seed_quantiles = [
        nearest_rank(sorted_times, share) for sorted_times in seed_samples
    ]
    # One seed has no variance between seeds, hence no width.
    half_width_s = 0.0
    if len(seed_quantiles) > 1:
        student_quantile = STUDENT_QUANTILES[
            min(len(seed_quantiles), len(STUDENT_QUANTILES) - 1)
        ]
        # Standard error of the mean of the seeds, with Student's t.
        half_width_s = (
            student_quantile
            * statistics.stdev(seed_quantiles)
            / math.sqrt(len(seed_quantiles))
        )
    quantile_s = nearest_rank(pooled_samples, share)
    return SimulatedPercentile(
        quantile_s,
        max(0.0, quantile_s - half_width_s),
        quantile_s + half_width_s,
    )

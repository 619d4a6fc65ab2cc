"""Endless Monte Carlo runs of simulated replicas, as batches of the times of their requests."""

from __future__ import annotations

import itertools
import math
import operator
import random
from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from planner.perf.serving.length_part import LengthPart
from planner.perf.serving.simulation import (
    NEVER,
    Crowd,
    ReplicaSimulation,
    Request,
    arriving_requests,
    metric_timer,
)
from planner.perf.serving.work import UNLIMITED_TOKENS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from planner.perf.serving.load import (
        LengthDistribution,
        Routing,
        ServingLoad,
    )
    from planner.perf.serving.replica_table import ReplicaTable
    from planner.perf.serving.simulation import BatchTimer, RequestTimes
    from planner.perf.serving.trace import Trace

ReplicaMaker: TypeAlias = "Callable[[ReplicaTable], ReplicaSimulation]"
MOST_UNFINISHED: Final = (
    40  # batches, each at least twice as long as what is in flight
)
DRAWN_TOGETHER: Final = 256  # random numbers that a stream draws at once
MIN_VARIATION: Final = 1e-3  # gaps of less variation are drawn with this
# Variations of gaps are rounded up to so many parts of 1: fleets that differ by a few replicas
# meet the same gaps, so that what one of them keeps is not luck.
VARIATION_PARTS: Final = 20


class RequestStream:
    """The endless requests of a load with Gamma interarrival times and lognormal lengths.

    The server refuses what is longer than its context, so prompts and answers are cut there.
    Prompts are without the share in the prefix cache. What is drawn is kept: each replica that
    is simulated meets the same lengths and the same gaps, stretched to its rate.
    """

    def __init__(self, load: ServingLoad, seed: int) -> None:
        self._load = load
        self._seed = seed
        self._lengths: list[tuple[int, int]] = []
        # S311: a simulation, not a secret.
        self._length_source = random.Random(seed)  # noqa: S311
        self._unit_gaps: dict[float, tuple[random.Random, list[float]]] = {}

    def requests(
        self, variation: float, rate_per_s: float
    ) -> Iterator[Request]:
        """Yield the requests in order of arrival, without end.

        `variation` is the squared coefficient of variation of interarrival times, rounded up.
        An infinite rate makes all requests arrive at time 0.
        """
        variation = (
            math.ceil(variation * VARIATION_PARTS - 1e-9) / VARIATION_PARTS
        )
        arrival_s = 0.0
        mean_gap_s = 1 / rate_per_s if rate_per_s < NEVER else 0.0
        for first in itertools.count(0, DRAWN_TOGETHER):
            chunk = slice(first, first + DRAWN_TOGETHER)
            arriving = arriving_requests(
                self._lengths_to(first + DRAWN_TOGETHER)[chunk],
                self._gaps_to(first + DRAWN_TOGETHER, variation)[chunk],
                arrival_s,
                mean_gap_s,
            )
            arrival_s = arriving[-1].due_s
            yield from arriving

    def lengths(self, count: int) -> list[tuple[int, int]]:
        """Return the tokens of the prompts and answers of the first requests."""
        return self._lengths_to(count)[:count]

    def _lengths_to(self, count: int) -> list[tuple[int, int]]:
        """Return prompt and answer tokens of at least the first `count` requests."""
        lengths, load = self._lengths, self._load
        draw_prompt = _sampler(load.prompt_lengths)
        draw_answer = _sampler(load.answer_lengths)
        while len(lengths) < count:
            prompt_tokens = draw_prompt(self._length_source)
            answer_tokens = draw_answer(self._length_source)
            lengths.append(_served_lengths(load, prompt_tokens, answer_tokens))
        return lengths

    def _gaps_to(self, count: int, variation: float) -> list[float]:
        """Return at least `count` gaps of mean 1."""
        if variation not in self._unit_gaps:
            # S311: a simulation, not a secret. Gaps and lengths are independent.
            source = random.Random(f"gaps {self._seed}")  # noqa: S311
            self._unit_gaps[variation] = source, []
        source, unit_gaps = self._unit_gaps[variation]
        # A Gamma distribution of shape k has the squared variation 1 / k.
        gamma_shape = 1 / max(variation, MIN_VARIATION)
        while len(unit_gaps) < count:
            unit_gaps.append(source.gammavariate(gamma_shape, 1 / gamma_shape))
        return unit_gaps


def _served_lengths(
    load: ServingLoad, prompt_tokens: int, answer_tokens: int
) -> tuple[int, int]:
    """Return the tokens of a prompt to compute and of its answer, within the context."""
    context_tokens = load.max_context_tokens or UNLIMITED_TOKENS
    # The answer needs room for two tokens: one has no time per token.
    prompt_tokens = min(prompt_tokens, context_tokens - 2)
    answer_tokens = min(answer_tokens, context_tokens - prompt_tokens)
    return (
        max(1, round(prompt_tokens * (1 - load.prefix_hit))),
        max(2, answer_tokens),
    )


def _sampler(
    lengths: LengthDistribution | LengthPart,
) -> Callable[[random.Random], int]:
    """Return what draws a whole number of tokens; equal lengths draw no number."""
    if isinstance(lengths, LengthPart):
        quantile = lengths.quantiles()
        return lambda generator: round(quantile(generator.random()))
    log_mean, sigma = lengths.log_mean, lengths.sigma
    if not sigma:
        return lambda _: round(math.exp(log_mean))
    return lambda generator: round(
        math.exp(generator.normalvariate(log_mean, sigma))
    )


def draw_requests(
    load: ServingLoad,
    request_count: int,
    seed: int,
    variation: float,
    rate_per_s: float,
) -> list[Request]:
    """Return the first `request_count` requests of a new stream."""
    requests = RequestStream(load, seed).requests(variation, rate_per_s)
    return list(itertools.islice(requests, request_count))


def trace_requests(
    trace: Trace,
    load: ServingLoad,
    replica_count: int,
    simulated_count: int,
    seed: int,
) -> list[Request]:
    """Return the requests of a trace that reach the simulated replicas.

    These are `simulated_count` of `replica_count` replicas.

    Lengths end at the context, and prompts are without the share in the prefix cache. Times
    count from the start of the trace.
    """
    generator = random.Random(seed)  # noqa: S311 - a simulation, not a secret
    trace_start_s = trace.arrival_s[0]
    requests = []
    for position, (arrival_s, prompt_tokens, answer_tokens) in enumerate(trace):
        # Round-robin counts positions; other routers are drawn at random.
        router_turn = (
            position + seed
            if load.routing == "round-robin"
            else int(generator.random() * replica_count)
        )
        if router_turn % replica_count < simulated_count:
            lengths = _served_lengths(
                load, round(prompt_tokens), round(answer_tokens)
            )
            requests.append(Request(arrival_s - trace_start_s, *lengths))
    return requests


class RoutedReplicas:
    """Equal replicas behind a router, which are simulated together.

    `simulate` makes the simulation of one of them.
    """

    def __init__(
        self,
        replica_table: ReplicaTable,
        replica_count: int,
        routing: Routing,
        *,
        simulate: ReplicaMaker = ReplicaSimulation,
    ) -> None:
        self._simulations = [
            simulate(replica_table) for _ in range(replica_count)
        ]
        self._routing = routing
        self._sent_count = 0
        # S311: a simulation, not a secret.
        self._generator = random.Random(replica_count)  # noqa: S311

    def send(self, request: Request) -> None:
        """Queue a request at the replica of the router's choice; it is changed in place."""
        if self._routing == "least-loaded":
            # The choice depends on the state of all replicas at the arrival.
            self.advance(request.due_s)
        self.queue(self.choose(), request)

    def choose(self) -> int:
        """Return the place of the replica that the router sends the next request to."""
        position, self._sent_count = self._sent_count, self._sent_count + 1
        replica_count = len(self._simulations)
        if self._routing == "least-loaded":
            return self._least_loaded(position)
        if self._routing == "round-robin":
            return position % replica_count
        return self._generator.choice(range(replica_count))

    def queue(self, place: int, request: Request) -> None:
        """Queue a request at the replica of a place."""
        self._simulations[place].receive(request)

    def collect(self, until_s: float) -> list[tuple[float, int, Request]]:
        """Simulate all replicas up to a time; return what has ended, in order of its end.

        Each request comes with its end and the place of its replica.
        """
        ended: list[tuple[float, int, Request]] = []
        for place, simulation in enumerate(self._simulations):
            simulation.advance(until_s)
            ended += (
                (request.end_s, place, request)
                for request in simulation.finished
            )
            simulation.finished.clear()
        return sorted(ended, key=operator.itemgetter(0))

    def send_all(self, requests: list[Request]) -> None:
        """Queue requests in order of arrival, each at the replica of the router's choice."""
        if len(self._simulations) == 1:
            self._simulations[0].receive_all(requests)
            return
        for request in requests:
            self.send(request)

    def advance(self, until_s: float) -> None:
        """Simulate all replicas up to a time, in s; NEVER ends all requests."""
        for simulation in self._simulations:
            simulation.advance(until_s)
            # Who has sent a request knows it; a long run would keep all of them.
            simulation.finished.clear()

    @property
    def crowd(self) -> Crowd:
        """The most that was on any of the replicas at once."""
        crowds = [simulation.crowd for simulation in self._simulations]
        return Crowd(
            max(crowd.requests for crowd in crowds),
            max(crowd.tokens for crowd in crowds),
        )

    def _least_loaded(self, position: int) -> int:
        """Return the place of the replica with the fewest requests."""
        replica_count = len(self._simulations)
        return min(
            range(replica_count),
            key=lambda index: (
                self._simulations[index].request_count,
                # Ties go to the replicas in turn.
                (index - position) % replica_count,
            ),
        )


def route_requests(
    replica_table: ReplicaTable,
    requests: list[Request],
    replica_count: int,
    routing: Routing,
) -> list[Request]:
    """Route requests to replicas and simulate all of them to the end.

    The requests are modified in place and returned.
    """
    replicas = RoutedReplicas(replica_table, replica_count, routing)
    replicas.send_all(requests)
    replicas.advance(NEVER)
    return requests


class RunStep(NamedTuple):
    """What has become of the batches of a run when one more has arrived.

    now_s    time until which the run is played
    ended    batches that have ended since the last step
    unended  batches that have not, in order of arrival
    crowd    the most that was on a replica at once so far
    """

    now_s: float
    ended: list[list[Request]]
    unended: tuple[list[Request], ...]
    crowd: Crowd


def open_steps(
    replica_table: ReplicaTable,
    requests: Iterator[Request],
    replica_count: int,
    routing: Routing,
    batch_size: int,
    *,
    simulate: ReplicaMaker = ReplicaSimulation,
) -> Iterator[RunStep]:
    """Play an endless run by batches of `batch_size` requests, in order of arrival.

    Requests go on arriving until the last one of a batch has ended. In an overload that takes
    ever longer: a batch that many later ones have followed counts as ended then.
    """
    replicas = RoutedReplicas(
        replica_table, replica_count, routing, simulate=simulate
    )
    sent_batches: deque[list[Request]] = deque()
    while batch := list(itertools.islice(requests, batch_size)):
        replicas.send_all(batch)
        sent_batches.append(batch)
        now_s = batch[-1].due_s
        replicas.advance(now_s)
        if len(sent_batches) > MOST_UNFINISHED:
            for request in sent_batches[0]:
                request.prompt_start_s = request.prompt_start_s or now_s
                request.first_token_s = request.first_token_s or now_s
                request.end_s = request.end_s or now_s
        ended = []
        # The last ones to arrive are the last to end, mostly.
        while sent_batches and all(
            request.end_s for request in reversed(sent_batches[0])
        ):
            ended.append(sent_batches.popleft())
        yield RunStep(now_s, ended, tuple(sent_batches), replicas.crowd)


def open_batches(
    replica_table: ReplicaTable,
    requests: Iterator[Request],
    replica_count: int,
    routing: Routing,
    batch_size: int,
) -> Iterator[list[Request]]:
    """Yield the batches of `open_steps` that have ended."""
    for step in open_steps(
        replica_table, requests, replica_count, routing, batch_size
    ):
        yield from step.ended


def closed_batches(
    replica_table: ReplicaTable,
    requests: Iterator[Request],
    user_count: int,
    batch_size: int,
) -> Iterator[list[Request]]:
    """Yield the requests of a closed loop by `batch_size`, in order of their end.

    Each of `user_count` users sends its next request when its previous one ends. The last batch
    is the rest when `requests` end.
    """
    simulation = ReplicaSimulation(replica_table, next_requests=requests)
    simulation.receive_all(itertools.islice(requests, user_count))
    while simulation.request_count:
        simulation.advance(NEVER, finish_count=batch_size)
        yield simulation.finished
        simulation.finished = []


def measured_batches(
    batches: Iterable[list[Request]], warm_up: int, replica_table: ReplicaTable
) -> Iterator[RequestTimes]:
    """Yield the times of the batches of a run, without those of its first `warm_up` requests."""
    times_of = metric_timer(replica_table)
    played_count = 0
    for batch in batches:
        # A replica fills up before its times are those of a steady state.
        if played_count >= warm_up:
            yield times_of(batch)
        played_count += len(batch)


class OpenRun:
    """The times of the batches of `open_steps`, and how many of their requests are late for sure.

    The first `warm_up` requests do not count: a replica fills up before its times are those of a
    steady state. `times_of` gives the times of a batch, those of a whole request by itself.
    """

    def __init__(
        self,
        steps: Iterator[RunStep],
        warm_up: int,
        replica_table: ReplicaTable,
        times_of: BatchTimer | None = None,
    ) -> None:
        self._steps = steps
        self._uncounted = warm_up
        self._times_of = times_of or metric_timer(replica_table)
        self._now_s = 0.0
        self._ended: deque[RequestTimes] = deque()
        self._unended: tuple[list[Request], ...] = ()
        self.crowd = Crowd(0, 0.0)

    def __iter__(self) -> Iterator[RequestTimes]:
        return self

    def __next__(self) -> RequestTimes:
        while not self._ended:
            self.play_on()
        return self._ended.popleft()

    @property
    def unended_count(self) -> int:
        """Batches that count and have not ended."""
        return len(self._unended)

    def take_ended(self) -> list[RequestTimes]:
        """Return the batches that have ended, each of them once."""
        ended = list(self._ended)
        self._ended.clear()
        return ended

    @property
    def unended_requests(self) -> int:
        """Requests of the batches that count and have not ended."""
        return sum(len(batch) for batch in self._unended)

    def play_on(self) -> None:
        """Let one more batch arrive."""
        step = next(self._steps)
        self._now_s = step.now_s
        self.crowd = step.crowd
        for batch in step.ended:
            if self._uncounted <= 0:
                self._ended.append(self._times_of(batch))
            self._uncounted -= len(batch)
        uncounted, first = self._uncounted, 0
        while uncounted > 0 and first < len(step.unended):
            uncounted -= len(step.unended[first])
            first += 1
        self._unended = step.unended[first:]

    def late_shares(
        self, position: int, metric: str, time_s: float
    ) -> tuple[float, float]:
        """Return the least and the most share of requests later than a time of an unended batch.

        What has not happened yet happens after now: a request that starts, has its first token
        and ends now would have the least times. Of a prompt that has started the time to first
        token is known.
        """
        now_s = self._now_s
        batch = self._unended[position]
        least_times_s = self._times_of(
            [
                request if request.end_s else request.ended_by(now_s)
                for request in batch
            ]
        )[metric]
        late_count = open_count = 0
        for request, least_s in zip(batch, least_times_s, strict=True):
            if least_s > time_s:
                late_count += 1
            elif not request.end_s and not (
                metric == "ttft" and request.prompt_start_s
            ):
                open_count += 1
        return (
            late_count / len(batch),
            (late_count + open_count) / len(batch),
        )

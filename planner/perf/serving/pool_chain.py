"""Requests whose prompts are computed by one pool of replicas and answered by another.

A replica of the first pool ends a request with its prompt. The cache then goes to a replica of the
second pool, which has no prompt to compute: a step of all who decode there gives the first token,
as the engine computes the last token of the prompt again. It is the first that a client sees.
"""

from __future__ import annotations

import itertools
from collections import deque
from typing import TYPE_CHECKING

from msgspec import Struct

from planner.perf.serving.monte_carlo import (
    MOST_UNFINISHED,
    OpenRun,
    RoutedReplicas,
    open_steps,
)
from planner.perf.serving.simulation import AnsweringReplica, Request

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from planner.perf.serving.hand_over import HandOver
    from planner.perf.serving.load import Routing
    from planner.perf.serving.replica_table import ReplicaTable
    from planner.perf.serving.simulation import BatchTimer, RequestTimes

# A request to a pool of prompts asks for one token.
PROMPT_ANSWER: int = 1


def prompt_request(request: Request) -> Request:
    """Return what of a request is sent to a pool of prompts."""
    return Request(request.due_s, request.prompt_tokens, PROMPT_ANSWER)


def answer_request(request: Request, due_s: float) -> Request:
    """Return what of a request is sent to a pool of answers, at a time.

    All of its tokens are made there: one more than after a prompt.
    """
    return Request(due_s, request.prompt_tokens, request.answer_tokens + 1)


def prompt_timer(table: ReplicaTable) -> BatchTimer:
    """Return a function that gives the part of a pool of prompts in the time to first token.

    ttft = ttft_factor * (m * first_token + prompt_share * prompt), as of a whole request that
    meets nobody who decodes
    """
    coefficients, factor = table.coefficients, table.ttft_factor
    fixed_s = factor * table.prompt_factor * coefficients.first_token
    share = factor * coefficients.prompt_share

    def times_of(requests: list[Request]) -> RequestTimes:
        return {
            "ttft": [
                fixed_s
                + share
                * (
                    request.prompt_start_s
                    - request.due_s
                    + request.shared_s
                    + table.prompt_factor
                    * table.prompt_latency(request.prompt_tokens)
                )
                for request in requests
            ]
        }

    return times_of


def answer_timer(table: ReplicaTable) -> BatchTimer:
    """Return a function that gives the times of requests in a pool of answers.

    ttft = ttft_factor * (m * first_token + step_wait * step) + wait for room + first step
    tpot = (end - start - first step) / (answer - 1)
    e2e  = ttft + end - start - first step

    The fixed part comes again: a second engine reads the request, and schedules it.
    """
    coefficients, factor = table.coefficients, table.ttft_factor
    fixed_s = factor * table.prompt_factor * coefficients.first_token
    wait_share = factor * coefficients.step_wait

    def times_of(requests: list[Request]) -> RequestTimes:
        first_token_times = [
            fixed_s
            + wait_share * request.step_s
            + request.prompt_start_s
            - request.due_s
            + request.busy_s
            for request in requests
        ]
        answer_times = [
            max(0.0, request.end_s - request.prompt_start_s - request.busy_s)
            for request in requests
        ]
        return {
            "ttft": first_token_times,
            "tpot": [
                # One token more than the answer was asked for, and the first is in ttft.
                answer_s / (request.answer_tokens - 2)
                for answer_s, request in zip(
                    answer_times, requests, strict=True
                )
            ],
            "e2e": [
                first_s + answer_s
                for first_s, answer_s in zip(
                    first_token_times, answer_times, strict=True
                )
            ],
        }

    return times_of


class PoolLoad(Struct, frozen=True):
    """Replicas of one pool behind a router: their table, and how many there are."""

    table: ReplicaTable
    replica_count: int


def prompt_run(
    pool: PoolLoad,
    requests: Iterator[Request],
    routing: Routing,
    batch_size: int,
    warm_up: int,
) -> OpenRun:
    """Return an endless run of a pool of prompts by itself: the time to first token alone."""
    steps = open_steps(
        pool.table,
        map(prompt_request, requests),
        pool.replica_count,
        routing,
        batch_size,
    )
    return OpenRun(steps, warm_up, pool.table, prompt_timer(pool.table))


def answer_run(
    pool: PoolLoad,
    requests: Iterator[Request],
    routing: Routing,
    batch_size: int,
    warm_up: int,
) -> OpenRun:
    """Return an endless run of a pool of answers by itself, whose caches come without a wait."""
    steps = open_steps(
        pool.table,
        (answer_request(request, request.due_s) for request in requests),
        pool.replica_count,
        routing,
        batch_size,
        simulate=AnsweringReplica,
    )
    return OpenRun(steps, warm_up, pool.table, answer_timer(pool.table))


class Journey(Struct):
    """A request on its way through both pools."""

    prompt: Request
    answer: Request


class PoolChain:
    """Two pools of replicas, each behind a router, and the links between their machines.

    A replica sends one cache after the other, in the order in which prompts end, and one fetches
    one cache after the other: two at once would share the rate and end no sooner.
    """

    def __init__(
        self,
        prompts: PoolLoad,
        answers: PoolLoad,
        link: HandOver,
        routing: Routing,
    ) -> None:
        self._prompts = RoutedReplicas(
            prompts.table, prompts.replica_count, routing
        )
        self._answers = RoutedReplicas(
            answers.table,
            answers.replica_count,
            routing,
            simulate=AnsweringReplica,
        )
        self._link = link
        self._routing = routing
        self._senders_free_s = [0.0] * prompts.replica_count
        self._fetchers_free_s = [0.0] * answers.replica_count
        self._times_of_prompts = prompt_timer(prompts.table)
        self._times_of_answers = answer_timer(answers.table)
        # By the identity of what was sent to the pool of prompts.
        self._computing: dict[int, Journey] = {}

    def batches(
        self, requests: Iterator[Request], batch_size: int
    ) -> Iterator[list[Journey]]:
        """Yield the batches of an endless run that have ended, in order of arrival.

        In an overload a batch that many later ones have followed counts as ended.
        """
        under_way: deque[list[Journey]] = deque()
        while batch := list(itertools.islice(requests, batch_size)):
            under_way.append([self._send(request) for request in batch])
            self._play(batch[-1].due_s)
            if len(under_way) > MOST_UNFINISHED:
                self._give_up(under_way[0], batch[-1].due_s)
            while under_way and all(
                journey.answer.end_s for journey in under_way[0]
            ):
                yield under_way.popleft()

    def times(
        self,
        requests: Iterator[Request],
        batch_size: int,
        warm_up: int,
    ) -> Iterator[RequestTimes]:
        """Yield the times of the batches of an endless run, without its first requests."""
        played_count = 0
        for batch in self.batches(requests, batch_size):
            if played_count >= warm_up:
                yield self.times_of(batch)
            played_count += len(batch)

    def times_of(self, journeys: list[Journey]) -> RequestTimes:
        """Return ttft, tpot and e2e of requests that have passed both pools, in seconds.

        ttft = that of its prompt + way of the cache, with the wait for the link + that of its
               answer
        """
        times = self._times_of_answers([journey.answer for journey in journeys])
        prompts_s = self._times_of_prompts(
            [journey.prompt for journey in journeys]
        )["ttft"]
        before_s = [
            prompt_s + journey.answer.due_s - journey.prompt.end_s
            for prompt_s, journey in zip(prompts_s, journeys, strict=True)
        ]
        for metric in ("ttft", "e2e"):
            times[metric] = [
                first_s + second_s
                for first_s, second_s in zip(
                    before_s, times[metric], strict=True
                )
            ]
        return times

    def _send(self, request: Request) -> Journey:
        journey = Journey(
            prompt_request(request), answer_request(request, request.due_s)
        )
        self._computing[id(journey.prompt)] = journey
        if self._routing == "least-loaded":
            self._play(request.due_s)
        self._prompts.queue(self._prompts.choose(), journey.prompt)
        return journey

    def _play(self, until_s: float) -> None:
        """Let everything happen that happens up to a time."""
        self._hand_over(self._prompts.collect(until_s))
        self._answers.advance(until_s)

    def _hand_over(self, ended: Iterable[tuple[float, int, Request]]) -> None:
        """Send caches to the replicas that answer, in the order in which prompts have ended."""
        for end_s, sender, prompt in ended:
            journey = self._computing.pop(id(prompt))
            if self._routing == "least-loaded":
                self._answers.advance(end_s)
            fetcher = self._answers.choose()
            start_s = max(
                end_s,
                self._senders_free_s[sender],
                self._fetchers_free_s[fetcher],
            )
            arrival_s = start_s + self._link.seconds(prompt.prompt_tokens)
            self._senders_free_s[sender] = arrival_s
            self._fetchers_free_s[fetcher] = arrival_s
            journey.answer.due_s = arrival_s
            self._answers.queue(fetcher, journey.answer)

    def _give_up(self, batch: list[Journey], now_s: float) -> None:
        """Count what an overload never answers as ended now."""
        for journey in batch:
            for request in (journey.prompt, journey.answer):
                request.prompt_start_s = request.prompt_start_s or now_s
                request.first_token_s = request.first_token_s or now_s
                request.end_s = request.end_s or now_s

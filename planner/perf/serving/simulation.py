"""Discrete-event simulation of one replica, which verifies the analytic percentiles.

Continuous batching runs on a virtual clock that counts tokens: each running request gains one
token in a step. A request that starts at clock V ends at V + answer - 1. Events are arrivals,
prompts that leave a stage, completions and overflows of the KV pool. Between them a step lasts

    step(n, S) = base(n) + growth(n) * S

with n requests and S tokens of context in total. S grows by n in each step, so the time of d
steps is quadratic in d and exact.

Prompts that wait are processed together, in order of arrival, up to the token budget of a step;
all of them have their first token when the last one ends. A prompt passes every stage of a
pipeline: the first stage is free for the next prompts after 1 / pp of the time. Decoding runs at
1 - interference of its speed as long as a prompt is in any stage, because a token follows the
prompt through all of them. A request is admitted when a slot and its reserved share of the KV
pool are free. When contexts overflow the pool, the newest request is preempted: it waits at the
head of the queue, and then computes its prompt and the tokens that it had as one prompt.

Where `make` finds a C compiler, it compiles this module with mypyc: plans take most of
their time here. So it has no structs of msgspec, which mypyc does not know, and reads the table
of a replica once. Its queues are lists of requests, which compiled code reads without a call; a
deque, a heap or a tuple with a number would take more time than what happens to a request.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from planner.perf.serving.replica_table import ReplicaTable

# Seconds of requests by metric.
RequestTimes: TypeAlias = "dict[str, list[float]]"
# Gives the times of the requests of a batch.
BatchTimer: TypeAlias = "Callable[[list[Request]], RequestTimes]"
NEVER: Final = math.inf


class Request:
    """One request; times in seconds of the simulation, 0 until they are known.

    due_s             arrival
    prompt_tokens     prompt length outside the prefix cache, tokens
    answer_tokens     answer length, tokens
    step_s            decode step that runs when the prompt starts
    prompt_start_s    start of the prompt
    busy_s            time of a stage for the prompt
    shared_s          time of the other prompts of the same step
    first_token_s     end of the first prompt pass
    end_s             end of the answer
    generated_tokens  tokens of the answer that it had when it was preempted
    reserved_tokens   tokens of the KV pool that it was admitted with
    end_clock_tokens  virtual clock when its answer ends
    start_number      how many have started to decode before it, and it
    """

    def __init__(
        self, due_s: float, prompt_tokens: int, answer_tokens: int
    ) -> None:
        self.due_s = due_s
        self.prompt_tokens = prompt_tokens
        self.answer_tokens = answer_tokens
        self.step_s = 0.0
        self.prompt_start_s = 0.0
        self.busy_s = 0.0
        self.shared_s = 0.0
        self.first_token_s = 0.0
        self.end_s = 0.0
        self.generated_tokens = 0.0
        self.reserved_tokens = 0.0
        self.end_clock_tokens = 0.0
        self.start_number = 0

    def ended_by(self, now_s: float) -> Request:
        """Return it as it is if what has not happened to it happens at a time."""
        ended = Request(self.due_s, self.prompt_tokens, self.answer_tokens)
        ended.step_s = self.step_s
        ended.busy_s = self.busy_s
        ended.shared_s = self.shared_s
        ended.prompt_start_s = self.prompt_start_s or now_s
        ended.first_token_s = self.first_token_s or now_s
        ended.end_s = self.end_s or now_s
        return ended


def arriving_requests(
    lengths: list[tuple[int, int]],
    unit_gaps: list[float],
    last_s: float,
    mean_gap_s: float,
) -> list[Request]:
    """Return requests with prompts and answers of so many tokens, in order of arrival.

    arrival = arrival of the one before + unit gap * mean gap; that of the last one was at `last_s`
    """
    requests = []
    for (prompt_tokens, answer_tokens), unit_gap in zip(
        lengths, unit_gaps, strict=True
    ):
        last_s += unit_gap * mean_gap_s
        requests.append(Request(last_s, prompt_tokens, answer_tokens))
    return requests


class PromptStep:
    """Prompts that are in the stages together, and when they leave the last one, in seconds."""

    def __init__(self, end_s: float, requests: list[Request]) -> None:
        self.end_s = end_s
        self.requests = requests


class Crowd(NamedTuple):
    """The most that was on a replica at once; infinite where a request waited for its room.

    requests  in the pipeline and running
    tokens    in its KV pool, or reserved there
    """

    requests: float
    tokens: float


class ReplicaSimulation:
    """State of one simulated replica; its times and limits are those of its table.

    waiting           requests that have not started, the first one last
    arriving          requests after those that wait, in order of arrival
    pipeline          steps with prompts in the stages, the first one first
    decoding          running requests by the end of their answers, the first one last
    finished          completed requests
    next_requests     in a closed loop, of which the next one arrives when one completes
    now_s             time, s
    clock_tokens      virtual clock: tokens that a request running since time 0 would have
    context_tokens    KV tokens of all running requests
    prefilled_tokens  KV tokens of the prompts in the pipeline
    reserved_tokens   tokens reserved at admission
    admitted_count    requests in the pipeline and running
    stage_free_s      when the first stage is free for the next prompts
    step_s            time of a step with the context of now
    batch_growth_s    step time that a token of context of each request adds
    start_count       requests that have started to decode
    preempted_count   preemptions so far
    admission_closed  True after a preemption, until a request completes
    is_overflow       whether the pool overflows before the next request completes
    most_tokens       the most in the pool or reserved, infinite when a request waited for it
    most_admitted     the most requests admitted so far
    """

    def __init__(
        self,
        table: ReplicaTable,
        next_requests: Iterator[Request] | None = None,
    ) -> None:
        self.base_steps_s: list[float] = list(table.base_steps_s)
        self.step_growths_s: list[float] = list(table.step_growths_s)
        self.busy_time: Callable[[float], float] = table.busy_time
        self.pool_tokens: float = table.pool_tokens
        self.answer_share: float = table.answer_share
        self.slot_count: int = table.slot_count
        self.token_budget: float = table.token_budget
        self.stage_count: float = table.stage_count
        self.prompt_decode_speed: float = table.prompt_decode_speed
        self.waiting: list[Request] = []
        self.arriving: list[Request] = []
        self.pipeline: list[PromptStep] = []
        self.decoding: list[Request] = []
        self.finished: list[Request] = []
        self.next_requests = next_requests
        self.now_s = 0.0
        self.clock_tokens = 0.0
        self.context_tokens = 0.0
        self.prefilled_tokens = 0.0
        self.reserved_tokens = 0.0
        self.admitted_count = 0
        self.stage_free_s = 0.0
        self.step_s = 0.0
        self.batch_growth_s = 0.0
        self.start_count = 0
        self.preempted_count = 0
        self.admission_closed = False
        self.is_overflow = False
        self.most_tokens = 0.0
        self.most_admitted = 0

    @property
    def crowd(self) -> Crowd:
        """The most that was on the replica at once."""
        # With all slots taken a request may have waited for one.
        has_slots = self.most_admitted < self.slot_count
        # Requests that fill the pool may have been preempted.
        has_pool = self.most_tokens < self.pool_tokens
        return Crowd(
            self.most_admitted if has_slots else NEVER,
            self.most_tokens if has_pool else NEVER,
        )

    @property
    def request_count(self) -> int:
        """Number of requests in the replica, queued ones included."""
        return len(self.waiting) + len(self.arriving) + self.admitted_count

    def receive(self, request: Request) -> None:
        """Queue a request that arrives after those that were received."""
        self.arriving.append(request)

    def receive_all(self, requests: Iterable[Request]) -> None:
        """Queue requests that arrive, in this order, after those that were received."""
        self.arriving.extend(requests)

    def advance(self, until_s: float, finish_count: float = math.inf) -> float:
        """Process all events up to `until_s`; return the time of the next event.

        It ends earlier when `finish_count` requests are in `finished`.
        """
        # A run has some hundred thousand events: what each of them needs is looked up once.
        pipeline, decoding = self.pipeline, self.decoding
        finished, slot_count = self.finished, self.slot_count
        never_s = NEVER
        while len(finished) < finish_count:
            prompt_event_s = pipeline[0].end_s if pipeline else never_s
            if (
                self.admitted_count < slot_count
                and not self.admission_closed
                and self._has_waiting()
            ):
                # The first stage is idle until the arrival, or busy until it is free.
                start_s = max(self.waiting[-1].due_s, self.stage_free_s)
                if start_s > self.now_s:
                    prompt_event_s = min(prompt_event_s, start_s)
                # Without prompts a request that ends makes room for the next one.
                elif prompts := self._admit_prompts():
                    self._enter_pipeline(prompts)
                    prompt_event_s = min(self.stage_free_s, pipeline[0].end_s)
            answer_event_s = self._next_answer_event() if decoding else never_s
            if prompt_event_s <= answer_event_s:
                if prompt_event_s > until_s or prompt_event_s == never_s:
                    return prompt_event_s
                if decoding:
                    self._decode_until(prompt_event_s)
                self.now_s = prompt_event_s
                if pipeline and pipeline[0].end_s <= prompt_event_s:
                    self._start_decoding()
            elif answer_event_s > until_s:
                return answer_event_s
            elif self.is_overflow:
                self._preempt_newest(answer_event_s)
            else:
                self._finish_request(answer_event_s)
        return self.now_s

    def _has_waiting(self) -> bool:
        """Return whether a request waits, with the first one at the end of `waiting`."""
        if not self.waiting and self.arriving:
            self.arriving.reverse()
            self.waiting, self.arriving = self.arriving, self.waiting
        return bool(self.waiting)

    def _admit_prompts(self) -> list[Request]:
        """Take the requests from the queue whose prompts fit in the next step together.

        A prompt that is longer than a step alone takes several steps, and nothing joins it.
        """
        now_s = self.now_s
        budget_tokens = self.token_budget
        pool_tokens, answer_share = self.pool_tokens, self.answer_share
        prompts: list[Request] = []
        while self.admitted_count < self.slot_count and self._has_waiting():
            request = self.waiting[-1]
            if request.due_s > now_s:
                break
            prompt_tokens = request.prompt_tokens + request.generated_tokens
            budget_tokens -= prompt_tokens
            if budget_tokens < 0 and prompts:
                break
            share_tokens = (
                request.prompt_tokens + answer_share * request.answer_tokens
            )
            # One that was preempted may have outgrown its share.
            request.reserved_tokens = max(share_tokens, prompt_tokens)
            reserved_tokens = self.reserved_tokens + request.reserved_tokens
            prefilled_tokens = self.prefilled_tokens + prompt_tokens
            # An empty replica admits any request, so it cannot deadlock. Answers may have
            # outgrown what was reserved for them.
            if self.admitted_count and (
                reserved_tokens > pool_tokens
                or self.context_tokens + prefilled_tokens > pool_tokens
            ):
                self.most_tokens = NEVER
                break
            prompts.append(self.waiting.pop())
            self.reserved_tokens = reserved_tokens
            self.prefilled_tokens = prefilled_tokens
            self.admitted_count += 1
        self._note_tokens(self.reserved_tokens)
        self._note_tokens(self.context_tokens + self.prefilled_tokens)
        self.most_admitted = max(self.most_admitted, self.admitted_count)
        return prompts

    def _note_tokens(self, tokens: float) -> None:
        """Remember so many tokens in the pool if there never were more."""
        self.most_tokens = max(self.most_tokens, tokens)

    def _enter_pipeline(self, prompts: list[Request]) -> None:
        """Start prompts together. They occupy a stage for the sum of their times."""
        now_s = self.now_s
        # The running step, which the first token waits for; 0 where nobody decodes.
        step_s = self._step_time(len(self.decoding), self.context_tokens)
        stage_s = 0.0
        for request in prompts:
            request.busy_s = self.busy_time(
                request.prompt_tokens + request.generated_tokens
            )
            stage_s += request.busy_s
        stage_count = self.stage_count
        for request in prompts:
            # A preempted request has had its first token.
            if not request.first_token_s:
                request.prompt_start_s = now_s
                request.step_s = step_s
                request.shared_s = (stage_s - request.busy_s) * stage_count
        self.stage_free_s = now_s + stage_s
        # The tokens pass all stages one after the other.
        self.pipeline.append(PromptStep(now_s + stage_s * stage_count, prompts))

    def _step_time(self, batch_size: int, context_tokens: float) -> float:
        """Return the seconds of a step of so many requests with so much context in total."""
        return (
            self.base_steps_s[batch_size]
            + self.step_growths_s[batch_size] * context_tokens
        )

    def _next_answer_event(self) -> float:
        """Return when a request ends, or the pool overflows before that; say which it is.

        The time of d tokens at n requests with S tokens of context, at full decode speed, is
            d * (step(n, S) + growth(n) * n * d / 2)
        """
        batch_size = len(self.decoding)
        context_tokens = self.context_tokens
        step_growth_s = self.step_growths_s[batch_size]
        step_s = self.base_steps_s[batch_size] + step_growth_s * context_tokens
        batch_growth_s = step_growth_s * batch_size
        self.step_s, self.batch_growth_s = step_s, batch_growth_s
        # Tokens until the first answer ends.
        decoded_tokens = self.decoding[-1].end_clock_tokens - self.clock_tokens
        free_tokens = self.pool_tokens - context_tokens
        # Each step takes one token of the pool for each request. A request alone is never
        # preempted: it would overflow again.
        self.is_overflow = (
            decoded_tokens * batch_size > free_tokens and batch_size > 1
        )
        if self.is_overflow:
            decoded_tokens = free_tokens / batch_size
        # Rounding may put the end of an answer behind the clock.
        decoded_tokens = max(decoded_tokens, 0.0)
        decode_s = decoded_tokens * (
            step_s + batch_growth_s * decoded_tokens / 2
        )
        if self.pipeline:
            decode_s /= self.prompt_decode_speed
        return self.now_s + decode_s

    def _decode_until(self, event_s: float) -> None:
        """Advance the tokens to `event_s`, which is before the event of `_next_answer_event`.

        The tokens d solve the quadratic of `_next_answer_event`:
            growth * n / 2 * d^2 + step * d = decode time
        """
        decode_s = event_s - self.now_s
        if self.pipeline:
            decode_s *= self.prompt_decode_speed
        step_s = self.step_s
        # Root in the form without cancellation when the growth is small.
        decoded_tokens = (
            2
            * decode_s
            / (
                step_s
                + math.sqrt(
                    step_s * step_s + 2 * self.batch_growth_s * decode_s
                )
            )
        )
        self.clock_tokens += decoded_tokens
        # Every request extends its context by the same tokens.
        self.context_tokens += len(self.decoding) * decoded_tokens
        self._note_tokens(self.context_tokens)

    def _finish_request(self, event_s: float) -> None:
        request = self.decoding[-1]
        self.context_tokens += len(self.decoding) * (
            request.end_clock_tokens - self.clock_tokens
        )
        self._note_tokens(self.context_tokens)
        self.clock_tokens = request.end_clock_tokens
        self.now_s = event_s
        self.decoding.pop()
        # The KV cache of the request is freed; the last token is not in it.
        self.context_tokens -= (
            request.prompt_tokens + request.answer_tokens - 1
            # Rounding must not leave an empty replica with tokens.
            if self.decoding
            else self.context_tokens
        )
        self._release(request)
        self.admission_closed = False
        request.end_s = event_s
        self.finished.append(request)
        if self.next_requests is not None:
            self._send_next(self.next_requests)

    def _send_next(self, next_requests: Iterator[Request]) -> None:
        """Queue the next request of a user of a closed loop, who has no think time."""
        next_request = next(next_requests, None)
        if next_request is not None:
            next_request.due_s = self.now_s
            self.receive(next_request)

    def _release(self, request: Request) -> None:
        self.reserved_tokens -= request.reserved_tokens
        self.admitted_count -= 1

    def _start_decoding(self) -> None:
        """Start to decode the prompts that have passed the last stage."""
        for request in self.pipeline.pop(0).requests:
            # A preempted request keeps the time of its first token.
            request.first_token_s = request.first_token_s or self.now_s
            self.start_count += 1
            request.start_number = self.start_count
            # The prompt has produced one more token of the answer.
            remaining_tokens = (
                request.answer_tokens - request.generated_tokens - 1
            )
            request.end_clock_tokens = self.clock_tokens + remaining_tokens
            self._insert_decoding(request)
            prompt_tokens = request.prompt_tokens + request.generated_tokens
            self.context_tokens += prompt_tokens
            self.prefilled_tokens -= prompt_tokens

    def _insert_decoding(self, request: Request) -> None:
        """Let a request decode, ahead of those that end at the same time: they end first."""
        decoding = self.decoding
        low, high = 0, len(decoding)
        while low < high:
            middle = (low + high) // 2
            if decoding[middle].end_clock_tokens > request.end_clock_tokens:
                low = middle + 1
            else:
                high = middle
        decoding.insert(low, request)

    def _preempt_newest(self, event_s: float) -> None:
        """Return the newest request to the head of the queue with the tokens that it has.

        Its KV cache is dropped, and computed again as part of its prompt. Its first token has
        been sent, so `first_token_s` stays.
        """
        self._decode_until(event_s)
        self.now_s = event_s
        request = max(self.decoding, key=lambda running: running.start_number)
        self.decoding.remove(request)
        request.generated_tokens = (
            request.answer_tokens - request.end_clock_tokens + self.clock_tokens
        )
        # The newest token is not in the cache yet.
        self.context_tokens -= (
            request.prompt_tokens + request.generated_tokens - 1
        )
        self._release(request)
        self.waiting.append(request)
        self.preempted_count += 1
        # At once readmitted, it would overflow the pool again.
        self.admission_closed = True


class AnsweringReplica(ReplicaSimulation):
    """A replica that gets requests with their caches, and computes no prompt.

    Only a request that was preempted computes its prompt here. In `busy_s` is the first step of a
    request, which ends with its first token.
    """

    def _enter_pipeline(self, prompts: list[Request]) -> None:
        """Let requests decode at once, after the prompts of those that were preempted."""
        now_s = self.now_s
        stage_s = 0.0
        prompts_tokens = 0
        for request in prompts:
            prompts_tokens += request.prompt_tokens
            if request.generated_tokens:
                stage_s += self.busy_time(
                    request.prompt_tokens + request.generated_tokens
                )
        started_s = now_s + stage_s * self.stage_count
        step_s = self._step_time(len(self.decoding), self.context_tokens)
        first_step_s = self._step_time(
            len(self.decoding) + len(prompts),
            self.context_tokens + prompts_tokens,
        )
        for request in prompts:
            # A preempted request has had its first token.
            if not request.first_token_s:
                request.prompt_start_s = started_s
                request.step_s = step_s
                request.busy_s = first_step_s
        self.stage_free_s = now_s + stage_s
        self.pipeline.append(PromptStep(started_s, prompts))


def request_times(
    replica_table: ReplicaTable, requests: list[Request]
) -> RequestTimes:
    """Return ttft, tpot and e2e of simulated requests, in seconds."""
    return metric_timer(replica_table)(requests)


def metric_timer(replica_table: ReplicaTable) -> BatchTimer:
    """Return a function that gives ttft, tpot and e2e of simulated requests, in seconds.

    ttft = ttft_factor * (m * first_token + step_wait * step + prompt_share * prompt)
    prompt = wait of the prompt + the other prompts of its step + m * prompt latency
    m    = prompt_factor
    tpot = (end - first token) / (answer - 1)
    e2e  = ttft + end - first token
    """
    coefficients = replica_table.coefficients
    latency = replica_table.prompt_latency
    ttft_factor = replica_table.ttft_factor
    prompt_factor = replica_table.prompt_factor
    fixed_s = ttft_factor * prompt_factor * coefficients.first_token
    wait_share = ttft_factor * coefficients.step_wait
    prompt_share = ttft_factor * coefficients.prompt_share

    def times_of(requests: list[Request]) -> RequestTimes:
        first_token_times = [
            fixed_s
            # Wait for the decode step that runs when the prompt is due.
            + wait_share * request.step_s
            + prompt_share
            * (
                request.prompt_start_s
                - request.due_s
                + request.shared_s
                + prompt_factor * latency(request.prompt_tokens)
            )
            for request in requests
        ]
        answer_times = [
            request.end_s - request.first_token_s for request in requests
        ]
        return {
            "ttft": first_token_times,
            "tpot": [
                # The first token counts in ttft, the others in tpot.
                answer_s / (request.answer_tokens - 1)
                for answer_s, request in zip(
                    answer_times, requests, strict=True
                )
            ],
            "e2e": [
                first_token_s + answer_s
                for first_token_s, answer_s in zip(
                    first_token_times, answer_times, strict=True
                )
            ],
        }

    return times_of

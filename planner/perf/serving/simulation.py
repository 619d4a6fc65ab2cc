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
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from functools import cache
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from planner.perf.common import memory
from planner.perf.serving.correction import REFERENCE_BATCH
from planner.perf.serving.prompt import busy_timer, latency_timer
from planner.perf.serving.step import attention_time, decode_timer
from planner.perf.serving.work import UNLIMITED_TOKENS
from planner.units import BYTES_PER_GIB

if TYPE_CHECKING:
    from collections.abc import Iterator

    from planner.perf.serving.coefficients import Coefficients
    from planner.perf.serving.correction import Correction
    from planner.perf.serving.margin import RateMargins
    from planner.perf.serving.prompt import PromptTimer
    from planner.perf.serving.replica import Replica
    from planner.perf.serving.step import StepTimes

NEVER: Final = math.inf
# Speed of decoding that is left when a prompt takes everything.
MIN_DECODE_SPEED: Final = 1e-3


class Request(Struct):
    """One request; times in seconds of the simulation.

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
    """

    due_s: float
    prompt_tokens: int
    answer_tokens: int
    step_s: float = 0.0
    prompt_start_s: float = 0.0
    busy_s: float = 0.0
    shared_s: float = 0.0
    first_token_s: float = 0.0
    end_s: float = 0.0
    generated_tokens: float = 0.0
    reserved_tokens: float = 0.0


class Crowd(NamedTuple):
    """The most that was on a replica at once; infinite where a request waited for its room.

    requests  in the pipeline and running
    tokens    in its KV pool, or reserved there
    """

    requests: float
    tokens: float


class TableInputs(Struct, frozen=True):
    """All that the table of a replica is computed from: equal inputs have the same table.

    step_times      times of the terms of a step
    coefficients    of the engine on this hardware
    margins         factors that the confidence asks for
    correction      what a benchmark taught
    slot_count      most requests in flight
    pool_tokens     tokens of the KV pool
    context_tokens  mean context of a decode step
    token_budget    most prompt tokens of a step
    """

    step_times: StepTimes
    coefficients: Coefficients
    margins: RateMargins
    correction: Correction | None
    slot_count: int
    pool_tokens: float
    context_tokens: float
    token_budget: float


class ReplicaTable(Struct, frozen=True, eq=False):
    """Tabulated times and limits of one replica. It is equal to no other table.

    base_steps_s         step time without context-dependent reads, by batch, s
    step_growths_s       step time added by one token of context, by batch, s
    busy_time            seconds that a prompt of so many tokens occupies the replica
    prompt_latency       seconds of a prompt of so many tokens on an idle replica
    pool_tokens          tokens of the KV pool
    answer_share         share of an answer reserved in the pool at admission
    slot_count           most requests in flight
    token_budget         most prompt tokens of a step
    stage_count          stages of the pipeline
    prompt_decode_speed  speed of decoding while a prompt runs, relative to full speed
    prompt_factor        margin on the time before the first token
    ttft_factor          correction of the time to first token from a benchmark
    """

    base_steps_s: tuple[float, ...]
    step_growths_s: tuple[float, ...]
    step_times: StepTimes
    busy_time: PromptTimer
    prompt_latency: PromptTimer
    coefficients: Coefficients
    pool_tokens: float
    answer_share: float
    slot_count: int
    token_budget: float
    stage_count: float
    prompt_decode_speed: float
    prompt_factor: float = 1.0
    ttft_factor: float = 1.0


def tabulate_times(
    times: StepTimes,
    coefficients: Coefficients,
    slot_count: int,
    pool_tokens: float,
    context_tokens: float,
    *,
    token_budget: float = UNLIMITED_TOKENS,
) -> ReplicaTable:
    """Tabulate the times of a replica for each batch up to `slot_count`.

        step(n, S) = base(n) + growth(n) * S

    Reads of sliding windows and the limit of sparse attention are those of a request with a
    mean context of `context_tokens`.
    """
    # Attention without the full layers, whose reads grow with context.
    fixed_attention_s = (
        attention_time(times, context_tokens) - times.kv_full_s * context_tokens
    )
    decode_time = decode_timer(times)
    base_steps_s = [0.0]
    step_growths_s = [0.0]
    for batch_size in range(1, slot_count + 1):
        base_steps_s.append(decode_time(batch_size, fixed_attention_s))
        step_growths_s.append(
            # Sequences of one accelerator in one stage, as in decode_time.
            max(max(batch_size / times.pp, 1.0) / times.adp, 1.0)
            / batch_size
            * times.kv_full_s
            # Speculative decoding yields several tokens in each step.
            / times.draft.tokens_per_step
        )
    return ReplicaTable(
        base_steps_s=tuple(base_steps_s),
        step_growths_s=tuple(step_growths_s),
        step_times=times,
        # The same requests meet many fleets of a replica.
        busy_time=cache(busy_timer(times)),
        prompt_latency=cache(latency_timer(times)),
        coefficients=coefficients,
        pool_tokens=pool_tokens,
        answer_share=coefficients.answer_share,
        slot_count=slot_count,
        token_budget=token_budget,
        stage_count=times.pp,
        prompt_decode_speed=max(
            # Interference above 1 would stop decoding altogether.
            MIN_DECODE_SPEED,
            1 - coefficients.interference,
        ),
    )


def table_inputs(replica: Replica) -> TableInputs:
    """Return what the table of a replica under its load is computed from."""
    context_tokens = replica.load.decode_context_tokens
    # Mean KV bytes per token, page rounding and windows included.
    token_bytes = (
        memory.kv_bytes(replica.stored_llm, replica.layout, context_tokens)
        / context_tokens
    )
    return TableInputs(
        step_times=replica.step_times,
        coefficients=replica.coefficients,
        margins=replica.margins,
        correction=replica.correction,
        slot_count=replica.max_batch,
        pool_tokens=replica.startup_memory.kv_gib * BYTES_PER_GIB / token_bytes,
        context_tokens=context_tokens,
        token_budget=replica.startup_memory.max_step_tokens,
    )


def tabulate_replica(replica: Replica) -> ReplicaTable:
    """Tabulate a replica under its load, with its margins and the correction from a benchmark."""
    return tabulate(table_inputs(replica))


def tabulate(inputs: TableInputs) -> ReplicaTable:
    """Tabulate the times of a replica, with margins and the correction from a benchmark."""
    replica_table = tabulate_times(
        inputs.step_times,
        inputs.coefficients,
        inputs.slot_count,
        inputs.pool_tokens,
        inputs.context_tokens,
        token_budget=inputs.token_budget,
    )
    margins = inputs.margins
    tpot_factors = [
        margins.decode * _bias_factor(inputs, "tpot", batch_size)
        for batch_size in range(inputs.slot_count + 1)
    ]
    busy_time = replica_table.busy_time
    return replace(
        replica_table,
        base_steps_s=_scaled(replica_table.base_steps_s, tpot_factors),
        step_growths_s=_scaled(replica_table.step_growths_s, tpot_factors),
        busy_time=cache(
            lambda prompt_tokens: margins.prefill * busy_time(prompt_tokens)
        ),
        prompt_factor=margins.prefill,
        ttft_factor=_bias_factor(inputs, "ttft", int(REFERENCE_BATCH)),
    )


def _bias_factor(inputs: TableInputs, metric: str, batch_size: int) -> float:
    """Return the factor on ttft or tpot that a benchmark taught, else 1."""
    if inputs.correction is None:
        return 1.0
    return inputs.correction.factor(metric, batch_size, inputs.context_tokens)


def _scaled(
    times_s: tuple[float, ...], factors: list[float]
) -> tuple[float, ...]:
    return tuple(
        time_s * factor for time_s, factor in zip(times_s, factors, strict=True)
    )


@dataclass(slots=True)
class ReplicaSimulation:
    """State of one simulated replica.

    queue             requests that have not started, in order of arrival
    pipeline          steps with prompts in the stages: (end of the last stage, requests)
    decoding          running requests by start number, the newest last: (clock at the end,
                      request)
    answer_ends       heap of (clock at the end, start number), of preempted requests too
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

    table: ReplicaTable
    queue: deque[Request] = field(default_factory=deque)
    pipeline: deque[tuple[float, list[Request]]] = field(default_factory=deque)
    decoding: dict[int, tuple[float, Request]] = field(default_factory=dict)
    answer_ends: list[tuple[float, int]] = field(default_factory=list)
    finished: list[Request] = field(default_factory=list)
    next_requests: Iterator[Request] | None = None
    now_s: float = 0.0
    clock_tokens: float = 0.0
    context_tokens: float = 0.0
    prefilled_tokens: float = 0.0
    reserved_tokens: float = 0.0
    admitted_count: int = 0
    stage_free_s: float = 0.0
    step_s: float = 0.0
    batch_growth_s: float = 0.0
    start_count: int = 0
    preempted_count: int = 0
    admission_closed: bool = False
    is_overflow: bool = False
    most_tokens: float = 0.0
    most_admitted: int = 0

    @property
    def crowd(self) -> Crowd:
        """The most that was on the replica at once."""
        # With all slots taken a request may have waited for one.
        has_slots = self.most_admitted < self.table.slot_count
        # Requests that fill the pool may have been preempted.
        has_pool = self.most_tokens < self.table.pool_tokens
        return Crowd(
            self.most_admitted if has_slots else NEVER,
            self.most_tokens if has_pool else NEVER,
        )

    @property
    def request_count(self) -> int:
        """Number of requests in the replica, queued ones included."""
        return len(self.queue) + self.admitted_count

    def advance(self, until_s: float, finish_count: float = math.inf) -> float:
        """Process all events up to `until_s`; return the time of the next event.

        It ends earlier when `finish_count` requests are in `finished`.
        """
        # A run has some hundred thousand events: what each of them needs is looked up once, and
        # two numbers are compared in place, which takes less time than a call of max or min.
        queue, pipeline = self.queue, self.pipeline
        decoding, finished = self.decoding, self.finished
        slot_count = self.table.slot_count
        while len(finished) < finish_count:
            prompt_event_s = pipeline[0][0] if pipeline else NEVER
            if (
                queue
                and self.admitted_count < slot_count
                and not self.admission_closed
            ):
                # The first stage is idle until the arrival, or busy until it is free.
                due_s, free_s = queue[0].due_s, self.stage_free_s
                start_s = due_s if due_s > free_s else free_s  # noqa: FURB136
                if start_s > self.now_s:
                    if start_s < prompt_event_s:  # noqa: PLR1730
                        prompt_event_s = start_s
                # Without prompts a request that ends makes room for the next one.
                elif prompts := self._admit_prompts():
                    self._enter_pipeline(prompts)
                    prompt_event_s = min(self.stage_free_s, pipeline[0][0])
            answer_event_s = self._next_answer_event() if decoding else NEVER
            if prompt_event_s <= answer_event_s:
                if prompt_event_s > until_s or prompt_event_s == NEVER:
                    return prompt_event_s
                if decoding:
                    self._decode_until(prompt_event_s)
                self.now_s = prompt_event_s
                if pipeline and pipeline[0][0] <= prompt_event_s:
                    self._start_decoding()
            elif answer_event_s > until_s:
                return answer_event_s
            elif self.is_overflow:
                self._preempt_newest(answer_event_s)
            else:
                self._finish_request(answer_event_s)
        return self.now_s

    def _admit_prompts(self) -> list[Request]:
        """Take the requests from the queue whose prompts fit in the next step together.

        A prompt that is longer than a step alone takes several steps, and nothing joins it.
        """
        table, queue, now_s = self.table, self.queue, self.now_s
        budget_tokens = table.token_budget
        pool_tokens, answer_share = table.pool_tokens, table.answer_share
        prompts: list[Request] = []
        while queue and self.admitted_count < table.slot_count:
            request = queue[0]
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
            own_tokens = share_tokens
            if own_tokens < prompt_tokens:  # noqa: PLR1730
                own_tokens = prompt_tokens
            request.reserved_tokens = own_tokens
            reserved_tokens = self.reserved_tokens + own_tokens
            prefilled_tokens = self.prefilled_tokens + prompt_tokens
            # An empty replica admits any request, so it cannot deadlock. Answers may have
            # outgrown what was reserved for them.
            if self.admitted_count and (
                reserved_tokens > pool_tokens
                or self.context_tokens + prefilled_tokens > pool_tokens
            ):
                self.most_tokens = NEVER
                break
            prompts.append(queue.popleft())
            self.reserved_tokens = reserved_tokens
            self.prefilled_tokens = prefilled_tokens
            self.admitted_count += 1
        self.most_tokens = max(
            self.most_tokens,
            self.reserved_tokens,
            self.context_tokens + self.prefilled_tokens,
        )
        self.most_admitted = max(self.most_admitted, self.admitted_count)
        return prompts

    def _enter_pipeline(self, prompts: list[Request]) -> None:
        """Start prompts together. They occupy a stage for the sum of their times."""
        table, now_s = self.table, self.now_s
        batch_size = len(self.decoding)
        # The running step, which the first token waits for; 0 where nobody decodes.
        step_s = (
            table.base_steps_s[batch_size]
            + table.step_growths_s[batch_size] * self.context_tokens
        )
        stage_s = 0.0
        for request in prompts:
            request.busy_s = table.busy_time(
                request.prompt_tokens + request.generated_tokens
            )
            stage_s += request.busy_s
        stage_count = table.stage_count
        for request in prompts:
            # A preempted request has had its first token.
            if not request.first_token_s:
                request.prompt_start_s = now_s
                request.step_s = step_s
                request.shared_s = (stage_s - request.busy_s) * stage_count
        self.stage_free_s = now_s + stage_s
        # The tokens pass all stages one after the other.
        self.pipeline.append((now_s + stage_s * stage_count, prompts))

    def _next_answer_event(self) -> float:
        """Return when a request ends, or the pool overflows before that; say which it is.

        The time of d tokens at n requests with S tokens of context, at full decode speed, is
            d * (step(n, S) + growth(n) * n * d / 2)
        """
        batch_size = len(self.decoding)
        table, context_tokens = self.table, self.context_tokens
        step_growth_s = table.step_growths_s[batch_size]
        step_s = table.base_steps_s[batch_size] + step_growth_s * context_tokens
        batch_growth_s = step_growth_s * batch_size
        self.step_s, self.batch_growth_s = step_s, batch_growth_s
        # Tokens until the request at the top of the heap ends.
        decoded_tokens = self.answer_ends[0][0] - self.clock_tokens
        free_tokens = table.pool_tokens - context_tokens
        # Each step takes one token of the pool for each request. A request alone is never
        # preempted: it would overflow again.
        self.is_overflow = (
            decoded_tokens * batch_size > free_tokens and batch_size > 1
        )
        if self.is_overflow:
            decoded_tokens = free_tokens / batch_size
        # Rounding may put the end of an answer behind the clock.
        if decoded_tokens < 0:
            decoded_tokens = 0.0
        decode_s = decoded_tokens * (
            step_s + batch_growth_s * decoded_tokens / 2
        )
        if self.pipeline:
            decode_s /= table.prompt_decode_speed
        return self.now_s + decode_s

    def _decode_until(self, event_s: float) -> None:
        """Advance the tokens to `event_s`, which is before the event of `_next_answer_event`.

        The tokens d solve the quadratic of `_next_answer_event`:
            growth * n / 2 * d^2 + step * d = decode time
        """
        decode_s = event_s - self.now_s
        if self.pipeline:
            decode_s *= self.table.prompt_decode_speed
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
        if self.context_tokens > self.most_tokens:  # noqa: PLR1730
            self.most_tokens = self.context_tokens

    def _finish_request(self, event_s: float) -> None:
        end_clock_tokens, start_number = heappop(self.answer_ends)
        self.context_tokens += len(self.decoding) * (
            end_clock_tokens - self.clock_tokens
        )
        if self.context_tokens > self.most_tokens:  # noqa: PLR1730
            self.most_tokens = self.context_tokens
        self.clock_tokens = end_clock_tokens
        self.now_s = event_s
        request = self.decoding.pop(start_number)[1]
        if self.preempted_count:
            self._drop_preempted()
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
            self.queue.append(next_request)

    def _drop_preempted(self) -> None:
        """Let the first end of an answer be that of a running request."""
        answer_ends = self.answer_ends
        while answer_ends and answer_ends[0][1] not in self.decoding:
            heappop(answer_ends)

    def _release(self, request: Request) -> None:
        self.reserved_tokens -= request.reserved_tokens
        self.admitted_count -= 1

    def _start_decoding(self) -> None:
        """Start to decode the prompts that have passed the last stage."""
        _, prompts = self.pipeline.popleft()
        for request in prompts:
            # A preempted request keeps the time of its first token.
            request.first_token_s = request.first_token_s or self.now_s
            self.start_count += 1
            # The prompt has produced one more token of the answer.
            remaining_tokens = (
                request.answer_tokens - request.generated_tokens - 1
            )
            end_clock_tokens = self.clock_tokens + remaining_tokens
            self.decoding[self.start_count] = end_clock_tokens, request
            heappush(self.answer_ends, (end_clock_tokens, self.start_count))
            prompt_tokens = request.prompt_tokens + request.generated_tokens
            self.context_tokens += prompt_tokens
            self.prefilled_tokens -= prompt_tokens

    def _preempt_newest(self, event_s: float) -> None:
        """Return the newest request to the head of the queue with the tokens that it has.

        Its KV cache is dropped, and computed again as part of its prompt. Its first token has
        been sent, so `first_token_s` stays.
        """
        self._decode_until(event_s)
        self.now_s = event_s
        _, (end_clock_tokens, request) = self.decoding.popitem()
        self._drop_preempted()
        request.generated_tokens = (
            request.answer_tokens - end_clock_tokens + self.clock_tokens
        )
        # The newest token is not in the cache yet.
        self.context_tokens -= (
            request.prompt_tokens + request.generated_tokens - 1
        )
        self._release(request)
        self.queue.appendleft(request)
        self.preempted_count += 1
        # At once readmitted, it would overflow the pool again.
        self.admission_closed = True

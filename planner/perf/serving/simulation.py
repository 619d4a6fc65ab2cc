"""Discrete-event simulation of one replica, which verifies the analytic percentiles.

Continuous batching runs on a virtual clock that counts tokens: each running request gains one
token in a step. A request that starts at clock V ends at V + answer - 1. Events are arrivals,
ends of prompts, completions and overflows of the KV pool. Between them a step lasts

    step(n, S) = base(n) + growth(n) * S

with n requests and S tokens of context in total. S grows by n in each step, so the time of d
steps is quadratic in d and exact. Prompts are processed one at a time in order of arrival;
meanwhile decoding runs at 1 - interference of its speed. A request is admitted when a slot and
its reserved share of the KV pool are free. When contexts overflow the pool, the newest request
restarts.
"""

from __future__ import annotations

import math
from collections import deque
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Final

from msgspec import Struct, field
from msgspec.structs import replace

from planner.perf.common import memory
from planner.perf.serving.correction import REFERENCE_BATCH
from planner.perf.serving.prompt import busy_timer
from planner.perf.serving.step import attention_time, decode_time
from planner.units import BYTES_PER_GIB

if TYPE_CHECKING:
    from planner.perf.serving.coefficients import Coefficients
    from planner.perf.serving.prompt import PromptTimer
    from planner.perf.serving.replica import Replica
    from planner.perf.serving.step import StepTimes

NEVER: Final = math.inf
# Speed of decoding that is left when a prompt takes everything.
MIN_DECODE_SPEED: Final = 1e-3


class Request(Struct):
    """One request; times in seconds of the simulation.

    due_s           arrival
    prompt_tokens   prompt length outside the prefix cache, tokens
    answer_tokens   answer length, tokens
    step_s          decode step that runs when the prompt starts
    prompt_start_s  start of the prompt
    first_token_s   end of the first prompt pass
    end_s           end of the answer
    """

    due_s: float
    prompt_tokens: int
    answer_tokens: int
    step_s: float = 0.0
    prompt_start_s: float = 0.0
    first_token_s: float = 0.0
    end_s: float = 0.0


class ReplicaTable(Struct, frozen=True):
    """Tabulated times and limits of one replica.

    base_steps_s         step time without context-dependent reads, by batch, s
    step_growths_s       step time added by one token of context, by batch, s
    busy_time            seconds that a prompt of so many tokens occupies the replica
    pool_tokens          tokens of the KV pool
    answer_share         share of an answer reserved in the pool at admission
    slot_count           most requests in flight
    prompt_decode_speed  speed of decoding while a prompt runs, relative to full speed
    ttft_factor          correction of the time to first token from a benchmark
    """

    base_steps_s: tuple[float, ...]
    step_growths_s: tuple[float, ...]
    step_times: StepTimes
    busy_time: PromptTimer
    coefficients: Coefficients
    pool_tokens: float
    answer_share: float
    slot_count: int
    prompt_decode_speed: float
    ttft_factor: float = 1.0


def tabulate_times(
    times: StepTimes,
    coefficients: Coefficients,
    slot_count: int,
    pool_tokens: float,
    context_tokens: float,
) -> ReplicaTable:
    """Tabulate the times of a replica for each batch up to `slot_count`.

        step(n, S) = base(n) + growth(n) * S

    Reads of sliding windows and the limit of sparse attention are those of a request with a
    mean context of `context_tokens`.
    """
    # Attention without the full layers, whose reads grow with context.
    fixed_attention_s = attention_time(
        times, context_tokens
    ) - times.kv_full_s * min(context_tokens, times.sparse_tokens)
    base_steps_s = [0.0]
    step_growths_s = [0.0]
    for batch_size in range(1, slot_count + 1):
        base_steps_s.append(decode_time(times, batch_size, fixed_attention_s))
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
        busy_time=busy_timer(times),
        coefficients=coefficients,
        pool_tokens=pool_tokens,
        answer_share=coefficients.answer_share,
        slot_count=slot_count,
        prompt_decode_speed=max(
            # Interference above 1 would stop decoding altogether.
            MIN_DECODE_SPEED,
            1 - coefficients.interference,
        ),
    )


def tabulate_replica(replica: Replica) -> ReplicaTable:
    """Tabulate a replica under its load, with the correction from a benchmark."""
    context_tokens = replica.load.decode_context_tokens
    # Mean KV bytes per token, page rounding and windows included.
    token_bytes = (
        memory.kv_bytes(replica.llm, replica.layout, context_tokens)
        / context_tokens
    )
    pool_tokens = replica.startup_memory.kv_gib * BYTES_PER_GIB / token_bytes
    replica_table = tabulate_times(
        replica.step_times,
        replica.coefficients,
        replica.max_batch,
        pool_tokens,
        context_tokens,
    )
    if replica.correction is None:
        return replica_table
    tpot_factors = [
        1.0,
        *(
            replica.correction.factor("tpot", batch_size, context_tokens)
            for batch_size in range(1, replica_table.slot_count + 1)
        ),
    ]
    return replace(
        replica_table,
        base_steps_s=tuple(
            step_s * tpot_factor
            for step_s, tpot_factor in zip(
                replica_table.base_steps_s, tpot_factors, strict=True
            )
        ),
        step_growths_s=tuple(
            step_s * tpot_factor
            for step_s, tpot_factor in zip(
                replica_table.step_growths_s, tpot_factors, strict=True
            )
        ),
        ttft_factor=replica.correction.factor(
            "ttft", REFERENCE_BATCH, context_tokens
        ),
    )


class ReplicaSimulation(Struct):
    """State of one simulated replica.

    queue             requests that have not started, in order of arrival
    running           heap of (clock at the end, start number, request)
    finished          completed requests
    now_s             time, s
    clock_tokens      virtual clock: tokens that a request running since time 0 would have
    context_tokens    KV tokens of all running requests
    reserved_tokens   tokens reserved at admission
    prefilling        request whose prompt runs
    prompt_event_s    end of that prompt, or arrival of the next request
    start_count       requests that have started to decode
    admission_closed  True after a restart, until a request completes
    """

    table: ReplicaTable
    queue: deque[Request] = field(default_factory=deque)
    running: list[tuple[float, int, Request]] = field(default_factory=list)
    finished: list[Request] = field(default_factory=list)
    now_s: float = 0.0
    clock_tokens: float = 0.0
    context_tokens: float = 0.0
    reserved_tokens: float = 0.0
    prefilling: Request | None = None
    prompt_event_s: float = NEVER
    start_count: int = 0
    admission_closed: bool = False

    @property
    def request_count(self) -> int:
        """Number of requests in the replica, queued ones included."""
        return (
            len(self.queue) + len(self.running) + (self.prefilling is not None)
        )

    def advance(self, until_s: float) -> float:
        """Process all events up to `until_s`; return the time of the next event."""
        while True:
            if self.prefilling is None:
                self._begin_prompt()
            completion_s, overflow_s = self._next_events()
            next_event_s = min(completion_s, self.prompt_event_s, overflow_s)
            if next_event_s > until_s or next_event_s == NEVER:
                return next_event_s
            # The earliest of three events: overflow, completion or prompt.
            if overflow_s < completion_s and overflow_s < self.prompt_event_s:
                self._restart_newest(overflow_s)
            elif completion_s < self.prompt_event_s:
                self._finish_request(completion_s)
            else:
                self._finish_prompt()

    def _begin_prompt(self) -> None:
        """Start the next prompt if it can be admitted, or set when it is due."""
        table = self.table
        batch_size = len(self.running)
        self.prompt_event_s = NEVER
        if (
            not self.queue
            or batch_size >= table.slot_count
            or self.admission_closed
        ):
            return
        request = self.queue[0]
        # Idle prompt server: the next event is this arrival.
        if request.due_s > self.now_s:
            self.prompt_event_s = request.due_s
            return
        needed_tokens = (
            request.prompt_tokens + table.answer_share * request.answer_tokens
        )
        if (
            self.reserved_tokens + needed_tokens <= table.pool_tokens
            # An empty replica admits any request, so it cannot deadlock.
            or not batch_size
        ):
            self.queue.popleft()
            self.reserved_tokens += needed_tokens
            request.prompt_start_s = self.now_s
            request.step_s = (
                # The running step, which the first token waits for.
                table.base_steps_s[batch_size or 1]
                + table.step_growths_s[batch_size or 1] * self.context_tokens
            )
            self.prefilling = request
            self.prompt_event_s = self.now_s + table.busy_time(
                request.prompt_tokens
            )

    def _next_events(self) -> tuple[float, float]:
        """Return the times of the next completion and of an earlier overflow, in s.

        The time of d tokens at n requests with S tokens of context, at full decode speed, is
            d * (step(n, S) + growth(n) * n * d / 2)
        """
        batch_size = len(self.running)
        if not batch_size:
            return NEVER, NEVER
        table = self.table
        step_growth_s = table.step_growths_s[batch_size]
        step_s = (
            table.base_steps_s[batch_size] + step_growth_s * self.context_tokens
        )
        decode_speed = (
            1.0 if self.prefilling is None else table.prompt_decode_speed
        )
        # Tokens until the request at the top of the heap ends.
        decoded_tokens = max(0.0, self.running[0][0] - self.clock_tokens)
        completion_s = (
            self.now_s
            + decoded_tokens
            * (step_s + step_growth_s * batch_size * decoded_tokens / 2)
            / decode_speed
        )
        free_tokens = table.pool_tokens - self.context_tokens
        # A request alone never restarts: it would overflow again.
        if batch_size == 1 or decoded_tokens * batch_size <= free_tokens:
            return completion_s, NEVER  # somebody ends first
        # Each step takes one token of the pool for each request.
        decoded_tokens = max(0.0, free_tokens / batch_size)
        return completion_s, self.now_s + decoded_tokens * (
            step_s + step_growth_s * batch_size * decoded_tokens / 2
        ) / decode_speed

    def _pass_time(self, event_s: float) -> None:
        """Advance the clock to `event_s` without an event.

        The tokens d solve the quadratic of `_next_events`:
            growth * n / 2 * d^2 + step * d = decode time
        """
        batch_size = len(self.running)
        if batch_size:
            table = self.table
            decode_s = (event_s - self.now_s) * (
                1.0 if self.prefilling is None else table.prompt_decode_speed
            )
            step_growth_s = table.step_growths_s[batch_size]
            step_s = (
                table.base_steps_s[batch_size]
                + step_growth_s * self.context_tokens
            )
            # Root in the form without cancellation when the growth is small.
            decoded_tokens = (
                2
                * decode_s
                / (
                    step_s
                    + math.sqrt(
                        step_s * step_s
                        + 2 * step_growth_s * batch_size * decode_s
                    )
                )
            )
            self.clock_tokens += decoded_tokens
            # Every request extends its context by the same tokens.
            self.context_tokens += batch_size * decoded_tokens
        self.now_s = event_s

    def _finish_request(self, event_s: float) -> None:
        end_clock_tokens, _, request = self.running[0]
        self.context_tokens += len(self.running) * (
            end_clock_tokens - self.clock_tokens
        )
        self.clock_tokens = end_clock_tokens
        self.now_s = event_s
        heappop(self.running)
        # The KV cache of the request is freed; the last token is not in it.
        self.context_tokens = max(
            0.0,
            self.context_tokens
            - request.prompt_tokens
            - request.answer_tokens
            + 1,
        )
        self.reserved_tokens -= (
            request.prompt_tokens
            + self.table.answer_share * request.answer_tokens
        )
        self.admission_closed = False
        request.end_s = event_s
        self.finished.append(request)

    def _finish_prompt(self) -> None:
        self._pass_time(self.prompt_event_s)
        request = self.prefilling
        self.prefilling = None
        if request is None:
            return  # the next request is due now
        # A restarted request keeps the time of its first token.
        request.first_token_s = request.first_token_s or self.now_s
        self.start_count += 1
        heappush(
            self.running,
            (
                # The prompt has produced the first token of the answer.
                self.clock_tokens + request.answer_tokens - 1,
                self.start_count,
                request,
            ),
        )
        self.context_tokens += request.prompt_tokens

    def _restart_newest(self, event_s: float) -> None:
        """Return the newest request to the head of the queue; its prompt runs again.

        Its first token has already been sent, so `first_token_s` stays.
        """
        self._pass_time(event_s)
        newest_entry = max(self.running, key=lambda entry: entry[1])
        self.running.remove(newest_entry)
        heapify(self.running)
        request = newest_entry[2]
        self.reserved_tokens -= (
            request.prompt_tokens
            + self.table.answer_share * request.answer_tokens
        )
        # Context so far: prompt and answer less the tokens still to come.
        self.context_tokens -= (
            request.prompt_tokens
            + request.answer_tokens
            - 1
            - (newest_entry[0] - self.clock_tokens)
        )
        self.queue.appendleft(request)
        # At once readmitted, it would overflow the pool again.
        self.admission_closed = self.prefilling is None

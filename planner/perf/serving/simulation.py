"""Plays requests through a replica, one by one: what the analytic percentiles are checked with.

Continuous batching as a virtual clock: every running request gains one token in each step, so a
request that starts when the clock shows V ends when it shows V + answer - 1, and only arrivals,
ends of prompts and completions need to be computed. Between them a step lasts

    step(n, S) = base(n) + growth(n) * S        n requests with S tokens of context, S growing by n

of which the sum over d tokens is exact. Prompts pass one at a time, first come first served; while
one does, decoding goes on at 1 - interference of its speed. A request is admitted when a slot and
its share of the KV pool are free; when contexts outgrow the pool, the newest starts again.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field, replace
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Final

from planner.perf.common import memory
from planner.perf.serving.correction import REFERENCE_BATCH
from planner.perf.serving.step import (
    attention_time,
    decode_time,
    prompt_busy_time,
)

if TYPE_CHECKING:
    from planner.perf.serving.coefficients import Coefficients
    from planner.perf.serving.replica import Replica
    from planner.perf.serving.step import StepTimes

NEVER: Final = math.inf
MIN_DECODE_SPEED: Final = (
    1e-3  # speed of decoding that is left when a prompt takes everything
)


@dataclass(slots=True)
class Request:
    """One request: when it is due, its lengths, and when its prompt began and its answer ended."""

    due_s: float
    prompt_tokens: int
    answer_tokens: int
    step_s: float = 0.0
    prompt_start_s: float = 0.0
    first_token_s: float = 0.0
    end_s: float = 0.0


@dataclass(frozen=True, slots=True)
class ReplicaTable:
    """The times of a replica: of a step by batch, of prompts, and its pool in tokens.

    `prompt_decode_speed` is the speed of decoding while a prompt passes, `answer_share` the share of an answer for
    which room is kept when a request is admitted, `ttft_factor` a learned factor on first tokens.
    """

    base_steps_s: tuple[float, ...]
    step_growths_s: tuple[float, ...]
    step_times: StepTimes
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
    """Tabulate a replica of so many slots and tokens of pool.

    Sliding layers and correction of the context are those of a mean request, `context_tokens` tokens.
    """
    fixed_attention_s = attention_time(
        times, context_tokens
    ) - times.kv_full_s * min(context_tokens, times.sparse_tokens)
    base_steps_s = [0.0]
    step_growths_s = [0.0]
    for batch_size in range(1, slot_count + 1):
        base_steps_s.append(decode_time(times, batch_size, fixed_attention_s))
        step_growths_s.append(
            max(max(batch_size / times.pp, 1.0) / times.adp, 1.0)
            / batch_size
            * times.kv_full_s
            / times.draft.tokens_per_step
        )
    return ReplicaTable(
        base_steps_s=tuple(base_steps_s),
        step_growths_s=tuple(step_growths_s),
        step_times=times,
        coefficients=coefficients,
        pool_tokens=pool_tokens,
        answer_share=coefficients.answer_share,
        slot_count=slot_count,
        prompt_decode_speed=max(
            MIN_DECODE_SPEED, 1 - coefficients.interference
        ),
    )


def tabulate_replica(replica: Replica) -> ReplicaTable:
    """Tabulate a replica under its load, as far as a benchmark corrected it."""
    context_tokens = replica.load.decode_context_tokens
    token_bytes = (
        memory.kv_bytes(replica.llm, replica.layout, context_tokens)
        / context_tokens
    )
    pool_tokens = replica.startup_memory.kv_gib * memory.GIB / token_bytes
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


@dataclass(slots=True)
class ReplicaSimulation:
    """One replica at work."""

    table: ReplicaTable
    queue: deque[Request] = field(default_factory=deque)
    running: list[tuple[float, int, Request]] = field(default_factory=list)
    finished: list[Request] = field(default_factory=list)
    now_s: float = 0.0
    clock_tokens: float = (
        0.0  # tokens that a request would have got since the start
    )
    context_tokens: float = 0.0
    reserved_tokens: float = 0.0
    prefilling: Request | None = None
    prompt_event_s: float = NEVER
    start_count: int = 0
    admission_closed: bool = (
        False  # after a restart nobody is admitted before somebody ends
    )

    @property
    def request_count(self) -> int:
        """Requests that are here, waiting or not."""
        return (
            len(self.queue) + len(self.running) + (self.prefilling is not None)
        )

    def advance(self, until_s: float) -> float:
        """Play on to a time; return when something happens next."""
        while True:
            if self.prefilling is None:
                self._begin_prompt()
            completion_s, overflow_s = self._next_events()
            next_event_s = min(completion_s, self.prompt_event_s, overflow_s)
            if next_event_s > until_s or next_event_s == NEVER:
                return next_event_s
            if overflow_s < completion_s and overflow_s < self.prompt_event_s:
                self._restart_newest(overflow_s)
            elif completion_s < self.prompt_event_s:
                self._finish_request(completion_s)
            else:
                self._finish_prompt()

    def _begin_prompt(self) -> None:
        """Start the next prompt, or note when it is due."""
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
        if request.due_s > self.now_s:
            self.prompt_event_s = request.due_s
            return
        needed_tokens = (
            request.prompt_tokens + table.answer_share * request.answer_tokens
        )
        if (
            self.reserved_tokens + needed_tokens <= table.pool_tokens
            or not batch_size
        ):
            self.queue.popleft()
            self.reserved_tokens += needed_tokens
            request.prompt_start_s = self.now_s
            request.step_s = (
                table.base_steps_s[batch_size or 1]
                + table.step_growths_s[batch_size or 1] * self.context_tokens
            )
            self.prefilling = request
            self.prompt_event_s = self.now_s + prompt_busy_time(
                table.step_times, request.prompt_tokens
            )

    def _next_events(self) -> tuple[float, float]:
        """When the next request ends, and when the pool overflows if that is earlier."""
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
        decoded_tokens = max(0.0, self.running[0][0] - self.clock_tokens)
        completion_s = (
            self.now_s
            + decoded_tokens
            * (step_s + step_growth_s * batch_size * decoded_tokens / 2)
            / decode_speed
        )
        free_tokens = table.pool_tokens - self.context_tokens
        if batch_size == 1 or decoded_tokens * batch_size <= free_tokens:
            return completion_s, NEVER  # somebody ends first
        decoded_tokens = max(0.0, free_tokens / batch_size)
        return completion_s, self.now_s + decoded_tokens * (
            step_s + step_growth_s * batch_size * decoded_tokens / 2
        ) / decode_speed

    def _pass_time(self, event_s: float) -> None:
        """Let time pass without an event: tokens from the quadratic of _ahead."""
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
        request.first_token_s = request.first_token_s or self.now_s
        self.start_count += 1
        heappush(
            self.running,
            (
                self.clock_tokens + request.answer_tokens - 1,
                self.start_count,
                request,
            ),
        )
        self.context_tokens += request.prompt_tokens

    def _restart_newest(self, event_s: float) -> None:
        """Send the newest request back: it starts again, with its first token already sent."""
        self._pass_time(event_s)
        newest_entry = max(self.running, key=lambda entry: entry[1])
        self.running.remove(newest_entry)
        heapify(self.running)
        request = newest_entry[2]
        self.reserved_tokens -= (
            request.prompt_tokens
            + self.table.answer_share * request.answer_tokens
        )
        self.context_tokens -= (
            request.prompt_tokens
            + request.answer_tokens
            - 1
            - (newest_entry[0] - self.clock_tokens)
        )
        self.queue.appendleft(request)
        self.admission_closed = self.prefilling is None

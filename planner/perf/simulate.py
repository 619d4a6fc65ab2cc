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

from planner.perf import memory
from planner.perf.correction import BATCH
from planner.perf.physics import attention, decode, prompt

if TYPE_CHECKING:
    from planner.perf.coefficient import Coefficients
    from planner.perf.physics import Rates
    from planner.perf.serve import Replica

NEVER: Final = math.inf
CRAWL: Final = (
    1e-3  # speed of decoding that is left when a prompt takes everything
)


@dataclass(slots=True)
class Request:
    """One request: when it is due, its lengths, and when its prompt began and its answer ended."""

    due: float
    prompt: int
    answer: int
    pace: float = 0.0
    begun: float = 0.0
    first: float = 0.0
    end: float = 0.0


@dataclass(frozen=True, slots=True)
class Machine:
    """The times of a replica: of a step by batch, of prompts, and its pool in tokens.

    `slowed` is the speed of decoding while a prompt passes, `reserved` the share of an answer for
    which room is kept when a request is admitted, `starts` a learned factor on first tokens.
    """

    base: tuple[float, ...]
    growth: tuple[float, ...]
    rates: Rates
    coefficients: Coefficients
    pool: float
    reserved: float
    slots: int
    slowed: float
    starts: float = 1.0


def machine(
    times: Rates,
    coefficients: Coefficients,
    slot_count: int,
    pool_tokens: float,
    context_tokens: float,
) -> Machine:
    """Tabulate a replica of so many slots and tokens of pool.

    Sliding layers and correction of the context are those of a mean request, `held` tokens.
    """
    fixed_attention_s = attention(times, context_tokens) - times.kv_full * min(
        context_tokens, times.sparse
    )
    base_steps_s, step_growths_s = [0.0], [0.0]
    for batch_size in range(1, slot_count + 1):
        base_steps_s.append(decode(times, batch_size, fixed_attention_s))
        step_growths_s.append(
            max(max(batch_size / times.pp, 1.0) / times.adp, 1.0)
            / batch_size
            * times.kv_full
            / times.draft.gained
        )
    return Machine(
        base=tuple(base_steps_s),
        growth=tuple(step_growths_s),
        rates=times,
        coefficients=coefficients,
        pool=pool_tokens,
        reserved=coefficients.answer_share,
        slots=slot_count,
        slowed=max(CRAWL, 1 - coefficients.interference),
    )


def of_replica(replica: Replica) -> Machine:
    """Tabulate a replica under its load, as far as a benchmark corrected it."""
    context_tokens = replica.load.held
    token_bytes = (
        memory.kv(replica.llm, replica.layout, context_tokens) / context_tokens
    )
    pool_tokens = replica.memory.kv_gib * memory.GIB / token_bytes
    replica_table = machine(
        replica.rates,
        replica.coefficients,
        replica.max_batch,
        pool_tokens,
        context_tokens,
    )
    if replica.learned is None:
        return replica_table
    tpot_factors = [
        1.0,
        *(
            replica.learned.factor("tpot", batch_size, context_tokens)
            for batch_size in range(1, replica_table.slots + 1)
        ),
    ]
    return replace(
        replica_table,
        base=tuple(
            step_s * tpot_factor
            for step_s, tpot_factor in zip(
                replica_table.base, tpot_factors, strict=True
            )
        ),
        growth=tuple(
            step_s * tpot_factor
            for step_s, tpot_factor in zip(
                replica_table.growth, tpot_factors, strict=True
            )
        ),
        starts=replica.learned.factor("ttft", BATCH, context_tokens),
    )


@dataclass(slots=True)
class Lane:
    """One replica at work."""

    machine: Machine
    queue: deque[Request] = field(default_factory=deque)
    running: list[tuple[float, int, Request]] = field(default_factory=list)
    done: list[Request] = field(default_factory=list)
    now: float = 0.0
    clock: float = 0.0  # tokens that a request would have got since the start
    context: float = 0.0
    kept: float = 0.0
    prompting: Request | None = None
    until: float = NEVER
    count: int = 0
    hold: bool = (
        False  # after a restart nobody is admitted before somebody ends
    )

    @property
    def load(self) -> int:
        """Requests that are here, waiting or not."""
        return (
            len(self.queue) + len(self.running) + (self.prompting is not None)
        )

    def advance(self, until_s: float) -> float:
        """Play on to a time; return when something happens next."""
        while True:
            if self.prompting is None:
                self._begin()
            completion_s, overflow_s = self._ahead()
            next_event_s = min(completion_s, self.until, overflow_s)
            if next_event_s > until_s or next_event_s == NEVER:
                return next_event_s
            if overflow_s < completion_s and overflow_s < self.until:
                self._restart(overflow_s)
            elif completion_s < self.until:
                self._complete(completion_s)
            else:
                self._prompted()

    def _begin(self) -> None:
        """Start the next prompt, or note when it is due."""
        table, batch_size = self.machine, len(self.running)
        self.until = NEVER
        if not self.queue or batch_size >= table.slots or self.hold:
            return
        request = self.queue[0]
        if request.due > self.now:
            self.until = request.due
            return
        needed_tokens = request.prompt + table.reserved * request.answer
        if self.kept + needed_tokens <= table.pool or not batch_size:
            self.queue.popleft()
            self.kept += needed_tokens
            request.begun = self.now
            request.pace = (
                table.base[batch_size or 1]
                + table.growth[batch_size or 1] * self.context
            )
            self.prompting = request
            self.until = self.now + prompt(table.rates, request.prompt)

    def _ahead(self) -> tuple[float, float]:
        """When the next request ends, and when the pool overflows if that is earlier."""
        batch_size = len(self.running)
        if not batch_size:
            return NEVER, NEVER
        table = self.machine
        step_growth_s = table.growth[batch_size]
        step_s = table.base[batch_size] + step_growth_s * self.context
        decode_speed = 1.0 if self.prompting is None else table.slowed
        decoded_tokens = max(0.0, self.running[0][0] - self.clock)
        completion_s = (
            self.now
            + decoded_tokens
            * (step_s + step_growth_s * batch_size * decoded_tokens / 2)
            / decode_speed
        )
        free_tokens = table.pool - self.context
        if batch_size == 1 or decoded_tokens * batch_size <= free_tokens:
            return completion_s, NEVER  # somebody ends first
        decoded_tokens = max(0.0, free_tokens / batch_size)
        return completion_s, self.now + decoded_tokens * (
            step_s + step_growth_s * batch_size * decoded_tokens / 2
        ) / decode_speed

    def _pass(self, event_s: float) -> None:
        """Let time pass without an event: tokens from the quadratic of _ahead."""
        batch_size = len(self.running)
        if batch_size:
            table = self.machine
            decode_s = (event_s - self.now) * (
                1.0 if self.prompting is None else table.slowed
            )
            step_growth_s = table.growth[batch_size]
            step_s = table.base[batch_size] + step_growth_s * self.context
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
            self.clock += decoded_tokens
            self.context += batch_size * decoded_tokens
        self.now = event_s

    def _complete(self, event_s: float) -> None:
        end_clock_tokens, _, request = self.running[0]
        self.context += len(self.running) * (end_clock_tokens - self.clock)
        self.clock, self.now = end_clock_tokens, event_s
        heappop(self.running)
        self.context = max(
            0.0, self.context - request.prompt - request.answer + 1
        )
        self.kept -= request.prompt + self.machine.reserved * request.answer
        self.hold = False
        request.end = event_s
        self.done.append(request)

    def _prompted(self) -> None:
        self._pass(self.until)
        request, self.prompting = self.prompting, None
        if request is None:
            return  # the next request is due now
        request.first = request.first or self.now
        self.count += 1
        heappush(
            self.running, (self.clock + request.answer - 1, self.count, request)
        )
        self.context += request.prompt

    def _restart(self, event_s: float) -> None:
        """Send the newest request back: it starts again, with its first token already sent."""
        self._pass(event_s)
        newest_entry = max(self.running, key=lambda entry: entry[1])
        self.running.remove(newest_entry)
        heapify(self.running)
        request = newest_entry[2]
        self.kept -= request.prompt + self.machine.reserved * request.answer
        self.context -= (
            request.prompt + request.answer - 1 - (newest_entry[0] - self.clock)
        )
        self.queue.appendleft(request)
        self.hold = self.prompting is None

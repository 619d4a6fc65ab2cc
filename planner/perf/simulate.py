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
    r: Rates, c: Coefficients, slots: int, pool: float, held: float
) -> Machine:
    """Tabulate a replica of so many slots and tokens of pool.

    Sliding layers and correction of the context are those of a mean request, `held` tokens.
    """
    flat = attention(r, held) - r.kv_full * min(held, r.sparse)
    base, growth = [0.0], [0.0]
    for n in range(1, slots + 1):
        base.append(decode(r, n, flat))
        growth.append(
            max(max(n / r.pp, 1.0) / r.adp, 1.0)
            / n
            * r.kv_full
            / r.draft.gained
        )
    return Machine(
        base=tuple(base),
        growth=tuple(growth),
        rates=r,
        coefficients=c,
        pool=pool,
        reserved=c.answer_share,
        slots=slots,
        slowed=max(CRAWL, 1 - c.interference),
    )


def of_replica(replica: Replica) -> Machine:
    """Tabulate a replica under its load, as far as a benchmark corrected it."""
    held = replica.load.held
    each = memory.kv(replica.llm, replica.layout, held) / held
    pool = replica.memory.kv_gib * memory.GIB / each
    found = machine(
        replica.rates, replica.coefficients, replica.max_batch, pool, held
    )
    if replica.learned is None:
        return found
    factors = [
        1.0,
        *(
            replica.learned.factor("tpot", n, held)
            for n in range(1, found.slots + 1)
        ),
    ]
    return replace(
        found,
        base=tuple(x * f for x, f in zip(found.base, factors, strict=True)),
        growth=tuple(x * f for x, f in zip(found.growth, factors, strict=True)),
        starts=replica.learned.factor("ttft", BATCH, held),
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

    def advance(self, to: float) -> float:
        """Play on to a time; return when something happens next."""
        while True:
            if self.prompting is None:
                self._begin()
            ends, full = self._ahead()
            soonest = min(ends, self.until, full)
            if soonest > to or soonest == NEVER:
                return soonest
            if full < ends and full < self.until:
                self._restart(full)
            elif ends < self.until:
                self._complete(ends)
            else:
                self._prompted()

    def _begin(self) -> None:
        """Start the next prompt, or note when it is due."""
        one, n = self.machine, len(self.running)
        self.until = NEVER
        if not self.queue or n >= one.slots or self.hold:
            return
        request = self.queue[0]
        if request.due > self.now:
            self.until = request.due
            return
        needs = request.prompt + one.reserved * request.answer
        if self.kept + needs <= one.pool or not n:
            self.queue.popleft()
            self.kept += needs
            request.begun = self.now
            request.pace = one.base[n or 1] + one.growth[n or 1] * self.context
            self.prompting = request
            self.until = self.now + prompt(one.rates, request.prompt)

    def _ahead(self) -> tuple[float, float]:
        """When the next request ends, and when the pool overflows if that is earlier."""
        n = len(self.running)
        if not n:
            return NEVER, NEVER
        one = self.machine
        growth = one.growth[n]
        step = one.base[n] + growth * self.context
        speed = 1.0 if self.prompting is None else one.slowed
        tokens = max(0.0, self.running[0][0] - self.clock)
        ends = self.now + tokens * (step + growth * n * tokens / 2) / speed
        room = one.pool - self.context
        if n == 1 or tokens * n <= room:
            return ends, NEVER  # somebody ends first
        tokens = max(0.0, room / n)
        return ends, self.now + tokens * (
            step + growth * n * tokens / 2
        ) / speed

    def _pass(self, to: float) -> None:
        """Let time pass without an event: tokens from the quadratic of _ahead."""
        n = len(self.running)
        if n:
            one = self.machine
            worth = (to - self.now) * (
                1.0 if self.prompting is None else one.slowed
            )
            growth = one.growth[n]
            step = one.base[n] + growth * self.context
            tokens = (
                2
                * worth
                / (step + math.sqrt(step * step + 2 * growth * n * worth))
            )
            self.clock += tokens
            self.context += n * tokens
        self.now = to

    def _complete(self, at: float) -> None:
        end, _, request = self.running[0]
        self.context += len(self.running) * (end - self.clock)
        self.clock, self.now = end, at
        heappop(self.running)
        self.context = max(
            0.0, self.context - request.prompt - request.answer + 1
        )
        self.kept -= request.prompt + self.machine.reserved * request.answer
        self.hold = False
        request.end = at
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

    def _restart(self, at: float) -> None:
        """Send the newest request back: it starts again, with its first token already sent."""
        self._pass(at)
        newest = max(self.running, key=lambda entry: entry[1])
        self.running.remove(newest)
        heapify(self.running)
        request = newest[2]
        self.kept -= request.prompt + self.machine.reserved * request.answer
        self.context -= (
            request.prompt + request.answer - 1 - (newest[0] - self.clock)
        )
        self.queue.appendleft(request)
        self.hold = self.prompting is None

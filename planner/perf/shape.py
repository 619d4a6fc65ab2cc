"""Throughput and mean latency of a replica in the usual ways of loading it.

As in physics, every number may be an array. Lengths in tokens, times in seconds, rates of one
replica.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from planner.perf.memory import GIB
from planner.perf.physics import attention, decode, least, most

if TYPE_CHECKING:
    from planner.perf.coefficient import Coefficients
    from planner.perf.physics import Rates
    from planner.perf.terms import Terms

TURNS: Final = 4  # of the fixed point; the error falls about tenfold in each
HALVINGS: Final = 14
BUSIEST: Final = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A replica and what it is asked: mean lengths, and how many requests it has room for.

    `busy` is the time for which a prompt holds the server of prompts, `alone` its time on an
    idle one, `share` the part of it that decoding requests wait for. `serial` is 1, or 0 when
    workers of their own take the prompts while this replica decodes.
    """

    rates: Rates
    coefficients: Coefficients
    prompt: float
    answer: float
    room: float
    busy: float
    alone: float
    share: float
    serial: float = 1.0

    @property
    def held(self) -> float:
        """Seconds of attention of a mean request; long answers are in flight for longer.

        Context: prompt + E[answer^2] / (2 E[answer]) = prompt + answer / 2 * (1 + variation^2).
        """
        longer = 1 + self.coefficients.answer_variance
        return attention(self.rates, self.prompt + self.answer / 2 * longer)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mean:
    """Mean time to first token and per output token, and requests in flight.

    `queue` is the mean wait of a prompt for earlier ones.
    """

    ttft: float
    tpot: float
    batch: float
    queue: float


def fitting(
    t: Terms, c: Coefficients, kept: float, prompt: float, answer: float
) -> float:
    """How many requests the memory of one replica holds; may be a fraction.

    (share * memory - weights - kept GiB) / KV bytes of what is reserved for a request.
    """
    pool = c.memory_share * t.memory - t.weights - kept * GIB
    held = prompt + c.answer_share * answer
    each = (
        held * t.kv_full + least(held, t.window) * t.kv_window
    ) / t.pp + t.kv_state
    return most(pool, 0.0) / most(each, 1.0) * t.adp


def handover(t: Terms, c: Coefficients, prompt: float) -> float:
    """Seconds to send the KV cache of a prompt from its prefill worker over the network."""
    held = (
        prompt * t.kv_full + least(prompt, t.window) * t.kv_window + t.kv_state
    )
    return held / (t.network_share * c.network_bandwidth)


def pace(s: Server, batch: float) -> float:
    """Seconds per output token with `batch` requests in flight and prompts coming in between."""
    return decode(s.rates, batch, s.held) + s.share * batch * s.busy / s.answer


def offline(s: Server) -> float:
    """Output tokens a second of a replica that is kept full: as fast as its slower half."""
    cycle = (
        s.answer * decode(s.rates, s.room, s.held) + s.serial * s.room * s.busy
    )
    return (
        least(s.room * s.answer / cycle, s.answer / s.busy)
        / s.coefficients.run_time
    )


def static(s: Server, batch: float) -> float:
    """Output tokens a second when `batch` prompts start together and answer to the end."""
    step = decode(s.rates, batch, attention(s.rates, s.prompt + s.answer / 2))
    return batch * s.answer / (batch * s.busy + (s.answer - 1) * step)


def together(s: Server, batch: float) -> float:
    """Seconds to the first token when `batch` prompts start together."""
    return s.alone + most(batch - 1, 0.0) * s.busy


def closed(s: Server, users: float) -> Mean:
    """Mean latency with `users` requests always under way.

    Prompts pass one server and decode in between: mean-value analysis (Schweitzer) with the
    queue weighted, solved together with the batch. Who finds no slot waits for a whole request.
    """
    c, active, held = s.coefficients, least(users, s.room), s.held
    batch = active
    stay = s.busy
    for _ in range(TURNS):
        think = s.answer * decode(s.rates, batch, held)
        less = think - s.busy - s.busy * c.prompt_queue * (active - 1)
        stay = (-less + (less * less + 4 * s.busy * think) ** 0.5) / 2
        spent = think + s.share * batch * s.busy
        batch = most(active * spent / (spent + stay), least(active, 1.0))
    tpot = decode(s.rates, batch, held) + s.share * batch * s.busy / s.answer
    waiting = most(users / s.room - 1, 0.0) * (s.answer * tpot + stay)
    begun = (
        c.prompt_share * (s.alone + stay - s.busy) + c.wave * batch * s.busy / 2
    )
    ttft = c.first_token + begun + c.step_wait * tpot + waiting
    return Mean(ttft=ttft, tpot=tpot, batch=batch, queue=stay - s.busy)


def arriving(s: Server, rate: float, tpot: float) -> Mean:
    """Mean latency at a rate whose time per token is known: M/D/1 for the prompts."""
    c = s.coefficients
    busy = least(rate * s.busy, BUSIEST)
    queue = s.busy * busy / (2 * (1 - busy))
    ttft = c.first_token + c.prompt_share * s.alone + c.step_wait * tpot + queue
    return Mean(ttft=ttft, tpot=tpot, batch=rate * s.answer * tpot, queue=queue)


def poisson(s: Server, rate: float) -> Mean:
    """Mean latency with Poisson arrivals at `rate`: the batch is rate * answer * time per token.

    That equation is solved by bisection below the room. A batch at the room tells that requests
    come faster than they leave, and queue without end.
    """
    low, high, slower = 0.0, s.room, s.coefficients.server_time
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        if rate * s.answer * slower * pace(s, middle) <= middle:
            high = middle
        else:
            low = middle
    return arriving(s, rate, slower * pace(s, high))

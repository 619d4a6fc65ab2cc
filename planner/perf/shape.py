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
        length_factor = 1 + self.coefficients.answer_variance
        return attention(
            self.rates, self.prompt + self.answer / 2 * length_factor
        )


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
    profile: Terms,
    coefficients: Coefficients,
    overhead_gib: float,
    prompt_tokens: float,
    answer_tokens: float,
) -> float:
    """How many requests the memory of one replica holds; may be a fraction.

    (share * memory - weights - kept GiB) / KV bytes of what is reserved for a request.
    """
    pool_bytes = (
        coefficients.memory_share * profile.memory
        - profile.weights
        - overhead_gib * GIB
    )
    reserved_tokens = prompt_tokens + coefficients.answer_share * answer_tokens
    request_bytes = (
        reserved_tokens * profile.kv_full
        + least(reserved_tokens, profile.window) * profile.kv_window
    ) / profile.pp + profile.kv_state
    return most(pool_bytes, 0.0) / most(request_bytes, 1.0) * profile.adp


def handover(
    profile: Terms, coefficients: Coefficients, prompt_tokens: float
) -> float:
    """Seconds to send the KV cache of a prompt from its prefill worker over the network."""
    cache_bytes = (
        prompt_tokens * profile.kv_full
        + least(prompt_tokens, profile.window) * profile.kv_window
        + profile.kv_state
    )
    return cache_bytes / (
        profile.network_share * coefficients.network_bandwidth
    )


def pace(rates: Server, batch_size: float) -> float:
    """Seconds per output token with `batch` requests in flight and prompts coming in between."""
    return (
        decode(rates.rates, batch_size, rates.held)
        + rates.share * batch_size * rates.busy / rates.answer
    )


def offline(rates: Server) -> float:
    """Output tokens a second of a replica that is kept full: as fast as its slower half."""
    cycle_s = (
        rates.answer * decode(rates.rates, rates.room, rates.held)
        + rates.serial * rates.room * rates.busy
    )
    return (
        least(rates.room * rates.answer / cycle_s, rates.answer / rates.busy)
        / rates.coefficients.run_time
    )


def static(rates: Server, batch_size: float) -> float:
    """Output tokens a second when `batch` prompts start together and answer to the end."""
    step_s = decode(
        rates.rates,
        batch_size,
        attention(rates.rates, rates.prompt + rates.answer / 2),
    )
    return (
        batch_size
        * rates.answer
        / (batch_size * rates.busy + (rates.answer - 1) * step_s)
    )


def together(rates: Server, batch_size: float) -> float:
    """Seconds to the first token when `batch` prompts start together."""
    return rates.alone + most(batch_size - 1, 0.0) * rates.busy


def closed(rates: Server, user_count: float) -> Mean:
    """Mean latency with `users` requests always under way.

    Prompts pass one server and decode in between: mean-value analysis (Schweitzer) with the
    queue weighted, solved together with the batch. Who finds no slot waits for a whole request.
    """
    coefficients, active_requests, attention_s = (
        rates.coefficients,
        least(user_count, rates.room),
        rates.held,
    )
    batch_size = active_requests
    prompt_stay_s = rates.busy
    for _ in range(TURNS):
        decode_s = rates.answer * decode(rates.rates, batch_size, attention_s)
        linear_term_s = (
            decode_s
            - rates.busy
            - rates.busy * coefficients.prompt_queue * (active_requests - 1)
        )
        prompt_stay_s = (
            -linear_term_s
            + (linear_term_s * linear_term_s + 4 * rates.busy * decode_s) ** 0.5
        ) / 2
        answer_s = decode_s + rates.share * batch_size * rates.busy
        batch_size = most(
            active_requests * answer_s / (answer_s + prompt_stay_s),
            least(active_requests, 1.0),
        )
    tpot_s = (
        decode(rates.rates, batch_size, attention_s)
        + rates.share * batch_size * rates.busy / rates.answer
    )
    slot_wait_s = most(user_count / rates.room - 1, 0.0) * (
        rates.answer * tpot_s + prompt_stay_s
    )
    prompt_delay_s = (
        coefficients.prompt_share * (rates.alone + prompt_stay_s - rates.busy)
        + coefficients.wave * batch_size * rates.busy / 2
    )
    ttft_s = (
        coefficients.first_token
        + prompt_delay_s
        + coefficients.step_wait * tpot_s
        + slot_wait_s
    )
    return Mean(
        ttft=ttft_s,
        tpot=tpot_s,
        batch=batch_size,
        queue=prompt_stay_s - rates.busy,
    )


def arriving(rates: Server, rate_per_s: float, tpot_s: float) -> Mean:
    """Mean latency at a rate whose time per token is known: M/D/1 for the prompts."""
    coefficients = rates.coefficients
    utilization = least(rate_per_s * rates.busy, BUSIEST)
    queue_s = rates.busy * utilization / (2 * (1 - utilization))
    ttft_s = (
        coefficients.first_token
        + coefficients.prompt_share * rates.alone
        + coefficients.step_wait * tpot_s
        + queue_s
    )
    return Mean(
        ttft=ttft_s,
        tpot=tpot_s,
        batch=rate_per_s * rates.answer * tpot_s,
        queue=queue_s,
    )


def poisson(rates: Server, rate_per_s: float) -> Mean:
    """Mean latency with Poisson arrivals at `rate`: the batch is rate * answer * time per token.

    That equation is solved by bisection below the room. A batch at the room tells that requests
    come faster than they leave, and queue without end.
    """
    lower_batch, upper_batch, slowdown = (
        0.0,
        rates.room,
        rates.coefficients.server_time,
    )
    for _ in range(HALVINGS):
        middle_batch = (lower_batch + upper_batch) / 2
        if (
            rate_per_s * rates.answer * slowdown * pace(rates, middle_batch)
            <= middle_batch
        ):
            upper_batch = middle_batch
        else:
            lower_batch = middle_batch
    return arriving(rates, rate_per_s, slowdown * pace(rates, upper_batch))

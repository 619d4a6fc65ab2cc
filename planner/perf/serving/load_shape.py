"""Throughput and mean latency of a replica in the usual ways of loading it.

As in physics, every number may be an array. Lengths in tokens, times in seconds, rates of one
replica.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from planner.perf.common.memory import GIB
from planner.perf.serving.step import (
    attention_time,
    decode_time,
    larger,
    smaller,
)

if TYPE_CHECKING:
    from planner.perf.serving.coefficients import Coefficients
    from planner.perf.serving.step import StepTimes
    from planner.perf.serving.work import ReplicaProfile

FIXED_POINT_STEPS: Final = (
    4  # of the fixed point; the error falls about tenfold in each
)
BISECTION_STEPS: Final = 14
MAX_UTILIZATION: Final = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaRates:
    """A replica and what it is asked: mean lengths, and how many requests it has room for.

    `prompt_busy_s` is the time for which a prompt holds the server of prompts, `idle_prompt_s` its time on an
    idle one, `interference_share` the part of it that decoding requests wait for. `serial_share` is 1, or 0 when
    workers of their own take the prompts while this replica decodes.
    """

    step_times: StepTimes
    coefficients: Coefficients
    prompt_tokens: float
    answer_tokens: float
    max_batch: float
    prompt_busy_s: float
    idle_prompt_s: float
    interference_share: float
    serial_share: float = 1.0

    @property
    def attention_s(self) -> float:
        """Seconds of attention of a mean request; long answers are in flight for longer.

        Context: prompt + E[answer^2] / (2 E[answer]) = prompt + answer / 2 * (1 + variation^2).
        """
        length_factor = 1 + self.coefficients.answer_variance
        return attention_time(
            self.step_times,
            self.prompt_tokens + self.answer_tokens / 2 * length_factor,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class MeanLatency:
    """Mean time to first token and per output token, and requests in flight.

    `queue_s` is the mean wait of a prompt for earlier ones.
    """

    ttft_s: float
    tpot_s: float
    batch_size: float
    queue_s: float


def memory_capacity(
    profile: ReplicaProfile,
    coefficients: Coefficients,
    overhead_gib: float,
    prompt_tokens: float,
    answer_tokens: float,
) -> float:
    """How many requests the memory of one replica holds; may be a fraction.

    (share * memory - weights - kept GiB) / KV bytes of what is reserved for a request.
    """
    pool_bytes = (
        coefficients.memory_share * profile.memory_bytes
        - profile.weight_bytes
        - overhead_gib * GIB
    )
    reserved_tokens = prompt_tokens + coefficients.answer_share * answer_tokens
    request_bytes = (
        reserved_tokens * profile.kv_full_bytes
        + smaller(reserved_tokens, profile.window_tokens)
        * profile.kv_window_bytes
    ) / profile.pp + profile.kv_state_bytes
    return larger(pool_bytes, 0.0) / larger(request_bytes, 1.0) * profile.adp


def kv_transfer_time(
    profile: ReplicaProfile, coefficients: Coefficients, prompt_tokens: float
) -> float:
    """Seconds to send the KV cache of a prompt from its prefill worker over the network."""
    cache_bytes = (
        prompt_tokens * profile.kv_full_bytes
        + smaller(prompt_tokens, profile.window_tokens)
        * profile.kv_window_bytes
        + profile.kv_state_bytes
    )
    return cache_bytes / (
        profile.nic_share_bytes_per_s * coefficients.network_bandwidth
    )


def tpot_at_batch(rates: ReplicaRates, batch_size: float) -> float:
    """Seconds per output token with `batch_size` requests in flight and prompts coming in between."""
    return (
        decode_time(rates.step_times, batch_size, rates.attention_s)
        + rates.interference_share
        * batch_size
        * rates.prompt_busy_s
        / rates.answer_tokens
    )


def offline_throughput(rates: ReplicaRates) -> float:
    """Output tokens a second of a replica that is kept full: as fast as its slower half."""
    cycle_s = (
        rates.answer_tokens
        * decode_time(rates.step_times, rates.max_batch, rates.attention_s)
        + rates.serial_share * rates.max_batch * rates.prompt_busy_s
    )
    return (
        smaller(
            rates.max_batch * rates.answer_tokens / cycle_s,
            rates.answer_tokens / rates.prompt_busy_s,
        )
        / rates.coefficients.run_time
    )


def static_throughput(rates: ReplicaRates, batch_size: float) -> float:
    """Output tokens a second when `batch_size` prompts start together and answer to the end."""
    step_s = decode_time(
        rates.step_times,
        batch_size,
        attention_time(
            rates.step_times, rates.prompt_tokens + rates.answer_tokens / 2
        ),
    )
    return (
        batch_size
        * rates.answer_tokens
        / (
            batch_size * rates.prompt_busy_s
            + (rates.answer_tokens - 1) * step_s
        )
    )


def static_ttft(rates: ReplicaRates, batch_size: float) -> float:
    """Seconds to the first token when `batch_size` prompts start together."""
    return (
        rates.idle_prompt_s + larger(batch_size - 1, 0.0) * rates.prompt_busy_s
    )


def closed_latency(rates: ReplicaRates, user_count: float) -> MeanLatency:
    """Mean latency with `user_count` requests always under way.

    Prompts pass one server and decode in between: mean-value analysis (Schweitzer) with the
    queue weighted, solved together with the batch. Who finds no slot waits for a whole request.
    """
    coefficients = rates.coefficients
    active_requests = smaller(user_count, rates.max_batch)
    attention_s = rates.attention_s
    batch_size = active_requests
    prompt_stay_s = rates.prompt_busy_s
    for _ in range(FIXED_POINT_STEPS):
        decode_s = rates.answer_tokens * decode_time(
            rates.step_times, batch_size, attention_s
        )
        linear_term_s = (
            decode_s
            - rates.prompt_busy_s
            - rates.prompt_busy_s
            * coefficients.prompt_queue
            * (active_requests - 1)
        )
        prompt_stay_s = (
            -linear_term_s
            + (
                linear_term_s * linear_term_s
                + 4 * rates.prompt_busy_s * decode_s
            )
            ** 0.5
        ) / 2
        answer_s = (
            decode_s
            + rates.interference_share * batch_size * rates.prompt_busy_s
        )
        batch_size = larger(
            active_requests * answer_s / (answer_s + prompt_stay_s),
            smaller(active_requests, 1.0),
        )
    tpot_s = (
        decode_time(rates.step_times, batch_size, attention_s)
        + rates.interference_share
        * batch_size
        * rates.prompt_busy_s
        / rates.answer_tokens
    )
    slot_wait_s = larger(user_count / rates.max_batch - 1, 0.0) * (
        rates.answer_tokens * tpot_s + prompt_stay_s
    )
    prompt_delay_s = (
        coefficients.prompt_share
        * (rates.idle_prompt_s + prompt_stay_s - rates.prompt_busy_s)
        + coefficients.wave * batch_size * rates.prompt_busy_s / 2
    )
    ttft_s = (
        coefficients.first_token
        + prompt_delay_s
        + coefficients.step_wait * tpot_s
        + slot_wait_s
    )
    return MeanLatency(
        ttft_s=ttft_s,
        tpot_s=tpot_s,
        batch_size=batch_size,
        queue_s=prompt_stay_s - rates.prompt_busy_s,
    )


def open_latency(
    rates: ReplicaRates, rate_per_s: float, tpot_s: float
) -> MeanLatency:
    """Mean latency at a rate whose time per token is known: M/D/1 for the prompts."""
    coefficients = rates.coefficients
    utilization = smaller(rate_per_s * rates.prompt_busy_s, MAX_UTILIZATION)
    queue_s = rates.prompt_busy_s * utilization / (2 * (1 - utilization))
    ttft_s = (
        coefficients.first_token
        + coefficients.prompt_share * rates.idle_prompt_s
        + coefficients.step_wait * tpot_s
        + queue_s
    )
    return MeanLatency(
        ttft_s=ttft_s,
        tpot_s=tpot_s,
        batch_size=rate_per_s * rates.answer_tokens * tpot_s,
        queue_s=queue_s,
    )


def poisson_latency(rates: ReplicaRates, rate_per_s: float) -> MeanLatency:
    """Mean latency with Poisson arrivals at `rate_per_s`: the batch is rate * answer * time per token.

    That equation is solved by bisection below the room. A batch at the room tells that requests
    come faster than they leave, and queue without end.
    """
    lower_batch = 0.0
    upper_batch = rates.max_batch
    slowdown = rates.coefficients.server_time
    for _ in range(BISECTION_STEPS):
        middle_batch = (lower_batch + upper_batch) / 2
        if (
            rate_per_s
            * rates.answer_tokens
            * slowdown
            * tpot_at_batch(rates, middle_batch)
            <= middle_batch
        ):
            upper_batch = middle_batch
        else:
            lower_batch = middle_batch
    return open_latency(
        rates, rate_per_s, slowdown * tpot_at_batch(rates, upper_batch)
    )

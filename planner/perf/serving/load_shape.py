"""Throughput and mean latency of one replica.

Loads are offline, static batch, closed loop and open.

Every number may be an array with one value for each configuration. Lengths are in tokens,
times in seconds, rates per second of one replica.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from planner.numeric import bisect_up
from planner.perf.serving.step import (
    attention_time,
    decode_time,
    larger,
    smaller,
)
from planner.units import BYTES_PER_GIB

if TYPE_CHECKING:
    from planner.perf.serving.coefficients import Coefficients
    from planner.perf.serving.engine import PoolRule
    from planner.perf.serving.step import StepTimes
    from planner.perf.serving.work import ReplicaProfile

# Iterations of the fixed point; each makes the error about ten times smaller.
FIXED_POINT_STEPS: Final = 4
# Resolution of the batch: max_batch / 2^14.
BISECTION_STEPS: Final = 14
# Limit of rho in queue formulas, which diverge at 1.
MAX_UTILIZATION: Final = 0.95


class TokenCounts(Struct, frozen=True):
    """Mean tokens of a prompt and of an answer."""

    prompt_tokens: float
    answer_tokens: float


class ReplicaRates(Struct, frozen=True, kw_only=True):
    """Times and limits of one replica under a load with given mean lengths.

    step_times          times of the terms of a step
    prompt_tokens       mean prompt length, tokens
    answer_tokens       mean answer length, tokens
    max_batch           most requests in flight; may be a fraction
    prompt_busy_s       time that one prompt occupies the replica, s
    idle_prompt_s       time of one prompt on an idle replica, s
    interference_share  share of `prompt_busy_s` that decoding requests wait for
    serial_share        1, or 0 when separate workers process the prompts
    message_tokens      tokens of one message to the client, 1 when each is sent by itself
    budget_tokens       most tokens of a step; 0 where it is unknown
    first_share         share of the requests of a run that all users send at its start; 0 of a
                        run without end
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
    message_tokens: float = 1.0
    budget_tokens: float = 0.0
    first_share: float = 0.0

    @property
    def prompt_steps(self) -> float:
        """Steps that a prompt takes of those in which others decode, at most 1."""
        # An unknown budget is that of the coefficient: the larger of both where one is 0.
        is_stated = smaller(self.budget_tokens, 1.0)
        budget_tokens = (
            is_stated * self.budget_tokens
            + (1.0 - is_stated) * self.coefficients.prompt_full
        )
        return smaller(self.prompt_tokens / budget_tokens, 1.0)

    def start_wait(self, tpot_s: float, others: float) -> float:
        """Return the seconds before the first token that steps of others and messages take.

            step_wait * tpot * (1 - exp(-others)) + stream_wait * (message - 1) * tpot

        A prompt waits for the running step only if there is one: `others` is the mean number of
        other requests that decode. The first message is sent with all of its tokens.
        """
        busy_share = 1.0 - math.e ** (-others)
        wait_s: float = tpot_s * (
            self.coefficients.step_wait * busy_share
            + self.coefficients.stream_wait * (self.message_tokens - 1.0)
        )
        return wait_s

    @property
    def attention_s(self) -> float:
        """Seconds of attention of one request in a step, at the mean decode context.

        context = prompt + E[answer^2] / (2 E[answer]) = prompt + answer / 2 * (1 + c^2)

        c^2 is the squared coefficient of variation of answers, `answer_variance`.
        """
        length_factor = 1 + self.coefficients.answer_variance
        return attention_time(
            self.step_times,
            self.prompt_tokens + self.answer_tokens / 2 * length_factor,
        )


class BurstRun(Struct, frozen=True, kw_only=True):
    """A run of requests that are all sent at once.

    run_s   time until the last answer ends, s
    ttft_s  mean time to first token, s
    tpot_s  mean time per output token, s
    """

    run_s: float
    ttft_s: float
    tpot_s: float


class MeanLatency(Struct, frozen=True, kw_only=True):
    """Mean latency of a replica and its batch.

    ttft_s      mean time to first token, s
    tpot_s      mean time per output token, s
    batch_size  mean number of decoding requests
    queue_s     mean wait of a prompt for earlier prompts, s
    """

    ttft_s: float
    tpot_s: float
    batch_size: float
    queue_s: float


def memory_capacity(
    profile: ReplicaProfile,
    coefficients: Coefficients,
    pool_rule: PoolRule,
    overhead_gib: float,
    demand: TokenCounts,
) -> float:
    """Return how many requests fit in the memory of one replica; may be a fraction.

        pool / KV bytes of one request * adp
        pool = memory_share * memory - weights - overhead      of the whole memory
               memory_share * (memory - weights - overhead)    of what is free after loading

    The engine reserves KV cache for the prompt and `answer_share` of the answer.
    """
    loaded_bytes = profile.weight_bytes + overhead_gib * BYTES_PER_GIB
    # What is loaded counts in full, or only by the share of it that is not left free.
    loaded_share = (
        1.0 - pool_rule.of_free + pool_rule.of_free * coefficients.memory_share
    )
    pool_bytes = (
        coefficients.memory_share * profile.memory_bytes
        - loaded_share * loaded_bytes
    )
    # Tokens for which the scheduler reserves KV cache at admission.
    reserved_tokens = (
        demand.prompt_tokens + coefficients.answer_share * demand.answer_tokens
    )
    # Sliding-window layers store at most the window, or all tokens.
    kept_tokens = larger(
        profile.window_tokens, pool_rule.whole_windows * reserved_tokens
    )
    request_bytes = (
        reserved_tokens * profile.kv_full_bytes
        + smaller(reserved_tokens, kept_tokens) * profile.kv_window_bytes
    ) / profile.pp + profile.kv_state_bytes
    # Each of the adp attention groups has its own requests.
    return larger(pool_bytes, 0.0) / larger(request_bytes, 1.0) * profile.adp


def kv_transfer_time(
    profile: ReplicaProfile, coefficients: Coefficients, prompt_tokens: float
) -> float:
    """Return the seconds to send the KV cache of a prompt over the network."""
    cache_bytes = (
        prompt_tokens * profile.kv_full_bytes
        + smaller(prompt_tokens, profile.window_tokens)
        * profile.kv_window_bytes
        + profile.kv_state_bytes
    )
    return cache_bytes / (
        # Share of the machine's NICs that one accelerator has.
        profile.nic_share_bytes_per_s * coefficients.network_bandwidth
    )


def tpot_at_batch(rates: ReplicaRates, batch_size: float) -> float:
    """Return the seconds per output token with `batch_size` requests in flight.

        tpot = decode(batch) + interference * batch * prompt_busy / answer

    The second term is the time of the prompts that other requests bring meanwhile.
    """
    return (
        decode_time(rates.step_times, batch_size, rates.attention_s)
        # During one answer each request of the batch is replaced by a prompt.
        + rates.interference_share
        * batch_size
        * rates.prompt_busy_s
        / rates.answer_tokens
    )


def offline_throughput(rates: ReplicaRates) -> float:
    """Return the output tokens per second of a replica with a full batch at all times.

        min(batch * answer / cycle, answer / prompt_busy)
        cycle = answer * decode(batch) + serial_share * batch * prompt_busy

    The second limit is that of the prompts; it binds with separate prefill workers.
    """
    cycle_s = (
        rates.answer_tokens
        * decode_time(rates.step_times, rates.max_batch, rates.attention_s)
        # Prompts take turns with decode steps on the same replica.
        + rates.serial_share * rates.max_batch * rates.prompt_busy_s
    )
    return (
        smaller(
            rates.max_batch * rates.answer_tokens / cycle_s,
            rates.answer_tokens / rates.prompt_busy_s,
        )
        # Start and end of a run are below the full batch.
        / rates.coefficients.run_time
    )


def static_throughput(rates: ReplicaRates, batch_size: float) -> float:
    """Return the output tokens per second when `batch_size` prompts start together.

        batch * answer / (batch * prompt_busy + (answer - 1) * decode(batch))

    The batch is constant until all answers end.
    """
    step_s = decode_time(
        rates.step_times,
        batch_size,
        attention_time(
            # Mean context of an answer: half of it is present.
            rates.step_times,
            rates.prompt_tokens + rates.answer_tokens / 2,
        ),
    )
    return (
        batch_size
        * rates.answer_tokens
        / (
            batch_size * rates.prompt_busy_s
            # The first token comes from the prompt itself.
            + (rates.answer_tokens - 1) * step_s
        )
    )


def static_ttft(rates: ReplicaRates, batch_size: float) -> float:
    """Return the seconds to the first token when `batch_size` prompts start at once."""
    return (
        rates.idle_prompt_s + larger(batch_size - 1, 0.0) * rates.prompt_busy_s
    )


def burst_latency(rates: ReplicaRates, request_count: float) -> BurstRun:
    """Return the run of `request_count` requests that are all sent at once.

    Slots are filled in order of arrival, and again as answers end:

        fill   = B * (prompt + decode(B / 2) * steps of a prompt)
        stream = (N - B) / rate of a full batch
        drain  = answer * (decode(B) - decode(1) + longest / mean answer * decode(1))

    B is the largest batch, at most N. Decode steps of those that have started run beside the
    prompts of the others. As answers end the batch shrinks, so that the longest one ends nearly
    alone.
    """
    coefficients = rates.coefficients
    batch_size = smaller(request_count, rates.max_batch)
    attention_s = rates.attention_s
    full_step_s = decode_time(rates.step_times, batch_size, attention_s)
    lone_step_s = decode_time(rates.step_times, 1.0, attention_s)
    fill_s = batch_size * (
        rates.prompt_busy_s
        + coefficients.prompt_step
        * rates.prompt_steps
        * decode_time(rates.step_times, batch_size / 2, attention_s)
    )
    later_count = larger(request_count - batch_size, 0.0)
    stream_s = later_count * (
        rates.answer_tokens * full_step_s / batch_size
        + rates.serial_share * rates.prompt_busy_s
    )
    drain_s = rates.answer_tokens * (
        full_step_s - lone_step_s + coefficients.answer_longest * lone_step_s
    )
    first_share = batch_size / request_count
    ttft_s = (
        coefficients.first_token
        + rates.idle_prompt_s
        - rates.prompt_busy_s
        # The mean place among those of the first slots, and among those that wait for a slot.
        + first_share * fill_s / 2
        + (1.0 - first_share) * (fill_s + stream_s / 2)
    )
    return BurstRun(
        run_s=fill_s + stream_s + drain_s,
        ttft_s=ttft_s,
        tpot_s=full_step_s
        + rates.interference_share
        * smaller(
            # Half of the fill, or the prompts that replace the whole batch during one answer.
            (
                first_share * fill_s / 2
                + (1.0 - first_share) * batch_size * rates.prompt_busy_s
            )
            / rates.answer_tokens,
            # No step takes more prompt tokens than it may.
            rates.prompt_busy_s / rates.prompt_steps,
        ),
    )


def closed_latency(rates: ReplicaRates, user_count: float) -> MeanLatency:
    """Return the mean latency with `user_count` requests always in flight.

    Prompts pass one server; decoding is the think time. R is the stay at that server by
    Schweitzer's approximate mean-value analysis with a weight w on the queue:

        R = T + w * T * (N - 1) * R / (R + D)

    T is `prompt_busy_s`, D the decode time of an answer, N the active requests. R and the
    batch are solved together. A request above `max_batch` waits for a slot.
    """
    coefficients = rates.coefficients
    # Requests beyond max_batch wait outside the replica.
    active_requests = smaller(user_count, rates.max_batch)
    attention_s = rates.attention_s
    batch_size = active_requests
    prompt_stay_s = rates.prompt_busy_s
    for _ in range(FIXED_POINT_STEPS):
        decode_s = rates.answer_tokens * decode_time(
            rates.step_times, batch_size, attention_s
        )
        # Coefficient b of R^2 + b R - T D = 0, the equation for the stay.
        linear_term_s = (
            decode_s
            - rates.prompt_busy_s
            - rates.prompt_busy_s
            * coefficients.prompt_queue
            * (active_requests - 1)
        )
        # Positive root of that equation.
        prompt_stay_s = (
            -linear_term_s
            + (
                linear_term_s * linear_term_s
                + 4 * rates.prompt_busy_s * decode_s
            )
            ** 0.5
        ) / 2
        # Time of one answer with the prompts that interrupt it.
        answer_s = (
            decode_s
            + rates.interference_share * batch_size * rates.prompt_busy_s
        )
        batch_size = larger(
            # Little's law: share of the cycle that a request decodes.
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
    # Each multiple of max_batch ahead takes one whole request.
    slot_wait_s = larger(user_count / rates.max_batch - 1, 0.0) * (
        rates.answer_tokens * tpot_s + prompt_stay_s
    )
    ttft_s = (
        coefficients.first_token
        + _prompt_delay(rates, batch_size, prompt_stay_s)
        # Each of the other users may be decoding.
        + rates.start_wait(
            tpot_s, batch_size * larger(1.0 - 1.0 / user_count, 0.0)
        )
        + slot_wait_s
    )
    return MeanLatency(
        ttft_s=ttft_s,
        tpot_s=tpot_s,
        batch_size=batch_size,
        queue_s=prompt_stay_s - rates.prompt_busy_s,
    )


def _prompt_delay(
    rates: ReplicaRates, batch_size: float, prompt_stay_s: float
) -> float:
    """Return the seconds of a prompt in a closed loop, with the wait for earlier ones.

        prompt_share * (idle prompt + steps * (stay - prompt)) + steps * wave * batch * prompt / 2
        steps = 1 + prompt_step * steps of a prompt * decode / prompt

    Each prompt ahead takes its share of a step, in which the others decode.
    """
    coefficients = rates.coefficients
    step_share = prompt_step_share(rates, batch_size)
    return (
        coefficients.prompt_share
        * (
            rates.idle_prompt_s
            + step_share * (prompt_stay_s - rates.prompt_busy_s)
        )
        # Requests sent at once: half of such a wave is ahead on average.
        + step_share * coefficients.wave * batch_size * rates.prompt_busy_s / 2
    )


def prompt_step_share(rates: ReplicaRates, batch_size: float) -> float:
    """Return the time for which a prompt keeps the next one waiting, over that of the prompt.

    1 + prompt_step * steps of a prompt * decode / prompt
    """
    return 1.0 + (
        rates.serial_share
        * rates.coefficients.prompt_step
        * rates.prompt_steps
        * decode_time(rates.step_times, batch_size, rates.attention_s)
        / rates.prompt_busy_s
    )


def open_latency(
    rates: ReplicaRates, rate_per_s: float, tpot_s: float
) -> MeanLatency:
    """Return the mean latency at an arrival rate with a known time per token.

    Prompts queue as M/D/1: wait = T * rho / (2 (1 - rho)) with rho = rate * T. The batch
    follows from Little's law.
    """
    coefficients = rates.coefficients
    utilization = smaller(rate_per_s * rates.prompt_busy_s, MAX_UTILIZATION)
    # Pollaczek-Khinchine mean wait with a constant service time.
    queue_s = rates.prompt_busy_s * utilization / (2 * (1 - utilization))
    ttft_s = (
        coefficients.first_token
        + coefficients.prompt_share * rates.idle_prompt_s
        + rates.start_wait(tpot_s, rate_per_s * rates.answer_tokens * tpot_s)
        + queue_s
    )
    return MeanLatency(
        ttft_s=ttft_s,
        tpot_s=tpot_s,
        # Little's law: arrival rate times time in decode.
        batch_size=rate_per_s * rates.answer_tokens * tpot_s,
        queue_s=queue_s,
    )


def poisson_latency(rates: ReplicaRates, rate_per_s: float) -> MeanLatency:
    """Return the mean latency with Poisson arrivals at `rate_per_s`.

    Solves batch = rate * answer * server_time * tpot(batch) by bisection on [0, max_batch]. A
    result at `max_batch` means that the arrival rate exceeds the capacity.
    """
    # A latency-tuned server is slower than the model by this factor.
    slowdown = rates.coefficients.server_time

    def keeps_up(batch: float) -> bool:
        # Little's law holds at or below this batch: the root is not above.
        batch_by_law = (
            rate_per_s
            * rates.answer_tokens
            * slowdown
            * tpot_at_batch(rates, batch)
        )
        return batch_by_law <= batch

    mean_batch = bisect_up(keeps_up, 0.0, rates.max_batch, BISECTION_STEPS)
    return open_latency(
        rates, rate_per_s, slowdown * tpot_at_batch(rates, mean_batch)
    )

"""A replica at one rate: requests in flight, and percentiles of latency.

A wait is zero or exponential (or a mixture of two exponentials). Lengths are the
representative lengths of the bins of `serving.load`.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import TYPE_CHECKING, Final, Protocol

from msgspec import Struct

from planner.numeric import bisect_up
from planner.perf.serving.load import bin_mean
from planner.perf.serving.tail import gamma_exceedance

if TYPE_CHECKING:
    from collections.abc import Callable

    from planner.perf.serving.coefficients import Coefficients
    from planner.perf.serving.load import ServingLoad


class ReplicaModel(Protocol):
    """Interface of a replica for `Service`; times in seconds."""

    load: ServingLoad
    max_batch: int
    coefficients: Coefficients

    @property
    def prompt_moments(self) -> tuple[float, float, float]:
        """First three moments of the occupied time of a prompt."""

    @property
    def idle_prompts_s(self) -> tuple[float, ...]:
        """Time to the end of the prompt of each length bin when idle."""

    def tpot(self, batch_size: int) -> float:
        """Return the time per output token."""

    def undisturbed_tpot(self, batch_size: int) -> float:
        """Return the time per output token without prompts."""

    def start_delay(self, batch_size: int) -> float:
        """Return the time before a prompt starts; with 0 nobody decodes."""


QUANTILE_STEPS: Final = 24  # halvings of the bracket of a quantile
# Shares of requests that move no percentile.
NEGLIGIBLE_SHARE: Final = 1e-9


class Wait(Struct, frozen=True):
    """A random wait that is zero with probability 1 - `probability`.

    probability        probability of a wait
    mean_s             mean of the wait, given that there is one, s
    squared_variation  its squared coefficient of variation; below 1 it is taken as 1

    Above 1 the wait is hyperexponential: two exponentials with balanced means.
    """

    probability: float
    mean_s: float
    squared_variation: float = 1.0

    def phases(self) -> tuple[tuple[float, float], ...]:
        """Return weight and mean (s) of each exponential phase of a wait.

        p     = (1 + r) / 2,  r = sqrt((c^2 - 1) / (c^2 + 1))
        1 - p = 1 / ((c^2 + 1) (1 + r)), which is above 0 for any finite c
        means = mean / (2 p) with weight p, mean / (2 (1 - p)) with weight 1 - p
        """
        if self.squared_variation <= 1:
            return ((1.0, self.mean_s),)
        # Balanced means: both phases contribute half of the mean.
        root = math.sqrt(
            (self.squared_variation - 1) / (self.squared_variation + 1)
        )
        short_weight = (1 + root) / 2
        long_weight = 1 / ((self.squared_variation + 1) * (1 + root))
        return (
            (short_weight, self.mean_s / 2 / short_weight),
            (long_weight, self.mean_s / 2 / long_weight),
        )


class Service(Struct, frozen=True, kw_only=True, dict=True):
    """Performance of a replica at one rate; times in seconds.

    probabilities      probability of n requests in flight, n from 0
    slot_wait          wait for a slot in the batch
    prompt_wait        wait for earlier prompts
    arriving_count     1 when an arriving request adds to the batch that it meets; 0 in a
                       closed loop, where it replaces another
    arrival_variation  squared coefficient of variation of interarrival times
    """

    replica: ReplicaModel
    rate_per_s: float
    probabilities: tuple[float, ...]
    slot_wait: Wait
    prompt_wait: Wait
    arriving_count: int = 0
    arrival_variation: float = 1.0

    @cached_property
    def in_flight(self) -> float:
        """Mean number of requests in flight."""
        return sum(
            batch_size * probability
            for batch_size, probability in enumerate(self.probabilities)
        )

    @property
    def output_tokens_per_s(self) -> float:
        """Output tokens per second."""
        return self.rate_per_s * self.replica.load.answer_lengths.mean_tokens

    def tpot(self, percentile: int) -> float:
        """Return the percentile of the time per output token, in seconds.

            tpot = mean + sqrt((met batch - mean)^2 + (slowed - mean)^2)

        Requests differ in the batch that they meet and in the prompts that arrive while they
        decode. The two deviations add in quadrature.
        """
        mean_tpot_s = self._mean_tpot_s
        met_tpot_s = self.replica.tpot(self._met_batch(percentile))
        slowed_tpot_s = _solve_quantile(self._tpot_exceedance, percentile / 100)
        return max(
            met_tpot_s,
            mean_tpot_s
            # Independent deviations from the mean add in quadrature.
            + math.hypot(
                max(0.0, met_tpot_s - mean_tpot_s),
                max(0.0, slowed_tpot_s - mean_tpot_s),
            ),
        )

    def ttft(self, percentile: int) -> float:
        """Return the percentile of the time to first token, in seconds.

        It is the sum of the waits for a slot, for earlier prompts and for the step, and the
        prompt.
        """
        return _solve_quantile(self._ttft_exceedance, percentile / 100)

    def e2e(self, percentile: int) -> float:
        """Return the percentile of the time of a whole request, in seconds.

        It is the time to first token plus the answer length times the mean time per token.
        """
        return _solve_quantile(self._e2e_exceedance, percentile / 100)

    def quantile(self, metric: str, percentile: int) -> float:
        """Return ttft, tpot or e2e at a percentile."""
        return {"ttft": self.ttft, "tpot": self.tpot, "e2e": self.e2e}[metric](
            percentile
        )

    def meets(self, metric: str, percentile: int, limit_s: float) -> bool:
        """Return whether the quantile is within `limit_s`.

        It evaluates the exceedance once at the limit and needs no search for the quantile.
        """
        limit_key = (metric, percentile, limit_s)
        if limit_key not in self._met_limits:
            self._met_limits[limit_key] = self._is_within(*limit_key)
        return self._met_limits[limit_key]

    def _is_within(self, metric: str, percentile: int, limit_s: float) -> bool:
        if metric == "tpot":
            met_tpot_s = self.replica.tpot(self._met_batch(percentile))
            # No percentile lies below the mean, and the quadrature would mirror such a limit.
            if max(met_tpot_s, self._mean_tpot_s) > limit_s:
                return False
            # The quadrature of tpot(), solved for the slowing by prompts.
            squared_slack = (limit_s - self._mean_tpot_s) ** 2 - max(
                0.0, met_tpot_s - self._mean_tpot_s
            ) ** 2
            tpot_limit_s = self._mean_tpot_s + math.sqrt(
                max(0.0, squared_slack)
            )
            return (
                self._tpot_exceedance(tpot_limit_s)
                <= 1 - percentile / 100 + 1e-9
            )
        exceedance = (
            self._ttft_exceedance if metric == "ttft" else self._e2e_exceedance
        )
        return exceedance(limit_s) <= 1 - percentile / 100 + 1e-9

    def _tpot_exceedance(self, tpot_s: float) -> float:
        """Return the probability that prompts slow a request beyond `tpot_s` per token.

        The sum of the prompt times is taken as a gamma distribution, given at least one prompt.
        """
        replica = self.replica
        # Prompt time per token that the limit leaves, before the share k.
        slack_s = (
            tpot_s - replica.undisturbed_tpot(self._mean_batch)
        ) / replica.coefficients.interference
        if slack_s <= 0:
            return 1.0
        return bin_mean(
            [
                any_probability
                * gamma_exceedance(
                    slack_s * answer_tokens, mean_delay_s, delay_variance
                )
                for (
                    answer_tokens,
                    any_probability,
                    mean_delay_s,
                    delay_variance,
                ) in self._prompt_delays
            ]
        )

    @cached_property
    def _prompt_delays(self) -> list[tuple[float, float, float, float]]:
        """Tokens, chance of a prompt, and mean (s) and variance of its sum, by answer length.

        The mean number of prompts during an answer is

            N = P(prompt server busy) + rate * answer * mean tpot

        The number is taken as Poisson, with more variance for bursty arrivals.
        """
        first_moment, second_moment, _ = self.replica.prompt_moments
        prompt_delays = []
        for answer_tokens in self.replica.load.answer_lengths.bin_lengths():
            prompt_count = (
                # The prompt that is in service when decoding starts.
                self.prompt_wait.probability
                # Arrivals during the answer.
                + self.rate_per_s * answer_tokens * self._mean_tpot_s
            )
            # P(at least one prompt) of a Poisson count: 1 - exp(-N).
            any_probability = -math.expm1(-prompt_count)
            mean_delay_s = prompt_count * first_moment / any_probability
            # Second moment of the sum: N (E[S^2] + (ca^2 - 1 + N) E[S]^2).
            second_delay_moment = (
                prompt_count
                * (
                    second_moment
                    + (self.arrival_variation - 1 + prompt_count)
                    * first_moment
                    * first_moment
                )
                / any_probability
            )
            delay_variance = max(
                second_delay_moment - mean_delay_s * mean_delay_s,
                # Rounding must not make the variance zero or negative.
                1e-12 * mean_delay_s * mean_delay_s,
            )
            prompt_delays.append(
                (answer_tokens, any_probability, mean_delay_s, delay_variance)
            )
        return prompt_delays

    def _ttft_exceedance(self, ttft_s: float) -> float:
        """Return the probability that the time to first token is longer."""
        return sum(
            share
            * bin_mean(
                [
                    self._wait_exceedance(ttft_s - delay_s - idle_prompt_s)
                    for idle_prompt_s in self.replica.idle_prompts_s
                ]
            )
            for share, delay_s in self._start_delays
        )

    def _e2e_exceedance(self, e2e_s: float) -> float:
        """Return the probability that the time of a request is longer."""
        slack_s = (
            # Prompts and their starts vary little against answers: means stand for all.
            e2e_s
            - sum(share * delay_s for share, delay_s in self._start_delays)
            - bin_mean(self.replica.idle_prompts_s)
        )
        answer_lengths = self.replica.load.answer_lengths.bin_lengths()
        return bin_mean(
            [
                self._wait_exceedance(
                    slack_s - self._mean_tpot_s * answer_tokens
                )
                for answer_tokens in answer_lengths
            ]
        )

    def _met_batch(self, percentile: int) -> int:
        """Return the batch that this percentile of arriving requests does not exceed.

        Bursts widen the distribution around its mean by sqrt((ca^2 + 1) / 2), the square root
        of the peakedness.
        """
        cumulative = 0.0
        for batch_size, probability in enumerate(self.probabilities):
            cumulative += probability
            if cumulative >= percentile / 100:
                burst_factor = (
                    math.sqrt((self.arrival_variation + 1) / 2)
                    if self.arriving_count
                    else 1.0
                )
                burst_batch = (
                    self.in_flight
                    + (batch_size - self.in_flight) * burst_factor
                )
                return max(
                    1,
                    min(
                        # The request itself is part of its batch.
                        round(burst_batch) + self.arriving_count,
                        self.replica.max_batch,
                    ),
                )
        return self.replica.max_batch

    @cached_property
    def _met_limits(self) -> dict[tuple[str, int, float], bool]:
        """Limits that were asked for, and whether they are met."""
        return {}

    @cached_property
    def _slot_rate(self) -> float:
        return 1 / max(self.slot_wait.mean_s, 1e-9)

    @cached_property
    def _wait_phases(self) -> tuple[tuple[float, float], ...]:
        """Chance and rate of each exponential of the wait for earlier prompts."""
        wait_phases = []
        for phase_weight, phase_mean_s in self.prompt_wait.phases():
            phase_rate = 1 / max(phase_mean_s, 1e-9)
            if abs(self._slot_rate - phase_rate) < 1e-6 * phase_rate:
                phase_rate *= (
                    1.001  # two equal rates are the limit of two nearby ones
                )
            wait_phases.append(
                (self.prompt_wait.probability * phase_weight, phase_rate)
            )
        return tuple(wait_phases)

    @cached_property
    def _mean_batch(self) -> int:
        return max(1, round(self.in_flight))

    @cached_property
    def _mean_tpot_s(self) -> float:
        return self.replica.tpot(self._mean_batch)

    @cached_property
    def _start_delays(self) -> tuple[tuple[float, float], ...]:
        """Shares of the requests, and the seconds until their prompts start.

        Who finds nobody in flight waits for no step.
        """
        # In a closed loop the request itself is in flight.
        alone_share = self.probabilities[1 - self.arriving_count]
        delays = ((alone_share, 0), (1 - alone_share, self._mean_batch))
        return tuple(
            (share, self.replica.start_delay(others))
            for share, others in delays
            if share > NEGLIGIBLE_SHARE
        )

    def _wait_exceedance(self, wait_s: float) -> float:
        """Return the probability that the sum of both waits exceeds `wait_s`."""
        if wait_s < 0:
            return 1.0
        slot_probability = self.slot_wait.probability
        slot_rate = self._slot_rate
        slot_exceedance = math.exp(-slot_rate * wait_s)
        # Only the wait for a slot.
        exceedance = (
            slot_probability
            * (1 - self.prompt_wait.probability)
            * slot_exceedance
        )
        for phase_probability, phase_rate in self._wait_phases:
            phase_exceedance = math.exp(-phase_rate * wait_s)
            # Both waits: the sum of two exponentials (hypoexponential).
            sum_exceedance = (
                phase_rate * slot_exceedance - slot_rate * phase_exceedance
            ) / (phase_rate - slot_rate)
            exceedance += phase_probability * (
                (1 - slot_probability) * phase_exceedance
                + slot_probability * sum_exceedance
            )
        return exceedance


def _solve_quantile(
    exceedance: Callable[[float], float], probability: float
) -> float:
    """Solve exceedance(x) = 1 - probability for a function that falls from 1 to 0."""
    lower_s = 0.0
    upper_s = 0.01
    # Doubling brackets the root.
    while exceedance(upper_s) > 1 - probability + 1e-9 and upper_s < 1e6:
        lower_s = upper_s
        upper_s = upper_s * 2
    return bisect_up(
        lambda time_s: exceedance(time_s) <= 1 - probability + 1e-9,
        lower_s,
        upper_s,
        QUANTILE_STEPS,
    )

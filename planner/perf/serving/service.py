"""A replica at one rate: how many requests are in flight, and how late tokens are.

Waits are zero or exponential; lengths are those that stand for their distribution.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

from planner.perf.serving.load import bin_mean
from planner.perf.serving.tail import gamma_exceedance

if TYPE_CHECKING:
    from collections.abc import Callable

    from planner.perf.serving.coefficients import Coefficients
    from planner.perf.serving.load import ServingLoad


class ReplicaModel(Protocol):
    """What a service asks of its replica: times in seconds, by requests in flight."""

    load: ServingLoad
    max_batch: int
    coefficients: Coefficients

    @property
    def prompt_moments(self) -> tuple[float, float, float]:
        """First three moments of the time of prompts."""

    @property
    def idle_prompts_s(self) -> tuple[float, ...]:
        """Time to the end of prompts of the lengths that stand for all, on an idle replica."""

    def tpot(self, batch_size: int) -> float:
        """Time per output token."""

    def undisturbed_tpot(self, batch_size: int) -> float:
        """Time per output token with no prompt between."""

    def start_delay(self, batch_size: int) -> float:
        """Time before a prompt starts."""

    def margin(self, metric: str) -> float:
        """Factor on a time that covers it with the wished confidence."""


@dataclass(frozen=True, slots=True)
class Wait:
    """A wait that is zero with 1 - chance, else of this mean and squared variation, at least 1.

    Beyond 1 it is a mixture of two exponentials of equal weight in the mean (hyperexponential).
    """

    probability: float
    mean_s: float
    squared_variation: float = 1.0

    def phases(self) -> tuple[tuple[float, float], ...]:
        """Chance and mean of each exponential, given that there is a wait."""
        if self.squared_variation <= 1:
            return ((1.0, self.mean_s),)
        short_weight = (
            1
            + math.sqrt(
                (self.squared_variation - 1) / (self.squared_variation + 1)
            )
        ) / 2
        return (
            (short_weight, self.mean_s / 2 / short_weight),
            (1 - short_weight, self.mean_s / 2 / (1 - short_weight)),
        )


@dataclass(frozen=True, kw_only=True)
class Service:
    """What a replica delivers at one rate; times in seconds.

    `probabilities` is the chance of n requests in flight, n from 0. `arriving_count` is 1 when a request adds
    to those that it meets, 0 in a closed loop, where it takes the place of another. `arrival_variation`
    is the squared one of the times between arrivals.
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
        """Tokens of answers a second."""
        return self.rate_per_s * self.replica.load.answer_lengths.mean_tokens

    def tpot(self, percentile: int) -> float:
        """Time per output token that this share of requests stays within.

        Two things differ between requests, and add as deviations do: the batch that they meet,
        and how many prompts come in while they answer.
        """
        mean_tpot_s = self._mean_tpot_s
        met_tpot_s = self.replica.tpot(self._met_batch(percentile))
        slowed_tpot_s = _solve_quantile(self._tpot_exceedance, percentile / 100)
        return max(
            met_tpot_s,
            mean_tpot_s
            + math.hypot(
                max(0.0, met_tpot_s - mean_tpot_s),
                max(0.0, slowed_tpot_s - mean_tpot_s),
            ),
        )

    def ttft(self, percentile: int) -> float:
        """Time to first token: wait for a slot, for earlier prompts, for the step, own prompt."""
        return _solve_quantile(self._ttft_exceedance, percentile / 100)

    def e2e(self, percentile: int) -> float:
        """Time of a whole request: first token, then the answer at the mean pace."""
        return _solve_quantile(self._e2e_exceedance, percentile / 100)

    def quantile(self, metric: str, percentile: int) -> float:
        """Return ttft, tpot or e2e at a percentile."""
        return {"ttft": self.ttft, "tpot": self.tpot, "e2e": self.e2e}[metric](
            percentile
        )

    def assured_quantile(self, metric: str, percentile: int) -> float:
        """The quantile with the margin that the wished confidence asks for."""
        return self.quantile(metric, percentile) * self.replica.margin(metric)

    def meets(self, metric: str, percentile: int, limit_s: float) -> bool:
        """Whether the assured quantile is within `limit_s`; cheaper than the quantile itself."""
        limit_s /= self.replica.margin(metric)
        if metric == "tpot":
            met_tpot_s = self.replica.tpot(self._met_batch(percentile))
            if met_tpot_s > limit_s:
                return False
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
        """Chance that prompts slow a request at the mean batch to more than this per token.

        Its own prompt leaves another behind as often as prompts are busy; while it answers, a
        Poisson number comes in. The sum of their times is taken as gamma; bursts add variance.
        """
        replica = self.replica
        batch_size = max(1, round(self.in_flight))
        first_moment, second_moment, _ = replica.prompt_moments
        slack_s = (
            tpot_s - replica.undisturbed_tpot(batch_size)
        ) / replica.coefficients.interference
        if slack_s <= 0:
            return 1.0
        exceedances = []
        for answer_tokens in replica.load.answer_lengths.bin_lengths():
            prompt_count = (
                self.prompt_wait.probability
                + self.rate_per_s * answer_tokens * self._mean_tpot_s
            )
            any_probability = -math.expm1(-prompt_count)
            mean_delay_s = prompt_count * first_moment / any_probability
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
                1e-12 * mean_delay_s * mean_delay_s,
            )
            exceedances.append(
                any_probability
                * gamma_exceedance(
                    slack_s * answer_tokens, mean_delay_s, delay_variance
                )
            )
        return bin_mean(exceedances)

    def _ttft_exceedance(self, ttft_s: float) -> float:
        """Chance that the first token takes longer."""
        slack_s = ttft_s - self._start_delay_s
        return bin_mean(
            [
                self._wait_exceedance(slack_s - idle_prompt_s)
                for idle_prompt_s in self.replica.idle_prompts_s
            ]
        )

    def _e2e_exceedance(self, e2e_s: float) -> float:
        """Chance that the whole request takes longer."""
        slack_s = (
            e2e_s - self._start_delay_s - bin_mean(self.replica.idle_prompts_s)
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
        """Requests in flight that this share of arrivals meets or stays below.

        Bursts spread them: by the square root of the peakedness, (ca^2 + 1) / 2, around the mean.
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
                        round(burst_batch) + self.arriving_count,
                        self.replica.max_batch,
                    ),
                )
        return self.replica.max_batch

    @cached_property
    def _wait_phases(self) -> tuple[tuple[float, float], ...]:
        return self.prompt_wait.phases()

    @cached_property
    def _mean_tpot_s(self) -> float:
        return self.replica.tpot(max(1, round(self.in_flight)))

    @cached_property
    def _start_delay_s(self) -> float:
        return self.replica.start_delay(max(1, round(self.in_flight)))

    def _wait_exceedance(self, wait_s: float) -> float:
        """Chance that the two waits together last longer than this."""
        if wait_s < 0:
            return 1.0
        slot_probability = self.slot_wait.probability
        prompt_probability = self.prompt_wait.probability
        slot_rate = 1 / max(self.slot_wait.mean_s, 1e-9)
        slot_exceedance = math.exp(-slot_rate * wait_s)
        exceedance = (
            slot_probability * (1 - prompt_probability) * slot_exceedance
        )
        for phase_weight, phase_mean_s in self._wait_phases:
            phase_rate = 1 / max(phase_mean_s, 1e-9)
            if abs(slot_rate - phase_rate) < 1e-6 * phase_rate:
                phase_rate *= (
                    1.001  # two equal rates are the limit of two nearby ones
                )
            phase_exceedance = math.exp(-phase_rate * wait_s)
            sum_exceedance = (
                phase_rate * slot_exceedance - slot_rate * phase_exceedance
            ) / (phase_rate - slot_rate)
            exceedance += (
                prompt_probability
                * phase_weight
                * (
                    (1 - slot_probability) * phase_exceedance
                    + slot_probability * sum_exceedance
                )
            )
        return exceedance


def _solve_quantile(
    exceedance: Callable[[float], float], probability: float
) -> float:
    """Solve exceeds(x) = 1 - share for a function that falls from 1 to 0."""
    lower_s = 0.0
    upper_s = 0.01
    while exceedance(upper_s) > 1 - probability + 1e-9 and upper_s < 1e6:
        lower_s = upper_s
        upper_s = upper_s * 2
    for _ in range(24):
        midpoint_s = (lower_s + upper_s) / 2
        if exceedance(midpoint_s) > 1 - probability + 1e-9:
            lower_s = midpoint_s
        else:
            upper_s = midpoint_s
    return upper_s

"""A replica at one rate: how many requests are in flight, and how late tokens are.

Waits are zero or exponential; lengths are those that stand for their distribution.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

from planner.perf.load import mean
from planner.perf.tail import above

if TYPE_CHECKING:
    from collections.abc import Callable

    from planner.perf.coefficient import Coefficients
    from planner.perf.load import Load


class Station(Protocol):
    """What a service asks of its replica: times in seconds, by requests in flight."""

    load: Load
    max_batch: int
    coefficients: Coefficients

    @property
    def moments(self) -> tuple[float, float, float]:
        """First three moments of the time of prompts."""

    @property
    def alone(self) -> tuple[float, ...]:
        """Time to the end of prompts of the lengths that stand for all, on an idle replica."""

    def tpot(self, n: int) -> float:
        """Time per output token."""

    def quiet(self, n: int) -> float:
        """Time per output token with no prompt between."""

    def start(self, n: int) -> float:
        """Time before a prompt starts."""

    def margin(self, metric: str) -> float:
        """Factor on a time that covers it with the wished confidence."""


@dataclass(frozen=True, slots=True)
class Wait:
    """A wait that is zero with 1 - chance, else of this mean and squared variation, at least 1.

    Beyond 1 it is a mixture of two exponentials of equal weight in the mean (hyperexponential).
    """

    chance: float
    mean: float
    variation: float = 1.0

    def phases(self) -> tuple[tuple[float, float], ...]:
        """Chance and mean of each exponential, given that there is a wait."""
        if self.variation <= 1:
            return ((1.0, self.mean),)
        short = (1 + math.sqrt((self.variation - 1) / (self.variation + 1))) / 2
        return (
            (short, self.mean / 2 / short),
            (1 - short, self.mean / 2 / (1 - short)),
        )


@dataclass(frozen=True, kw_only=True)
class Service:
    """What a replica delivers at one rate; times in seconds.

    `states` is the chance of n requests in flight, n from 0. `arriving` is 1 when a request adds
    to those that it meets, 0 in a closed loop, where it takes the place of another. `variation`
    is the squared one of the times between arrivals.
    """

    replica: Station
    rate: float
    states: tuple[float, ...]
    slot: Wait
    prompt: Wait
    arriving: int = 0
    variation: float = 1.0

    @cached_property
    def in_flight(self) -> float:
        """Mean number of requests in flight."""
        return sum(n * p for n, p in enumerate(self.states))

    @property
    def output_tokens_per_s(self) -> float:
        """Tokens of answers a second."""
        return self.rate * self.replica.load.answer.mean

    def tpot(self, percentile: int) -> float:
        """Time per output token that this share of requests stays within.

        Two things differ between requests, and add as deviations do: the batch that they meet,
        and how many prompts come in while they answer.
        """
        mean, met = self._pace, self.replica.tpot(self._met(percentile))
        unlucky = _quantile(self._slowed_above, percentile / 100)
        return max(
            met,
            mean + math.hypot(max(0.0, met - mean), max(0.0, unlucky - mean)),
        )

    def ttft(self, percentile: int) -> float:
        """Time to first token: wait for a slot, for earlier prompts, for the step, own prompt."""
        return _quantile(self._ttft_above, percentile / 100)

    def e2e(self, percentile: int) -> float:
        """Time of a whole request: first token, then the answer at the mean pace."""
        return _quantile(self._e2e_above, percentile / 100)

    def quantile(self, metric: str, percentile: int) -> float:
        """Return ttft, tpot or e2e at a percentile."""
        return {"ttft": self.ttft, "tpot": self.tpot, "e2e": self.e2e}[metric](
            percentile
        )

    def assured(self, metric: str, percentile: int) -> float:
        """The quantile with the margin that the wished confidence asks for."""
        return self.quantile(metric, percentile) * self.replica.margin(metric)

    def meets(self, metric: str, percentile: int, seconds: float) -> bool:
        """Whether the assured quantile is within `seconds`; cheaper than the quantile itself."""
        seconds /= self.replica.margin(metric)
        if metric == "tpot":
            met = self.replica.tpot(self._met(percentile))
            if met > seconds:
                return False
            left = (seconds - self._pace) ** 2 - max(0.0, met - self._pace) ** 2
            reached = self._pace + math.sqrt(max(0.0, left))
            return self._slowed_above(reached) <= 1 - percentile / 100 + 1e-9
        above = self._ttft_above if metric == "ttft" else self._e2e_above
        return above(seconds) <= 1 - percentile / 100 + 1e-9

    def _slowed_above(self, seconds: float) -> float:
        """Chance that prompts slow a request at the mean batch to more than this per token.

        Its own prompt leaves another behind as often as prompts are busy; while it answers, a
        Poisson number comes in. The sum of their times is taken as gamma; bursts add variance.
        """
        one, n = self.replica, max(1, round(self.in_flight))
        first, square, _ = one.moments
        spare = (seconds - one.quiet(n)) / one.coefficients.interference
        if spare <= 0:
            return 1.0
        late = []
        for length in one.load.answer.points():
            count = self.prompt.chance + self.rate * length * self._pace
            some = -math.expm1(-count)
            total = count * first / some
            square_sum = (
                count
                * (square + (self.variation - 1 + count) * first * first)
                / some
            )
            variance = max(square_sum - total * total, 1e-12 * total * total)
            late.append(some * above(spare * length, total, variance))
        return mean(late)

    def _ttft_above(self, seconds: float) -> float:
        """Chance that the first token takes longer."""
        left = seconds - self._start
        return mean([self._late(left - own) for own in self.replica.alone])

    def _e2e_above(self, seconds: float) -> float:
        """Chance that the whole request takes longer."""
        left = seconds - self._start - mean(self.replica.alone)
        answers = self.replica.load.answer.points()
        return mean(
            [self._late(left - self._pace * length) for length in answers]
        )

    def _met(self, percentile: int) -> int:
        """Requests in flight that this share of arrivals meets or stays below.

        Bursts spread them: by the square root of the peakedness, (ca^2 + 1) / 2, around the mean.
        """
        total = 0.0
        for n, chance in enumerate(self.states):
            total += chance
            if total >= percentile / 100:
                bursts = (
                    math.sqrt((self.variation + 1) / 2)
                    if self.arriving
                    else 1.0
                )
                spread = self.in_flight + (n - self.in_flight) * bursts
                return max(
                    1,
                    min(round(spread) + self.arriving, self.replica.max_batch),
                )
        return self.replica.max_batch

    @cached_property
    def _phases(self) -> tuple[tuple[float, float], ...]:
        return self.prompt.phases()

    @cached_property
    def _pace(self) -> float:
        return self.replica.tpot(max(1, round(self.in_flight)))

    @cached_property
    def _start(self) -> float:
        return self.replica.start(max(1, round(self.in_flight)))

    def _late(self, seconds: float) -> float:
        """Chance that the two waits together last longer than this."""
        if seconds < 0:
            return 1.0
        a, b = self.slot.chance, self.prompt.chance
        alpha = 1 / max(self.slot.mean, 1e-9)
        slot = math.exp(-alpha * seconds)
        late = a * (1 - b) * slot
        for chance, wait in self._phases:
            beta = 1 / max(wait, 1e-9)
            if abs(alpha - beta) < 1e-6 * beta:
                beta *= (
                    1.001  # two equal rates are the limit of two nearby ones
                )
            own = math.exp(-beta * seconds)
            both = (beta * slot - alpha * own) / (beta - alpha)
            late += b * chance * ((1 - a) * own + a * both)
        return late


def _quantile(exceeds: Callable[[float], float], share: float) -> float:
    """Solve exceeds(x) = 1 - share for a function that falls from 1 to 0."""
    low, high = 0.0, 0.01
    while exceeds(high) > 1 - share + 1e-9 and high < 1e6:
        low, high = high, high * 2
    for _ in range(24):
        middle = (low + high) / 2
        if exceeds(middle) > 1 - share + 1e-9:
            low = middle
        else:
            high = middle
    return high

"""Decides by simulation whether a fleet keeps its limits: a sequential test of percentiles.

Batches of requests are added until the interval of each percentile lies on one side of its
limit. The intervals of all looks together hold with 95 %. An interval that ends less than 2 %
above the limit counts as within it: the model is not that exact. A run ends early when other
requests would confirm it too, or when the rest of it would hardly confirm it.
"""

from __future__ import annotations

import itertools
import math
import statistics
from statistics import NormalDist
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from msgspec import Struct

from planner.numeric import nearest_rank, student_quantile

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from planner.perf.serving.monte_carlo import RequestTimes

Verdict: TypeAlias = Literal["holds", "close", "misses", "undecided"]

# Batches after which the limits are looked at. The last one ends an undecided trial.
LOOKS: Final = (8, 16, 32, 64)
# A fleet is not accepted on fewer batches: a replica that slowly fills its KV pool looks well at
# first, and its batches are alike.
FIRST_CONFIRMATION: Final = 32
# Half widths to the upper ends of other runs: one is 2.6 standard errors, 29 of 30 runs end 1.8
# errors higher than their mean at most, and this run is 2 errors too low in 2 % of cases.
REPEATED_WIDTHS: Final = 2.5
# A run is given up when its rest would confirm it with less than this probability.
LEAST_HOPE: Final = 0.05
TOLERANCE: Final = 0.02  # share of a limit by which an interval may exceed it
# Upper end of a two-sided interval: all looks together are wrong with 5 % (Bonferroni).
INTERVAL_PROBABILITY: Final = 1 - 0.05 / 2 / len(LOOKS)


class TrialLimit(Struct, frozen=True):
    """A limit on a percentile of ttft, tpot or e2e, in seconds."""

    metric: str
    percentile: int
    limit_s: float


class SimulatedPercentile(Struct, frozen=True):
    """A percentile of all simulated requests with its interval, in seconds.

    error_s       standard error of the estimate
    half_width_s  of the interval
    """

    estimate_s: float
    error_s: float
    half_width_s: float

    @property
    def low_s(self) -> float:
        """Lower end of the interval; a time is never below 0."""
        return max(0.0, self.estimate_s - self.half_width_s)

    @property
    def high_s(self) -> float:
        """Upper end of the interval."""
        return self.estimate_s + self.half_width_s

    @property
    def repeatable_s(self) -> float:
        """The value within which the intervals of other runs end as a rule."""
        return self.estimate_s + REPEATED_WIDTHS * self.half_width_s

    def hoped_s(self, played_share: float) -> float:
        """Return the least upper end that the interval of a whole run may still have.

        `played_share` of the run is played. The estimate moves by a normal deviation of
        error * sqrt(1 - share), and the half width shrinks by sqrt(share).
        """
        return (
            self.estimate_s
            + NormalDist().inv_cdf(LEAST_HOPE)
            * self.error_s
            * math.sqrt(1 - played_share)
            + self.half_width_s * math.sqrt(played_share)
        )


class Trial:
    """A simulated run of one fleet at one load, which is extended as far as a decision needs.

    batches  times of the requests of successive batches, by metric

    A longer trial has all batches of a shorter one, so what is decided does not depend on the
    order of the questions.
    """

    def __init__(self, batches: Iterator[RequestTimes]) -> None:
        self._unplayed_batches = batches
        self._batches: list[RequestTimes] = []
        # By number of batches, metric and percentile.
        self._percentiles: dict[tuple[int, str, int], SimulatedPercentile] = {}

    def decide(self, limits: Sequence[TrialLimit]) -> Verdict:
        """Return whether all limits hold, after as many batches as that takes.

        holds      each interval ends below 1.02 * limit, and those of another run would
        close      each interval ends below 1.02 * limit after the last look
        misses     an interval begins above its limit
        undecided  neither after the last look, or hardly so
        """
        for batch_count in LOOKS:
            found = [
                (
                    limit.limit_s,
                    self._percentile_after(
                        batch_count, limit.metric, limit.percentile
                    ),
                )
                for limit in limits
            ]
            if any(measured.low_s > limit_s for limit_s, measured in found):
                return "misses"
            if batch_count < FIRST_CONFIRMATION:
                continue
            played_share = batch_count / LOOKS[-1]
            if any(
                measured.hoped_s(played_share) > limit_s * (1 + TOLERANCE)
                for limit_s, measured in found
            ):
                return "undecided"
            if all(
                measured.repeatable_s <= limit_s * (1 + TOLERANCE)
                for limit_s, measured in found
            ):
                return "holds"
        # With the whole run played, the least upper end is the upper end.
        return "close"

    @property
    def batch_count(self) -> int:
        """Batches so far."""
        return len(self._batches)

    @property
    def request_count(self) -> int:
        """Requests that were counted so far."""
        return sum(len(batch["ttft"]) for batch in self._batches)

    def percentile(self, metric: str, percentile: int) -> SimulatedPercentile:
        """Return a percentile over all batches so far, at least the first look's."""
        return self._percentile_after(
            max(LOOKS[0], len(self._batches)), metric, percentile
        )

    def _percentile_after(
        self, batch_count: int, metric: str, percentile: int
    ) -> SimulatedPercentile:
        """Return a percentile over the first `batch_count` batches, computed once."""
        key = batch_count, metric, percentile
        if key not in self._percentiles:
            self._percentiles[key] = self._measure(*key)
        return self._percentiles[key]

    def _measure(
        self, batch_count: int, metric: str, percentile: int
    ) -> SimulatedPercentile:
        """Measure a percentile.

        error      = standard deviation over batches / sqrt(batches)
                   = distance of the batches from their mean / sqrt(batches * (batches - 1))
        half width = t(batches - 1) * error
        """
        while len(self._batches) < batch_count:
            self._batches.append(next(self._unplayed_batches))
        samples = [batch[metric] for batch in self._batches[:batch_count]]
        share = percentile / 100
        # Batches are long enough to be almost independent.
        batch_values = [nearest_rank(sorted(batch), share) for batch in samples]
        mean_s = statistics.fmean(batch_values)
        error_s = math.dist(batch_values, [mean_s] * batch_count) / math.sqrt(
            batch_count * (batch_count - 1)
        )
        return SimulatedPercentile(
            nearest_rank(sorted(itertools.chain.from_iterable(samples)), share),
            error_s,
            student_quantile(INTERVAL_PROBABILITY, batch_count - 1) * error_s,
        )

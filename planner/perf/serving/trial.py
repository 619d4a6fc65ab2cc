"""Decides by simulation whether a fleet keeps its limits: a sequential test of percentiles.

Batches of requests are added until the interval of each percentile lies on one side of its
limit. The intervals of all looks together hold with 95 %. An interval that ends less than 2 %
above the limit counts as within it: the model is not that exact.
"""

from __future__ import annotations

import itertools
import math
import statistics
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from msgspec import Struct

from planner.numeric import nearest_rank, student_quantile

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from planner.perf.serving.monte_carlo import RequestTimes

Verdict: TypeAlias = Literal["holds", "misses", "undecided"]

# Batches after which the limits are looked at. The last one ends an undecided trial.
LOOKS: Final = (8, 16, 32, 64)
# A fleet is not accepted on fewer batches: a replica that slowly fills its KV pool looks well at
# first, and its batches are alike.
FIRST_CONFIRMATION: Final = 32
TOLERANCE: Final = 0.02  # share of a limit by which an interval may exceed it
# Upper end of a two-sided interval: all looks together are wrong with 5 % (Bonferroni).
INTERVAL_PROBABILITY: Final = 1 - 0.05 / 2 / len(LOOKS)


class TrialLimit(Struct, frozen=True):
    """A limit on a percentile of ttft, tpot or e2e, in seconds."""

    metric: str
    percentile: int
    limit_s: float


class SimulatedPercentile(Struct, frozen=True):
    """A percentile of all simulated requests with its interval, in seconds."""

    estimate_s: float
    low_s: float
    high_s: float

    @property
    def repeatable_s(self) -> float:
        """The value within which the interval of another run ends as a rule: twice as far."""
        return 2 * self.high_s - self.estimate_s


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

        holds      each interval ends below 1.02 * limit, after 32 batches or more
        misses     an interval begins above its limit
        undecided  neither after the last look
        """
        for batch_count in LOOKS:
            verdicts = [self._compare(limit, batch_count) for limit in limits]
            if "misses" in verdicts:
                return "misses"
            if (
                "undecided" not in verdicts
                and batch_count >= FIRST_CONFIRMATION
            ):
                return "holds"
        return "undecided"

    @property
    def batch_count(self) -> int:
        """Batches so far."""
        return len(self._batches)

    @property
    def request_count(self) -> int:
        """Requests that were counted so far."""
        return sum(len(batch["ttft"]) for batch in self._batches)

    def play_to_the_end(self) -> None:
        """Extend the trial to its last look, however early it was decided."""
        while len(self._batches) < LOOKS[-1]:
            self._batches.append(next(self._unplayed_batches))

    def percentile(self, metric: str, percentile: int) -> SimulatedPercentile:
        """Return a percentile over all batches so far, at least the first look's."""
        return self._percentile_after(
            max(LOOKS[0], len(self._batches)), metric, percentile
        )

    def _compare(self, limit: TrialLimit, batch_count: int) -> Verdict:
        measured = self._percentile_after(
            batch_count, limit.metric, limit.percentile
        )
        if measured.high_s <= limit.limit_s * (1 + TOLERANCE):
            return "holds"
        return "misses" if measured.low_s > limit.limit_s else "undecided"

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

        half width = t(batches - 1) * standard deviation over batches / sqrt(batches)
        """
        while len(self._batches) < batch_count:
            self._batches.append(next(self._unplayed_batches))
        samples = [batch[metric] for batch in self._batches[:batch_count]]
        share = percentile / 100
        # Batches are long enough to be almost independent.
        half_width_s = (
            student_quantile(INTERVAL_PROBABILITY, batch_count - 1)
            * statistics.stdev(
                nearest_rank(sorted(batch), share) for batch in samples
            )
            / math.sqrt(batch_count)
        )
        estimate_s = nearest_rank(
            sorted(itertools.chain.from_iterable(samples)), share
        )
        return SimulatedPercentile(
            estimate_s,
            max(0.0, estimate_s - half_width_s),
            estimate_s + half_width_s,
        )

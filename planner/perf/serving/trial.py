"""Decides by simulation whether a fleet keeps its limits: a sequential test of percentiles.

A percentile keeps its limit when the share of requests that are later is small enough: for p95
at most 5 %. Batches of requests are added until the interval of that share lies on one side of
it, or the percentile is known to 2 % of the limit. The intervals of all looks together hold with
95 %. A run ends early when other requests would confirm it too, or when the rest of it would
hardly confirm it. What is not decided after the last batch is judged as it is measured, and that
is said.
"""

from __future__ import annotations

import itertools
import math
import statistics
from bisect import bisect_left
from statistics import NormalDist
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from planner.numeric import nearest_rank, student_quantile
from planner.perf.serving.monte_carlo import OpenRun

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from planner.perf.serving.simulation import RequestTimes

Verdict: TypeAlias = Literal["holds", "misses", "undecided"]

# Batches after which the limits are looked at. The last one ends a trial.
LOOKS: Final = (8, 16, 32, 64)
# A fleet is not accepted on fewer batches: a replica that slowly fills its KV pool looks well at
# first, and its batches are alike.
FIRST_CONFIRMATION: Final = 32
# Half widths of room below a limit with which other runs hold too. One is 2.5 standard errors;
# 29 of 30 runs end 1.8 errors above their mean at most, and this run is 2 errors below it in 2 %
# of cases.
REPEATED_WIDTHS: Final = 1.5
# The same of a run that ends early: it may not have seen a rare crowd of requests yet.
EARLY_WIDTHS: Final = 4
# A run is given up when its rest would confirm it with less than this probability.
LEAST_HOPE: Final = 0.05
TOLERANCE: Final = (
    0.02  # share of a limit to which a percentile is known well enough
)
# Upper end of a two-sided interval: all looks together are wrong with 5 % (Bonferroni).
INTERVAL_PROBABILITY: Final = 1 - 0.05 / 2 / len(LOOKS)


class TrialLimit(Struct, frozen=True):
    """A limit on a percentile of ttft, tpot or e2e, in seconds."""

    metric: str
    percentile: int
    limit_s: float

    @property
    def late_share(self) -> float:
        """Share of requests that may be later than the limit."""
        return (100 - self.percentile) / 100


class SimulatedPercentile(Struct, frozen=True):
    """A percentile of all simulated requests with its interval, in seconds."""

    estimate_s: float
    low_s: float
    high_s: float


class Decision(Struct, frozen=True):
    """What a trial says of some limits.

    verdict      holds: another run would keep the limits too; misses: a limit is not kept;
                 undecided: another run may tell otherwise
    batch_count  batches that this took
    limit        the limit that is not kept, as far as was measured; None when all are
    """

    verdict: Verdict
    batch_count: int
    limit: TrialLimit | None = None


class LateShare(Struct, frozen=True):
    """Share of requests that are later than a time, over the batches of a run.

    mean        of the batches, which have equal sizes
    error       standard error of the mean
    half_width  of its interval
    """

    mean: float
    error: float
    half_width: float

    def may_fall_to(self, share: float, played_share: float) -> bool:
        """Whether the mean of the whole run may still fall to a share.

        `played_share` of the run is played. The mean moves by a normal deviation of
        error * sqrt(1 - played share).
        """
        deviation = self.error * math.sqrt(1 - played_share)
        return self.mean + NormalDist().inv_cdf(LEAST_HOPE) * deviation <= share

    def misses(self, limit: TrialLimit) -> bool:
        """Whether more requests are later than a limit allows, with its whole interval."""
        return self.mean - self.half_width > limit.late_share


def late_share(shares: list[float]) -> LateShare:
    """Return the share of late requests of a run by those of its batches.

    error      = standard deviation over batches / sqrt(batches)
               = distance of the batches from their mean / sqrt(batches * (batches - 1))
    half width = t(batches - 1) * error
    """
    batch_count = len(shares)
    mean = statistics.fmean(shares)
    error = math.dist(shares, [mean] * batch_count) / math.sqrt(
        batch_count * (batch_count - 1)
    )
    return LateShare(
        mean,
        error,
        student_quantile(INTERVAL_PROBABILITY, batch_count - 1) * error,
    )


def late_for_sure(
    least_shares: list[float], most_shares: list[float], limit: TrialLimit
) -> bool:
    """Return whether any shares of late requests between these miss a limit.

    The mean of some shares x is at least that of the least ones, and their distance from their
    mean is at most (triangle inequality, and a mean is the nearest number)
        |x - mean of x| <= |x - mean of least| <= |least - mean of least| + |most - least|
    """
    batch_count = len(least_shares)
    least = late_share(least_shares)
    spread = math.dist(least_shares, most_shares) / math.sqrt(
        batch_count * (batch_count - 1)
    )
    return replace(
        least,
        half_width=least.half_width
        + student_quantile(INTERVAL_PROBABILITY, batch_count - 1) * spread,
    ).misses(limit)


def _share_beyond(values_s: list[float], time_s: float) -> float:
    beyond = [value_s for value_s in values_s if value_s > time_s]
    return len(beyond) / len(values_s)


class Trial:
    """A simulated run of one fleet at one load, which is extended as far as a decision needs.

    batches             times of the requests of successive batches, by metric
    first_confirmation  batches before which nothing is accepted, one of LOOKS

    A longer trial has all batches of a shorter one, so what is decided does not depend on the
    order of the questions.
    """

    def __init__(
        self,
        batches: Iterator[RequestTimes],
        first_confirmation: int = FIRST_CONFIRMATION,
    ) -> None:
        self._unplayed_batches = batches
        self._first_confirmation = first_confirmation
        self._batches: list[RequestTimes] = []
        self._request_count = 0
        # Of each batch by metric and seconds, and of so many batches.
        self._batch_shares: dict[tuple[str, float], list[float]] = {}
        self._late_shares: dict[tuple[int, str, float], LateShare] = {}
        self._last_ranked: tuple[tuple[int, str], list[float]] | None = None

    def decide(self, limits: Sequence[TrialLimit]) -> Decision:
        """Return whether all limits hold, after as many batches as that takes."""
        for batch_count in LOOKS:
            decision = self._look(limits, batch_count)
            if decision is not None:
                return decision
        raise AssertionError("the last look decides")

    def misses(self, limits: Sequence[TrialLimit]) -> bool:
        """Return whether `decide` names a limit that is not kept, which may take fewer batches.

        Batches end late, and most of their requests are known to be late before.
        """
        for batch_count in LOOKS:
            if self._misses_for_sure(limits, batch_count):
                return True
            decision = self._look(limits, batch_count)
            if decision is not None:
                return decision.limit is not None
        raise AssertionError("the last look decides")

    def _look(
        self, limits: Sequence[TrialLimit], batch_count: int
    ) -> Decision | None:
        """Return what so many batches say, None when it takes more of them."""
        for limit in limits:
            late = self._late_share(batch_count, limit.metric, limit.limit_s)
            if late.misses(limit):
                return Decision("misses", batch_count, limit)
        if batch_count < self._first_confirmation:
            return None
        return self._confirm(limits, batch_count)

    def _misses_for_sure(
        self, limits: Sequence[TrialLimit], batch_count: int
    ) -> bool:
        """Play until so many batches have ended, or a look at them is known to find a miss.

        That look measures the shares of late requests, which are between known ones then.
        """
        run = self._unplayed_batches
        if not isinstance(run, OpenRun):
            return False
        while len(self._batches) < batch_count:
            run.play_on()
            self._keep(run.take_ended())
            if any(
                self._is_late_for_sure(limit, batch_count, run)
                for limit in limits
            ):
                return True
        return False

    def _is_late_for_sure(
        self, limit: TrialLimit, batch_count: int, run: OpenRun
    ) -> bool:
        """Whether so many batches miss a limit, whatever becomes of those that have not ended."""
        unended_count = batch_count - len(self._batches)
        if not 0 < unended_count <= run.unended_count:
            return False
        ended_shares = self._shares_beyond(limit.metric, limit.limit_s)
        # Where few are late, counting the others takes longer than to play on.
        if ended_shares and statistics.fmean(ended_shares) <= limit.late_share:
            return False
        unended_shares = [
            run.late_shares(position, limit.metric, limit.limit_s)
            for position in range(unended_count)
        ]
        return late_for_sure(
            [*ended_shares, *(least for least, _ in unended_shares)],
            [*ended_shares, *(most for _, most in unended_shares)],
            limit,
        )

    def _confirm(
        self, limits: Sequence[TrialLimit], batch_count: int
    ) -> Decision | None:
        """Accept what keeps its limits or give it up, None while neither is possible."""
        is_last = batch_count == LOOKS[-1]
        widths = REPEATED_WIDTHS if is_last else EARLY_WIDTHS
        is_repeatable = is_exact = True
        for limit in limits:
            late = self._late_share(batch_count, limit.metric, limit.limit_s)
            # At the last look nothing is left that it may fall.
            if not late.may_fall_to(limit.late_share, batch_count / LOOKS[-1]):
                return Decision("undecided", batch_count, limit)
            room = limit.late_share - late.mean
            is_repeatable &= room >= widths * late.half_width
            is_exact &= room >= 0 and self._is_exact(limit, batch_count)
        if is_repeatable:
            return Decision("holds", batch_count)
        if is_exact or is_last:
            return Decision("undecided", batch_count)
        return None

    def _is_exact(self, limit: TrialLimit, batch_count: int) -> bool:
        """Whether the interval of a percentile ends below 1.02 times its limit."""
        return self._is_kept(
            replace(limit, limit_s=limit.limit_s * (1 + TOLERANCE)), batch_count
        )

    @property
    def request_count(self) -> int:
        """Requests that were counted so far."""
        return self._request_count

    def is_that_of(self, slot_count: int, pool_tokens: float) -> bool:
        """Whether a replica with other room for requests and their cache has the same times.

        Nobody waited for room in what is played so far, and nobody would have there.
        """
        run = self._unplayed_batches
        return (
            isinstance(run, OpenRun)
            and run.crowd.requests <= slot_count
            and run.crowd.tokens <= pool_tokens
        )

    @property
    def is_overloaded(self) -> bool:
        """Whether more requests are under way than have ended."""
        run = self._unplayed_batches
        return (
            isinstance(run, OpenRun)
            and run.unended_requests > self.request_count
        )

    def requests_in(self, batch_count: int) -> int:
        """Return the requests of the first batches."""
        return sum(len(batch["ttft"]) for batch in self._batches[:batch_count])

    def percentile(
        self, metric: str, percentile: int, batch_count: int
    ) -> SimulatedPercentile:
        """Measure a percentile over the first `batch_count` batches.

        Its interval is between the percentiles that are one half width of the late share away.
        Where values are so alike that no request is that far above, it ends where the limit of a
        trial would hold: where few enough are later, with the interval of their share.
        """
        share = percentile / 100
        values_s = self._ranked(batch_count, metric)
        estimate_s = nearest_rank(values_s, share)
        half_width = self._late_share(
            batch_count, metric, estimate_s
        ).half_width
        high_share = share + half_width
        return SimulatedPercentile(
            estimate_s,
            nearest_rank(values_s, max(0.0, share - half_width)),
            nearest_rank(values_s, high_share)
            if high_share < 1
            else self._kept_limit(metric, percentile, batch_count),
        )

    def _kept_limit(
        self, metric: str, percentile: int, batch_count: int
    ) -> float:
        """Return the first simulated time that would hold as a limit, in seconds.

        share later + half width of that share <= 1 - percentile
        """
        values_s = self._ranked(batch_count, metric)
        first = bisect_left(
            range(len(values_s) - 1),
            1,
            key=lambda rank: int(
                self._is_kept(
                    TrialLimit(metric, percentile, values_s[rank]), batch_count
                )
            ),
        )
        return values_s[first]

    def _is_kept(self, limit: TrialLimit, batch_count: int) -> bool:
        late = self._late_share(batch_count, limit.metric, limit.limit_s)
        return late.mean + late.half_width <= limit.late_share

    def _ranked(self, batch_count: int, metric: str) -> list[float]:
        """Return the times of the first batches in rising order; the last ones asked are kept."""
        key = batch_count, metric
        if self._last_ranked is None or self._last_ranked[0] != key:
            self._play_to(batch_count)
            ranked = sorted(
                itertools.chain.from_iterable(
                    batch[metric] for batch in self._batches[:batch_count]
                )
            )
            self._last_ranked = key, ranked
        return self._last_ranked[1]

    def _late_share(
        self, batch_count: int, metric: str, time_s: float
    ) -> LateShare:
        """Measure the share of requests that are later than a time, once."""
        key = batch_count, metric, time_s
        if key not in self._late_shares:
            self._play_to(batch_count)
            # Batches are long enough to be almost independent.
            shares = self._shares_beyond(metric, time_s)[:batch_count]
            self._late_shares[key] = late_share(shares)
        return self._late_shares[key]

    def _shares_beyond(self, metric: str, time_s: float) -> list[float]:
        """Return which share of each batch that has ended is later than a time."""
        shares = self._batch_shares.setdefault((metric, time_s), [])
        shares += (
            _share_beyond(batch[metric], time_s)
            for batch in self._batches[len(shares) :]
        )
        return shares

    def _play_to(self, batch_count: int) -> None:
        """Play until so many batches have ended."""
        while len(self._batches) < batch_count:
            self._keep([next(self._unplayed_batches)])

    def _keep(self, batches: list[RequestTimes]) -> None:
        # Counted here: a judge asks all of its runs for that before each new one.
        self._batches += batches
        self._request_count += sum(len(batch["ttft"]) for batch in batches)

"""The curve of time against cost of a training job: what each hour that is saved costs.

Every point is the cheapest cluster that ends within some time, found by the exact search. The
curve begins at the cheapest cluster of all, whatever the deadline, and ends at the fastest within
the budget, or within `train_curve` times the least cost where no budget is stated.
"""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from planner.perf.common.constant import constant
from planner.perf.training.mfu import mfu
from planner.solve.solution import FleetSummary, TradeOff
from planner.units import SECONDS_PER_HOUR

if TYPE_CHECKING:
    from planner.market.offer import Offer
    from planner.solve.training.objective import Objective
    from planner.solve.training.ranking import FeasibleCluster
    from planner.solve.training.search import TrainSearch

# Points of a curve: more are not read, fewer show no shape.
MAX_POINTS: Final = 9
MIN_POINTS: Final = 5
# A point is told from its neighbor when it takes at most this share of the time.
NOTICEABLE: Final = 0.97


def time_cost_curve(
    selection: FeasibleCluster, search: TrainSearch, offers: list[Offer]
) -> tuple[TradeOff, ...]:
    """Return 5 to 9 points of time against cost, the slowest and cheapest first.

    The chosen cluster and the knee are among them. No other point is both slower and dearer than
    another, or within 3 % of its time. There are fewer than 5 only where there are fewer of these.
    """
    tracer = _CurveTracer(search, offers, selection)
    slowest = tracer.best("cost") or selection
    knee = tracer.best("knee") or selection
    most_usd = search.requirement.budget_usd or max(
        slowest.bill.total * Decimal(constant("train_curve")),
        knee.bill.total,
        selection.bill.total,
    )
    fastest = tracer.best("time", budget_usd=most_usd) or selection
    landmarks = [slowest, knee, selection, fastest]
    points = _undominated(
        [*landmarks, *tracer.between(slowest, fastest)], selection
    )
    return tuple(
        TradeOff(
            fleet=_fleet(point),
            purchase=point.cluster.offer.purchase,
            accelerators=point.cluster.timed_layout.job.layout.accelerators,
            duration_hours=_duration_s(point) / SECONDS_PER_HOUR,
            usd=point.bill.total,
            mfu=mfu(
                point.cluster.timed_layout.job,
                point.cluster.reached_tokens_per_s,
            ),
            is_chosen=_is_same(point, selection),
            is_knee=_is_same(point, knee),
            violates=""
            if _duration_s(point) <= search.requirement.time_limit_s
            else search.requirement.time_limit_key,
        )
        for point in _thinned(_spaced(points, landmarks), landmarks)
    )


class _CurveTracer:
    """Searches for points of a curve under every limit of the spec but the deadline."""

    def __init__(
        self,
        search: TrainSearch,
        offers: list[Offer],
        selection: FeasibleCluster,
    ) -> None:
        self.search = search
        self.offers = offers
        # What is found for one limit is no worse than the best within another that it meets.
        self.known = [selection]
        self.requirement = replace(search.requirement, deadline_s=None)

    def best(
        self,
        objective: Objective,
        *,
        deadline_s: float | None = None,
        budget_usd: Decimal | None = None,
    ) -> FeasibleCluster | None:
        """Return the best cluster, also within a deadline or another budget, or nothing."""
        limited = replace(
            self.requirement,
            deadline_s=deadline_s,
            budget_usd=budget_usd or self.requirement.budget_usd,
        )
        search = self.search.with_limits(limited, objective)
        feasible = search.solve(
            self.offers, 1, search.least_known(self.known)
        ).feasible
        self.known += feasible
        return feasible[0] if feasible else None

    def between(
        self, slowest: FeasibleCluster, fastest: FeasibleCluster
    ) -> list[FeasibleCluster]:
        """Return the cheapest clusters within times that are evenly spaced on a log scale.

        Where they are too few, also every next faster cluster of the curve, until they are not.
        """
        longest_s = slowest.cluster.estimated_end_s
        shortest_s = fastest.cluster.estimated_end_s
        steps = MAX_POINTS - 1
        time_limits_s = [
            longest_s * (shortest_s / longest_s) ** (step / steps)
            for step in range(1, steps)
        ]
        points: list[FeasibleCluster] = []
        for time_limit_s in time_limits_s:
            # A cluster that is already fast enough is the cheapest here too.
            if not points or points[-1].cluster.estimated_end_s > time_limit_s:
                point = self.best("cost", deadline_s=time_limit_s)
                points += [point] if point is not None else []
        # Ends are counted, and may be among the points.
        if len(points) >= MIN_POINTS:
            return points
        return points + self._next_faster(longest_s, shortest_s)

    def _next_faster(
        self, longest_s: float, shortest_s: float
    ) -> list[FeasibleCluster]:
        """Return up to `MIN_POINTS` neighbors on the curve, from its slow end."""
        points: list[FeasibleCluster] = []
        time_limit_s = longest_s * NOTICEABLE
        while len(points) < MIN_POINTS and time_limit_s > shortest_s:
            point = self.best("cost", deadline_s=time_limit_s)
            if point is None:
                break
            points.append(point)
            time_limit_s = point.cluster.estimated_end_s * NOTICEABLE
        return points


def _duration_s(point: FeasibleCluster) -> float:
    """Duration that holds with the required confidence over simulated runs, seconds."""
    cluster = point.cluster
    return cluster.end_quantile_s(cluster.requirement.confidence)


def _fleet(point: FeasibleCluster) -> FleetSummary:
    offer = point.cluster.offer
    return FleetSummary(
        offer.provider,
        offer.region,
        offer.instance.instance_type,
        point.cluster.nodes + point.cluster.spares,
    )


def _is_same(point: FeasibleCluster, other: FeasibleCluster) -> bool:
    return (_fleet(point), point.bill.total) == (
        _fleet(other),
        other.bill.total,
    )


def _undominated(
    points: list[FeasibleCluster], selection: FeasibleCluster
) -> list[FeasibleCluster]:
    """Return the points than which none is as fast and cheaper, and the chosen one, slow first."""
    shown: list[FeasibleCluster] = []
    for point in sorted(
        points, key=lambda point: (_duration_s(point), point.bill.total)
    ):
        is_cheaper = not shown or point.bill.total < min(
            faster.bill.total for faster in shown
        )
        if is_cheaper or (
            _is_same(point, selection)
            and not any(_is_same(point, faster) for faster in shown)
        ):
            shown.append(point)
    return shown[::-1]


def _spaced(
    points: list[FeasibleCluster], landmarks: list[FeasibleCluster]
) -> list[FeasibleCluster]:
    """Return the points that are noticeably faster than the one before; landmarks stay."""
    shown = points[:1]
    for point in points[1:]:
        if _duration_s(point) <= NOTICEABLE * _duration_s(shown[-1]) or any(
            _is_same(point, landmark) for landmark in landmarks
        ):
            shown.append(point)
    return shown


def _thinned(
    points: list[FeasibleCluster], landmarks: list[FeasibleCluster]
) -> list[FeasibleCluster]:
    """Return at most `MAX_POINTS`: the closest neighbors in time go, landmarks stay."""
    while len(points) > MAX_POINTS:
        removable = {
            index: _duration_s(points[index - 1])
            / _duration_s(points[index + 1])
            for index in range(1, len(points) - 1)
            if not any(_is_same(points[index], mark) for mark in landmarks)
        }
        points.pop(min(removable, key=removable.__getitem__))
    return points

"""Lower bounds of what groups of one or two kinds cost in all hours of a week.

They take little time: no start costs anything, so each load is decided by itself.
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from planner.solve.serving.replica_capacity import groups_for

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from planner.solve.serving.cheapest_round import Counts
    from planner.solve.serving.hour_program import HourLoad

# What groups of both kinds cost in an hour of each week, USD in the period, and how many they are.
_PricedCounts: TypeAlias = "tuple[float, Counts]"


class BoundKind(Struct, frozen=True):
    """A kind of groups, as bounds see it.

    usd           least that a group costs in an hour of each week, USD in the period
    group_rps     requests/s that one carries in hours of each load
    requests_usd  least that parts of groups cost which carry all hours of each load
    most_groups   that may be had
    always_usd    a group in the period, where each is paid in all hours; 0 where it may not be
    """

    usd: float
    group_rps: tuple[float, ...]
    requests_usd: tuple[float, ...]
    most_groups: float = math.inf
    always_usd: float = 0.0

    def carrying(self, factor: float) -> BoundKind:
        """Return groups that carry so many times as much, at the same price."""
        if factor == 1:
            return self
        return replace(
            self,
            group_rps=tuple(factor * rps for rps in self.group_rps),
            requests_usd=tuple(
                usd / factor if factor else math.inf
                for usd in self.requests_usd
            ),
        )


class HourBounds:
    """Bounds for the loads of one week.

    Which groups carry a load is kept. It depends on their rates alone, so offers share it.
    """

    def __init__(self, loads: Sequence[HourLoad]) -> None:
        self._loads = loads
        self._hours = [load.hours for load in loads]
        self._enough: dict[tuple[float, float, float], tuple[Counts, ...]] = {}
        # What stands beside a kind that is alone: there is none of it.
        self._nothing = self.kind(
            0.0, {load.rate_rps: 0.0 for load in loads}, most_groups=0
        )

    def kind(
        self,
        usd: float,
        group_rps: Mapping[float, float],
        most_groups: float = math.inf,
        always_usd: float = 0.0,
    ) -> BoundKind:
        """Return groups that cost so much at least, and carry so much by the rate of a load."""
        carried_rps = tuple(group_rps[load.rate_rps] for load in self._loads)
        return BoundKind(
            usd=usd,
            group_rps=carried_rps,
            requests_usd=tuple(
                load.hours * load.rate_rps / rps * usd if rps else math.inf
                for load, rps in zip(self._loads, carried_rps, strict=True)
            ),
            most_groups=most_groups,
            always_usd=always_usd,
        )

    def linear_usd(self, kinds: Sequence[BoundKind]) -> float:
        """Return a bound by what a request costs, USD in the period.

        sum over loads of hours * max(USD of the cheapest group, rate * least USD of a request/s)
        """
        # One group runs in any case, however little is asked.
        least_usd = min(kind.usd for kind in kinds)
        first, second = self._both(kinds)
        # Some ten thousand pairs are asked for.
        total_usd: float = sum(
            map(
                max,
                [hours * least_usd for hours in self._hours],
                map(min, first.requests_usd, second.requests_usd),
            )
        )
        return total_usd

    def whole_usd(self, kinds: Sequence[BoundKind]) -> float:
        """Return a bound by whole groups, USD in the period; infinite where none carry a load.

        Each hour has its cheapest groups, with the weights that suit it best, and each kind runs
        in some hour. Where all are paid in all hours, those of one hour are.
        """
        first, second = self._both(kinds)
        is_always_paid = all(kind.always_usd for kind in kinds)
        always_usd = 0.0
        total_usd = 0.0
        # What it costs at least that a kind runs for an hour in which it would not.
        first_usd = second_usd = math.inf
        for load, priced in zip(
            self._loads, self._priced(first, second), strict=True
        ):
            if not priced:
                return math.inf
            least_usd, _ = min(priced)
            total_usd += load.hours * least_usd
            if is_always_paid:
                always_usd = max(
                    always_usd,
                    min(
                        max(1, groups) * first.always_usd
                        + max(1, beside) * second.always_usd
                        for _, (groups, beside) in priced
                    ),
                )
            part = min(1.0, load.hours)
            first_usd = min(
                first_usd,
                part * (_usd_with(priced, 0, first.usd) - least_usd),
            )
            second_usd = min(
                second_usd,
                part * (_usd_with(priced, 1, second.usd) - least_usd),
            )
        return max(always_usd, total_usd + max(first_usd, second_usd))

    def cheapest(
        self, kinds: Sequence[BoundKind]
    ) -> Iterator[tuple[HourLoad, tuple[tuple[int, float], ...]]]:
        """Yield each load, and for each kind its cheapest groups with the requests/s of one.

        requests/s of a group * rate / requests/s of all groups
        """
        pair = self._both(kinds)
        for number, (load, priced) in enumerate(
            zip(self._loads, self._priced(*pair), strict=True)
        ):
            if not priced:
                continue
            _, counts = min(priced)
            each_rps = [kind.group_rps[number] for kind in pair]
            all_rps = counts[0] * each_rps[0] + counts[1] * each_rps[1]
            yield (
                load,
                tuple(
                    (count, rps * load.rate_rps / all_rps)
                    for count, rps in zip(counts, each_rps, strict=True)
                ),
            )

    def _both(self, kinds: Sequence[BoundKind]) -> tuple[BoundKind, BoundKind]:
        first, *others = kinds
        return first, others[0] if others else self._nothing

    def _priced(
        self, first: BoundKind, second: BoundKind
    ) -> Iterator[list[_PricedCounts]]:
        """Yield for each load the groups that carry it and may be had, with what they cost."""
        for load, first_rps, second_rps in zip(
            self._loads, first.group_rps, second.group_rps, strict=True
        ):
            key = (load.rate_rps, first_rps, second_rps)
            if key not in self._enough:
                self._enough[key] = tuple(_enough_groups(*key))
            yield [
                (counts[0] * first.usd + counts[1] * second.usd, counts)
                for counts in self._enough[key]
                if counts[0] <= first.most_groups
                and counts[1] <= second.most_groups
            ]


def _usd_with(
    priced: Iterable[_PricedCounts], number: int, group_usd: float
) -> float:
    """Return what an hour costs at least with a group of one of the kinds, USD."""
    return min(
        usd if counts[number] else usd + group_usd for usd, counts in priced
    )


def _enough_groups(
    rate_rps: float, first_rps: float, second_rps: float
) -> Iterator[Counts]:
    """Yield what one kind needs alone, and for each number of the stronger one the other."""
    if first_rps:
        yield int(groups_for(rate_rps, first_rps)), 0
    if second_rps:
        yield 0, int(groups_for(rate_rps, second_rps))
    if not first_rps or not second_rps:
        return
    strong_rps, weak_rps = (
        max(first_rps, second_rps),
        min(first_rps, second_rps),
    )
    for count in itertools.count(1):
        rest = int(groups_for(rate_rps - count * strong_rps, weak_rps))
        yield (count, rest) if first_rps >= second_rps else (rest, count)
        # One of the weaker kind is the least there is beside the stronger one.
        if rest == 1:
            return

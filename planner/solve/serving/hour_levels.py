"""How many groups of one kind run in each hour of a week, so that all hours cost the least.

Groups are numbered, and the first ones serve first. So each is decided by itself: when it stays
between two times in which it is needed, and whether it is committed to.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_left
from functools import cache
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Sequence

    from planner.solve.serving.hour_program import HourKind, HourLoad


class _Level(Struct, frozen=True):
    """The hours in which one group runs, and what they cost in USD in the period."""

    usd: float
    runs: tuple[bool, ...]


class _OpenHours(Struct, frozen=True):
    """The hours of a week, after whose last one comes the first.

    lengths      of each hour, 0 where the service is closed
    open_before  of each hour, how many there are before it since the service was closed
    ends         hours from the start of the week to the end of each hour of two weeks, 0 first
    """

    lengths: list[float]
    open_before: list[int]
    ends: list[float]

    def length_before(self, number: int, count: int) -> float:
        """Return how long so many hours before an hour are in total."""
        end = number + len(self.lengths)
        return self.ends[end] - self.ends[end - count]


def _open_hours(hours: Sequence[HourLoad]) -> _OpenHours:
    lengths = [hour.hours for hour in hours]
    open_before = [0]
    # Through two weeks, so that the second one knows what was before its first hour.
    for length in lengths * 2:
        open_before.append(open_before[-1] + 1 if length else 0)
    return _OpenHours(
        lengths,
        open_before[len(lengths) : 2 * len(lengths)],
        [*itertools.accumulate(lengths * 2, initial=0.0)],
    )


def cheapest_levels(
    kind: HourKind, hours: Sequence[HourLoad], needed: Sequence[int]
) -> tuple[int, ...]:
    """Return the groups of each hour that cost the least, with those that it needs at least.

    group stays between two hours that need it:  hours * USD an hour < USD of a start
    group is committed to:  USD of all hours < USD of the hours in which it runs

    What is owned comes first, then what is committed to: the first groups run longest.
    """
    open_hours = _open_hours(hours)

    # Groups between two numbers that hours need are needed in the same hours.
    @cache
    def level(needed_groups: int, hour_usd: float) -> _Level:
        needs = tuple(groups >= needed_groups for groups in needed)
        return _cheapest_level(kind, open_hours, needs, hour_usd)

    # Each group of the most that any hour needs, by the next number that one needs.
    numbers = sorted(set(needed))
    each = [
        numbers[bisect_left(numbers, number)]
        for number in range(1, numbers[-1] + 1)
    ]
    free = [level(number, kind.other_usd) for number in each]
    if kind.machine_usd == math.inf:
        # All are committed to.
        return _running(free)
    bought = [
        level(number, kind.other_usd + kind.machine_usd) for number in each
    ]
    owned = min(kind.owned_groups, len(free))
    above = range(owned, min(owned + kind.most_always, len(free)))
    # What a commitment to so many groups costs more than none.
    more_usd = [
        0.0,
        *itertools.accumulate(
            kind.always_usd + free[number].usd - bought[number].usd
            for number in above
        ),
    ]
    paid = owned + min(range(len(more_usd)), key=more_usd.__getitem__)
    return _running([*free[:paid], *bought[paid:]])


def _running(groups: Sequence[_Level]) -> tuple[int, ...]:
    """Return how many of some groups run in each hour."""
    return tuple(map(sum, zip(*(group.runs for group in groups), strict=True)))


def _cheapest_level(
    kind: HourKind,
    hours: _OpenHours,
    needs: tuple[bool, ...],
    hour_usd: float,
) -> _Level:
    """Return when one group runs that some hours need, at a price of each hour.

    Nothing runs in closed hours. After them a group starts when the service opens, or later, which
    takes the time of a start before its hour.
    """
    runs = [*needs]
    starts_usd = 0.0
    when = [number for number, is_needed in enumerate(needs) if is_needed]
    for last, following in zip(when, [*when[1:], when[0]], strict=True):
        # The last hour of a week comes before the first.
        between = (following - last - 1) % len(needs)
        if not between:
            continue
        opened = min(between, hours.open_before[following])
        first_usd = kind.opening_usd if opened < between else 0.0
        # In the first hour of an opening there is no time before it.
        away_usd = kind.start_usd if opened else first_usd
        stays_usd = first_usd + hour_usd * hours.length_before(
            following, opened
        )
        if stays_usd < away_usd:
            for number in range(following - opened, following):
                runs[number] = True
        starts_usd += first_usd if stays_usd < away_usd else away_usd
    run_hours = sum(itertools.compress(hours.lengths, runs))
    return _Level(starts_usd + hour_usd * run_hours, tuple(runs))

"""Weekly load of a workload by the hour, and the hours in which it runs.

Hour 0 is Monday 00:00 in the time zone of the schedule, UTC without one.
"""

from __future__ import annotations

import math
from collections import Counter
from decimal import Decimal
from functools import cache, cached_property, lru_cache
from itertools import accumulate, chain, groupby
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from planner.facts import table
from planner.spec.schedule import open_minutes
from planner.units import (
    HOURS_PER_MONTH,
    HOURS_PER_WEEK,
    MINUTES_PER_HOUR,
    MINUTES_PER_WEEK,
)

if TYPE_CHECKING:
    from collections.abc import Mapping


class SpareGroups(Struct, frozen=True):
    """Groups beyond those that the load needs.

    `count`      in the hours of most load
    `from_load`  load relative to the peak from which there are so many; below it is one fewer
    """

    count: int = 0
    from_load: float = 0.0

    def at(self, hour_load: float) -> int:
        """Return the spare groups of an hour of a load relative to the peak."""
        return self.count - (1 if hour_load < self.from_load else 0)


NO_SPARES: Final = SpareGroups()
ALL_NODES: Final = (0, 1_000_000_000)
MOST_FLEETS: Final = 512  # whose nodes are remembered, some kilobytes each


def weekly_starts(hourly_nodes: tuple[int, ...]) -> int:
    """Return how many machines start in a week, by the nodes of its hours."""
    before = (*hourly_nodes[-1:], *hourly_nodes[:-1])
    return sum(
        nodes - earlier
        for earlier, nodes in zip(before, hourly_nodes, strict=True)
        if nodes > earlier
    )


class Week(Struct, frozen=True, dict=True):
    """Load and running share of each of the 168 hours of a week.

    `relative_load`  load relative to the peak, 0 to 1
    `running_share`  share of the hour in which anything runs, 0 to 1
    `schedule`  when the service is open, None for always
    `lead_minutes`  how long before an hour its machines are started, while the service is open
    """

    relative_load: tuple[float, ...]
    running_share: tuple[Decimal, ...]
    schedule: str | None = None
    lead_minutes: int = 0

    def with_lead(self, minutes: int) -> Week:
        """Return the week in which machines are started so many minutes before their hours."""
        if minutes not in self._led_weeks:
            self._led_weeks[minutes] = (
                self if self._is_even else replace(self, lead_minutes=minutes)
            )
        return self._led_weeks[minutes]

    @cached_property
    def mean_load(self) -> float:
        """Mean load relative to the peak over all hours of the week.

        sum of load * running share / 168
        """
        return (
            sum(
                # Hours outside the schedule serve nothing and count as 0.
                hour_load * float(hour_share)
                for hour_load, hour_share in zip(
                    self.relative_load, self.running_share, strict=True
                )
            )
            / HOURS_PER_WEEK
        )

    @cached_property
    def running_hours(self) -> Decimal:
        """Hours of a month in which anything runs: sum of shares / 168 * 730."""
        return (
            sum(self.running_share, Decimal(0))
            / HOURS_PER_WEEK
            * HOURS_PER_MONTH
        )

    def hours_from(self, load: float) -> int:
        """Return the hours of a week in which anything runs and the load is so high."""
        return sum(
            1
            for hour_load, hour_share in zip(
                self.relative_load, self.running_share, strict=True
            )
            if hour_share and hour_load >= load
        )

    def hourly_nodes(
        self,
        group_count: float,
        group_nodes: int,
        spares: SpareGroups = NO_SPARES,
    ) -> tuple[int, ...]:
        """Return the nodes of each hour of the week.

        nodes = group_nodes * (max(1, ceil(group_count * load)) + spares of the load)
        `group_count` groups of `group_nodes` nodes carry the peak. The load of a group never
        exceeds that at the peak. Hours outside the schedule have 0 nodes.
        """
        nodes_of = self._nodes_by_load(group_count, group_nodes, spares)
        return tuple(map(nodes_of.__getitem__, self._running_loads))

    def node_hours(
        self,
        group_count: float,
        group_nodes: int,
        spares: SpareGroups = NO_SPARES,
        span: tuple[int, int] = ALL_NODES,
    ) -> Decimal:
        """Return the node-hours of a month when nodes follow the load.

        sum of hourly nodes * running share / 168 * 730
        With a lead the nodes of a minute are the most of any minute until it is over.
        The nodes are numbered: those of a span are from one and below another.
        """
        first, end = span
        nodes_of = self._nodes_by_load(group_count, group_nodes, spares)
        week_node_hours = sum(
            (
                max(0, min(nodes_of[hour_load], end) - first)
                * hour_share
                * hour_count
                for (
                    hour_load,
                    hour_share,
                ), hour_count in self._standing_counts.items()
            ),
            Decimal(0),
        )
        # A month of 730 hours has 730 / 168 weeks.
        return week_node_hours / HOURS_PER_WEEK * HOURS_PER_MONTH

    def level_hours(
        self, group_count: float, spares: SpareGroups
    ) -> Mapping[int, Decimal]:
        """Return the hours of a month in which at least so many groups run, for each such number.

        sum of running shares of these hours / 168 * 730
        """
        fleet = (group_count, spares)
        if fleet not in self._level_hours:
            if len(self._level_hours) >= MOST_FLEETS:
                self._level_hours.clear()
            groups_of = self._nodes_by_load(group_count, 1, spares)
            week_hours: dict[int, Decimal] = {}
            for (hour_load, hour_share), count in self._standing_counts.items():
                if hour_share:
                    groups = groups_of[hour_load]
                    week_hours[groups] = (
                        week_hours.get(groups, Decimal(0)) + hour_share * count
                    )
            levels = sorted(week_hours, reverse=True)
            self._level_hours[fleet] = {
                level: hours / HOURS_PER_WEEK * HOURS_PER_MONTH
                for level, hours in zip(
                    levels,
                    accumulate(map(week_hours.__getitem__, levels)),
                    strict=True,
                )
            }
        return self._level_hours[fleet]

    @cached_property
    def load_shares(self) -> tuple[tuple[float, float], ...]:
        """Distinct loads relative to the peak, with the share of the running time of each."""
        running_hours = float(sum(self.running_share, Decimal(0)))
        load_hours: dict[float, float] = {}
        for hour_load, hour_share in zip(
            self.relative_load, self.running_share, strict=True
        ):
            load_hours[hour_load] = load_hours.get(hour_load, 0.0) + float(
                hour_share
            )
        return tuple(
            (hour_load, hours / running_hours)
            for hour_load, hours in sorted(load_hours.items())
            if hours
        )

    @cached_property
    def _running_loads(self) -> tuple[float | None, ...]:
        """Loads of the hours; None where the schedule allows nothing."""
        return tuple(
            hour_load if hour_share else None
            for hour_load, hour_share in zip(
                self.relative_load, self.running_share, strict=True
            )
        )

    def _nodes_by_load(
        self, group_count: float, group_nodes: int, spares: SpareGroups
    ) -> dict[float | None, int]:
        """Return the nodes of the hours of each load, 0 of None; lines of a bill share them."""
        fleet = (group_count, group_nodes, spares)
        if fleet not in self._fleet_nodes:
            if len(self._fleet_nodes) >= MOST_FLEETS:
                self._fleet_nodes.clear()
            self._fleet_nodes[fleet] = {
                None: 0,
                # Few distinct loads: each is counted once.
                **{
                    hour_load: running_nodes(
                        group_count, group_nodes, spares, hour_load
                    )
                    for hour_load in set(self.relative_load)
                },
            }
        return self._fleet_nodes[fleet]

    @cached_property
    def _fleet_nodes(
        self,
    ) -> dict[tuple[float, int, SpareGroups], dict[float | None, int]]:
        """Fleets whose nodes were asked for."""
        return {}

    @cached_property
    def _is_even(self) -> bool:
        """Whether all open hours have the same load, so that none is led into."""
        return len(self.load_shares) == 1 and (
            self.running_share == running_shares(self.schedule)
        )

    @cached_property
    def _led_weeks(self) -> dict[int, Week]:
        """Weeks of leads that were asked for: each remembers what its fleets have."""
        return {}

    @cached_property
    def _level_hours(
        self,
    ) -> dict[tuple[float, SpareGroups], Mapping[int, Decimal]]:
        """Fleets whose hours of each level were asked for."""
        return {}

    @cached_property
    def _standing_counts(self) -> Counter[tuple[float, Decimal]]:
        """Loads for which machines stand, with the share of an hour, and how often that is so.

        Nodes grow with the load, so those of the highest load within the lead are the most.
        """
        if not self.lead_minutes:
            # Few distinct pairs of load and share: equal hours are grouped.
            return Counter(
                zip(self.relative_load, self.running_share, strict=True)
            )
        # Whole numbers are compared faster; 0 is for minutes in which nothing is needed.
        loads = sorted(set(self.relative_load))
        ranks = {load: rank for rank, load in enumerate(loads, 1)}
        hourly = tuple(
            ranks[load] if share else 0
            for load, share in zip(
                self.relative_load, self.running_share, strict=True
            )
        )
        minutes = (
            _counted_minutes(hourly, self.lead_minutes)
            if self.schedule is None
            else Counter(
                standing_minutes(hourly, self.schedule, self.lead_minutes)
            )
        )
        return Counter(
            {
                (loads[rank - 1], Decimal(count) / MINUTES_PER_HOUR): 1
                for rank, count in minutes.items()
                if rank
            }
        )


# The bill, the graph, the bands and the quotas of a plan ask for the same machines.
@lru_cache(maxsize=64)
def standing_minutes(
    hourly: tuple[int, ...], schedule: str | None, lead_minutes: int = 0
) -> tuple[int, ...]:
    """Return the most that any minute of a lead needs, by what the hours of a week need.

    For each minute of a week from Monday 00:00. What is closed needs nothing, and has nothing.
    """
    minutes = tuple(
        chain.from_iterable((number,) * MINUTES_PER_HOUR for number in hourly)
    )
    if schedule is None:
        return _most_ahead(minutes, lead_minutes)
    is_open = open_minutes(schedule)
    # Closed minutes count 0 times.
    needed = tuple(map(int.__mul__, minutes, is_open))
    return tuple(map(int.__mul__, _most_ahead(needed, lead_minutes), is_open))


def _counted_minutes(
    hourly: tuple[int, ...], lead_minutes: int
) -> Counter[int]:
    """Return in how many minutes of a week each number stands, where all of it is open.

    A lead of `h` hours and `m` minutes looks `h` hours ahead, and one more in the last `m`
    minutes of an hour. Hours are looked at, which are fewer than minutes.
    """
    hours, minutes = divmod(lead_minutes, MINUTES_PER_HOUR)
    most = _most_ahead(hourly, hours)
    counts: Counter[int] = Counter()
    for number, later in zip(most, most[1:] + most[:1], strict=True):
        counts[number] += MINUTES_PER_HOUR - minutes
        counts[max(number, later)] += minutes
    return counts


def _most_ahead(numbers: tuple[int, ...], ahead: int) -> tuple[int, ...]:
    """Return the most of each minute, or hour, and so many after it, around the week.

    A number stands from so long before its stretch until that ends, and larger ones cover it.
    """
    count = len(numbers)
    stretches: list[tuple[int, int, int]] = []
    end = 0
    for number, alike in groupby(numbers):
        begin, end = end, end + len(tuple(alike))
        stretches.append((number, begin, end))
    most = [0] * count
    for number, begin, end in sorted(stretches):
        # Before the week is the end of the one before; around it once is all of it.
        first = max(begin - ahead, end - count)
        kept = max(first, 0)
        most[kept:end] = (number,) * (end - kept)
        if first < 0:
            most[first:] = (number,) * -first
    return tuple(most)


def needed_groups(group_count: float) -> int:
    """Return the whole groups of a running hour: the load of a group never exceeds its peak."""
    # 1e-9 absorbs floating-point error at whole numbers.
    return max(1, math.ceil(group_count - 1e-9))


def running_nodes(
    group_count: float, group_nodes: int, spares: SpareGroups, hour_load: float
) -> int:
    """Return the nodes of a running hour: group_nodes * (max(1, ceil(groups * load)) + spares)."""
    return group_nodes * (
        needed_groups(group_count * hour_load) + spares.at(hour_load)
    )


@cache
def _profile_table() -> dict[tuple[str, str, int], float]:
    column_types = {
        "profile": table.nonempty_text,
        "day": table.one_of("weekday", "weekend"),
        "hour": table.integer_between(0, 23),
        "weight": table.real_between(0, 1),
        **table.SOURCE_COLUMNS,
    }
    profile_rows = table.load_rows("planner.cost", "profiles.csv", column_types)
    return {
        (
            profile_row["profile"],
            profile_row["day"],
            profile_row["hour"],
        ): profile_row["weight"]
        for profile_row in profile_rows
    }


@cache
def weekly_load(
    profile: str | tuple[Decimal, ...], schedule: str | None
) -> Week:
    """Return the week of a traffic profile and a schedule.

    `profile` is a name of data/profiles.csv, or 24 or 168 hourly weights.
    """
    if isinstance(profile, str):
        # Hour 0 is Monday 00:00.
        day_kinds = ["weekday"] * 5 + ["weekend"] * 2
        hourly_load = [
            _profile_table()[profile, day_kind, hour]
            for day_kind in day_kinds
            for hour in range(24)
        ]
    else:
        # The largest weight is load 1; 24 weights repeat on all days.
        peak_weight = max(profile)
        hourly_load = [
            float(hour_weight / peak_weight) for hour_weight in profile
        ] * (HOURS_PER_WEEK // len(profile))
    return Week(tuple(hourly_load), running_shares(schedule), schedule)


def running_shares(schedule: str | None) -> tuple[Decimal, ...]:
    """Return the running share of each hour of the week, all 1 without a schedule."""
    is_open = open_minutes(schedule)
    return tuple(
        Decimal(sum(is_open[start : start + MINUTES_PER_HOUR]))
        / MINUTES_PER_HOUR
        for start in range(0, MINUTES_PER_WEEK, MINUTES_PER_HOUR)
    )

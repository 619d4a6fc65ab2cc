"""A week of a workload: its load by the hour, and the hours in which it runs at all.

Hours of the week count from Monday 00:00 in the time zone of the schedule (UTC without one).
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from decimal import Decimal
from functools import cache, cached_property
from importlib.resources import files
from typing import Final

from planner.facts import table
from planner.spec.schedule import window

HOURS: Final = 168
HOURS_PER_MONTH: Final = Decimal(730)  # billing convention of the three clouds


@dataclass(frozen=True)
class Week:
    """Load relative to the peak, and the running share, of each of 168 hours."""

    load: tuple[float, ...]
    running: tuple[Decimal, ...]

    @cached_property
    def mean(self) -> float:
        """Mean load of a served hour, relative to the peak, over the whole week."""
        return (
            sum(
                w * float(r)
                for w, r in zip(self.load, self.running, strict=True)
            )
            / HOURS
        )

    @cached_property
    def on_hours(self) -> Decimal:
        """Hours of a month in which anything runs."""
        return sum(self.running, Decimal(0)) / HOURS * HOURS_PER_MONTH

    def nodes(self, groups: int, unit: int, spare: int = 0) -> tuple[int, ...]:
        """Nodes of each hour when `groups` of `unit` nodes carry the peak.

        Load per group never exceeds that of the peak; at least one group runs in a running hour,
        and the spare groups beside it.
        """
        return tuple(
            _running_nodes(groups * w, unit, spare) if r else 0
            for w, r in zip(self.load, self.running, strict=True)
        )

    def node_hours(self, groups: int, unit: int, spare: int = 0) -> Decimal:
        """Node-hours of a month, scaled down with the load."""
        total = sum(
            (
                _running_nodes(groups * w, unit, spare) * r * n
                for (w, r), n in self._hours.items()
            ),
            Decimal(0),
        )
        return total / HOURS * HOURS_PER_MONTH

    @cached_property
    def _hours(self) -> Counter[tuple[float, Decimal]]:
        return Counter(zip(self.load, self.running, strict=True))


def _running_nodes(groups: float, unit: int, spare: int) -> int:
    return unit * (max(1, math.ceil(groups - 1e-9)) + spare)


@cache
def _profiles() -> dict[tuple[str, str, int], float]:
    columns = {
        "profile": table.text,
        "day": table.one_of("weekday", "weekend"),
        "hour": table.whole(0, 23),
        "weight": table.real(0, 1),
        **table.SOURCED,
    }
    text = (
        files("planner.cost")
        .joinpath("data", "profiles.csv")
        .read_text(encoding="utf-8")
    )
    found = table.rows(text, "profiles.csv", columns)
    return {(r["profile"], r["day"], r["hour"]): r["weight"] for r in found}


@cache
def week(profile: str | tuple[Decimal, ...], schedule: str | None) -> Week:
    """Return the week of a traffic profile and a schedule."""
    if isinstance(profile, str):
        days = ["weekday"] * 5 + ["weekend"] * 2
        load = [
            _profiles()[profile, day, hour]
            for day in days
            for hour in range(24)
        ]
    else:
        top = max(profile)
        load = [float(w / top) for w in profile] * (HOURS // len(profile))
    return Week(tuple(load), running(schedule))


def running(schedule: str | None) -> tuple[Decimal, ...]:
    """Return the running share of each hour of the week; everything without a schedule."""
    if schedule is None:
        return (Decimal(1),) * HOURS
    days, start, end, _ = window(schedule)
    shares = [Decimal(0)] * HOURS
    length = (end - start) % 1440 or 1440
    for day in days:
        first = day * 1440 + start
        for minute in range(first, first + length):
            shares[minute // 60 % HOURS] += 1
    return tuple(min(Decimal(1), share / 60) for share in shares)

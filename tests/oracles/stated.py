"""What the tables of the product state, read row by row without its loaders."""

from __future__ import annotations

import csv
import math
import re
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tests.conftest import ROOT

if TYPE_CHECKING:
    from numpy.typing import NDArray

MONTH_H = 730
WEEK_H = 168
DAY_H = 24
WEEKDAYS = 5
SCHEDULE = re.compile(r"weekdays (\d\d):00-(\d\d):00 \S+")
# Of a share of 100 % nobody knows the rate.
MOST_SHARE = 0.99


class Reclaims(NamedTuple):
    """How often machines on spot go, and for how long.

    monthly_share  of the machines that are taken back in a month
    is_open        whether nobody says how high that share is at most
    """

    monthly_share: float
    wait_h: float
    notice_s: float
    is_open: bool = False

    @property
    def hourly(self) -> float:
        """Reclaims of one machine an hour, so that the others are as many as are left."""
        return -math.log(1 - min(MOST_SHARE, self.monthly_share)) / MONTH_H


def _rows(path: str) -> list[dict[str, str]]:
    with (ROOT / "planner" / path).open(newline="") as file:
        return list(csv.DictReader(file))


@cache
def constant(name: str, key: str = "") -> float:
    """A row of the constants of the performance model."""
    [row] = [
        row
        for row in _rows("perf/data/constants.csv")
        if (row["constant"], row["key"]) == (name, key)
    ]
    return float(row["value"])


@cache
def release_s(rule: str) -> float:
    """A time in the life of a machine, seconds."""
    [row] = [
        row
        for row in _rows("cost/data/lifetimes.csv")
        if row["rule"] == rule and row["unit"] == "s"
    ]
    return float(row["value"])


@cache
def usage(name: str) -> float:
    """An amount that a bill assumes."""
    [row] = [
        row for row in _rows("cost/data/usage.csv") if row["usage"] == name
    ]
    return float(row["value"])


def reclaims(provider: str, machine: str, column: str) -> Reclaims:
    """Reclaims of a machine type; `column` is monthly, low or high."""
    family = machine.split(".", maxsplit=1)[0]
    rows = {
        row["family"]: row
        for row in _rows("perf/data/reclaims.csv")
        if row["provider"] == provider
    }
    row = rows.get(family, rows[""])
    return Reclaims(
        float(row[column]), float(row["wait_h"]), float(row["notice_s"])
    )


@cache
def spread_zones(provider: str) -> int:
    """Over how many zones of a region a pool is spread at most."""
    [row] = [
        row
        for row in _rows("facts/data/clouds.csv")
        if row["cloud"] == provider
    ]
    return int(row["spread_zones"])


def week_of(profile: str) -> NDArray[np.float64]:
    """The load of each hour of a week over that of the peak."""
    loads = {
        (row["day"], int(row["hour"])): float(row["weight"])
        for row in _rows("cost/data/profiles.csv")
        if row["profile"] == profile
    }
    return np.array(
        [
            loads["weekday" if day < WEEKDAYS else "weekend", hour]
            for day in range(7)
            for hour in range(DAY_H)
        ]
    )


def open_hours(schedule: str | None) -> NDArray[np.bool_]:
    """Whether anything runs in each hour of a week, of a schedule of whole hours of weekdays."""
    hours = np.arange(WEEK_H)
    if schedule is None:
        return np.ones(WEEK_H, bool)
    match = SCHEDULE.fullmatch(schedule)
    assert match is not None, schedule
    start, end = map(int, match.groups())
    of_day = hours % DAY_H
    return (hours < WEEKDAYS * DAY_H) & (start <= of_day) & (of_day < end)

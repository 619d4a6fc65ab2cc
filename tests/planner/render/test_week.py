"""The line of the week says of each hour what the table of its profile says."""

from __future__ import annotations

import csv
from decimal import Decimal

import pytest
from msgspec.structs import replace

from planner import figures
from planner.cost.weekly_load import weekly_load
from planner.render import text
from planner.render.page import LINE_WIDTH
from planner.render.week import CLOSED, DAYS, week_blocks
from planner.spec.schedule import open_minutes
from providers.catalog.load import load_catalog
from tests.conftest import ROOT, chat
from tests.stacks.engine.test_simulated import plan_of

PROFILES = ROOT / "planner" / "cost" / "data" / "profiles.csv"
HOURS = 24


def plan_with(profile: str, schedule: str | None = None):
    text_of_spec = chat(traffic=f"peak_rps: 2\n  profile: {profile}")
    plan = plan_of(load_catalog(), text_of_spec)
    shutdown = replace(plan.shutdown, schedule=schedule)
    return replace(plan, shutdown=shutdown)


def line_of(plan) -> str:
    [line] = text.render(tuple(week_blocks(plan))).splitlines()
    return line


def weights(profile: str, day: str) -> list[float]:
    with PROFILES.open(newline="") as table:
        return [
            float(row["weight"])
            for row in csv.DictReader(table)
            if (row["profile"], row["day"]) == (profile, day)
        ]


@pytest.mark.parametrize("profile", ["business-hours", "diurnal"])
def test_each_cell_is_as_high_as_its_hour(profile: str) -> None:
    words = line_of(plan_with(profile)).split()
    drawn = [word for word in words if set(word) <= set(figures.LEVELS)]
    days = [weights(profile, day) for day in ("weekday", "weekend")]
    assert [len(day) for day in drawn] == [HOURS] * len(drawn)
    for cells, day in zip(drawn, days, strict=False):
        order = [figures.LEVELS.index(cell) for cell in cells]
        for one in range(HOURS):
            for other in range(HOURS):
                if day[one] <= day[other]:
                    assert order[one] <= order[other]


def test_flat_traffic_has_no_line() -> None:
    assert week_blocks(plan_with("flat")) == []


def test_hours_without_machines_are_marked() -> None:
    schedule = "weekdays 06:00-22:00 Europe/Berlin"
    line = line_of(plan_with("business-hours", schedule))
    closed = open_minutes(schedule)[::60].count(False)
    weekdays = 5
    shut_a_weekday = (closed - 2 * HOURS) // weekdays
    assert line.count(CLOSED) == shut_a_weekday + HOURS
    assert f"{DAYS[0]} to {DAYS[4]}" in line
    assert f"{DAYS[5]} to {DAYS[6]}" in line


def test_days_that_differ_are_drawn_each() -> None:
    hourly = [(hour * 7) % 97 + 1 for hour in range(7 * HOURS)]
    line = line_of(plan_with(str(hourly)))
    assert len(line) <= LINE_WIDTH
    cells = [w for w in line.split() if set(w) <= set(figures.LEVELS)]
    assert len(cells) == len(DAYS)
    week = weekly_load(tuple(map(Decimal, hourly)), None).relative_load
    for number, day in enumerate(cells):
        loads = week[number * HOURS : (number + 1) * HOURS]
        assert day == "".join(
            figures.level(max(loads[start : start + 3]))
            for start in range(0, HOURS, 3)
        )

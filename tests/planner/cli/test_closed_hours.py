"""An apply outside the hours of a schedule says what that costs, before anything is made."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner import figures
from planner.spec.schedule import minutes_until_open, open_minutes
from tests.conftest import chat
from tests.planner.cli.conftest import Command

HOURS = "weekdays 06:00-22:00 Europe/Berlin"
TEXT = chat(
    extra=f'shutdown: {{schedule: "{HOURS}"}}\nwhere: {{clouds: [aws]}}'
)


@given(
    st.sampled_from(
        ["weekdays 07:00-20:00", "daily 22:00-06:00", "sat,sun 00:00-24:00"]
    ),
    st.integers(0, 10_079),
)
def test_it_opens_after_the_last_minute_in_which_it_is_closed(
    schedule: str, minute: int
) -> None:
    left = minutes_until_open(schedule, minute)
    is_open = open_minutes(schedule)
    closed = [is_open[(minute + after) % 10_080] for after in range(left)]
    assert not any(closed)
    assert is_open[(minute + left) % 10_080]


def world_at(here: Path, moment: str) -> str:
    (here / "w.yaml").write_text(f"clock: {moment}\n")
    return "w.yaml"


@pytest.mark.parametrize("saved", [False, True])
def test_a_weekend_is_told_before_it_is_paid(
    tonnage: Command, here: Path, saved: bool
) -> None:
    (here / "s.yaml").write_text(TEXT)
    world = world_at(here, "2026-01-02T21:30:00Z")
    argument = "s.yaml"
    if saved:
        argument = "p.json"
        plan = ("plan", "s.yaml", "--simulate", world, "-o", argument)
        assert tonnage(*plan)[0] == 0
    code, _, told = tonnage("apply", argument, "--simulate", world, "--yes")
    assert code == 0
    [note] = [line for line in told.splitlines() if "it is outside" in line]
    assert "until the hours of Monday 06:00 end" in note
    friday = datetime(2026, 1, 2, 22, 30, tzinfo=ZoneInfo("Europe/Berlin"))
    monday = datetime(2026, 1, 5, 6, 0, tzinfo=ZoneInfo("Europe/Berlin"))
    hours = Decimal((monday - friday) / timedelta(hours=1))
    document = tonnage("plan", "s.yaml", "--simulate", world, "-f", "json")[1]
    usd_hour = Decimal(json.loads(document)["cost"]["usd_hour"])
    assert f"end: {figures.dollars(usd_hour * hours)} for" in note
    # A second apply makes no machine.
    code, _, told = tonnage("apply", "s.yaml", "--simulate", world, "--yes")
    assert code == 0
    assert "it is outside" not in told


def test_within_the_hours_nothing_is_said(tonnage: Command, here: Path) -> None:
    (here / "s.yaml").write_text(TEXT)
    world = world_at(here, "2026-01-02T08:00:00Z")
    _, _, told = tonnage("apply", "s.yaml", "--simulate", world, "--yes")
    assert "it is outside" not in told

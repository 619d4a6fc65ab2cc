"""Time in the simulated clouds: what was built gives machines back, and costs what was planned."""

from __future__ import annotations

import re
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner import api
from planner.plan.types import Plan
from providers.simulated.bill import metered_lines, usd_hour_now
from providers.simulated.clock import RELAUNCH_S, advance
from providers.simulated.shared import SharedWorld
from providers.simulated.world_file import read_world
from providers.size_rule import SizeRule, yearly_moment
from stacks.engine.protocol import RunControl
from stacks.engine.simulated import SimulatedEngine
from tests.conftest import BLUEPRINTS, chat

CLOUDS = ("aws", "gcp", "azure")
HOUR = 3600
DAY = 24 * HOUR
# What is paid for as long as it exists. Everything else is paid by use.
BY_TIME = {
    "accelerators",
    "bastion",
    "disk",
    "kept_disk",
    "load_balancer",
    "machine_address",
    "nat",
    "nat_per_node",
    "public_ip",
    "storage",
}


# Blueprints of what has no end. A meter knows no commitment, so translate-small is none of them.
MONTHLY = (
    "agent-gpt-oss",
    "chat-405b",
    "chat-70b",
    "chat-8b",
    "code-assistant",
    "moe-deepseek-r1",
    "rag-prefix-cache",
    "workspace-night",
)


def quiet(event) -> None:
    """Listens to nothing."""


def blueprint(name: str, cloud: str) -> str:
    """A blueprint on one cloud, whatever it says of clouds."""
    text = next(b for b in BLUEPRINTS if b.stem == name).read_text()
    if "\n  clouds: " in text:
        return re.sub(r"\n  clouds: .*", f"\n  clouds: [{cloud}]", text)
    if "\nwhere:\n" in text:
        return text.replace("\nwhere:\n", f"\nwhere:\n  clouds: [{cloud}]\n")
    return text + f"\nwhere: {{clouds: [{cloud}]}}\n"


def standing(
    catalog, text: str, here: Path, rules: str = "project: mine"
) -> tuple[Plan, SimulatedEngine]:
    plan = api.plan(text.encode(), catalog=catalog, alternatives=0)
    engine = SimulatedEngine(
        read_world(rules.encode(), "w.yaml"), here / "clouds"
    )
    engine.apply(plan, quiet)
    return plan, engine


def nodes(world: SharedWorld) -> int:
    return sum(h.nodes for h in world.view().memory.history.values())


@pytest.mark.parametrize("cloud", CLOUDS)
@pytest.mark.parametrize("name", MONTHLY)
def test_the_bill_of_weeks_is_that_of_the_plan(
    here, catalog, name, cloud
) -> None:
    """Schedules are those that were built, hours are counted by the second."""
    play_weeks(here, catalog, blueprint(name, cloud))


# A plan counts on hours in which spot is away, and this world takes nothing back.
@pytest.mark.parametrize(("spot", "within"), [("never", 0.01), ("only", 0.03)])
@pytest.mark.parametrize("cloud", CLOUDS)
def test_addresses_of_machines_are_paid_in_the_hours_of_the_machines(
    here, catalog, cloud, spot, within
) -> None:
    """As the bill says; and there is no NAT that costs anything."""
    text = chat(
        extra="shutdown: {schedule: 'weekdays 07:00-19:00 UTC'}\n"
        f"network: {{public_addresses: true}}\nbuy: {{spot: {spot}}}\n"
        f"where: {{clouds: [{cloud}]}}"
    )
    found = play_weeks(here, catalog, text, within)
    assert found["machine_address"] > 0
    assert not found.keys() & {"nat", "nat_per_node", "public_ip"}


def play_weeks(
    here: Path, catalog, text: str, within: float = 0.01
) -> dict[str, float]:
    """What a plan costs in eight weeks, by kind and brought to a month, is what its bill says."""
    plan, engine = standing(catalog, text, here)
    world = engine.shared_world
    # What is made outside its hours runs until their first end.
    advance(world, DAY)
    begin = world.view().memory.seconds
    weeks = 8
    advance(world, weeks * 7 * DAY)
    memory = world.view().memory
    month = 730 / (weeks * 7 * 24)
    found = {
        line.kind: float(line.usd) * month
        for line in metered_lines(memory, catalog, begin, memory.seconds)
    }
    planned: dict[str, float] = {}
    for line in plan.cost.lines:
        if line.kind in BY_TIME:
            planned[line.kind] = planned.get(line.kind, 0.0) + float(
                line.usd or 0
            )
    assert found.keys() & BY_TIME == planned.keys()
    for kind, usd in planned.items():
        assert found[kind] == pytest.approx(usd, rel=within, abs=0.01), kind
    return found


@pytest.mark.parametrize("cloud", CLOUDS)
def test_at_the_deadline_everything_is_given_back_for_good(
    here, catalog, cloud
) -> None:
    """The bill of a run that ends is that of its life, on every cloud."""
    text = chat(
        extra="shutdown: {ttl: 3d, schedule: 'daily 06:00-22:00 UTC'}\n"
        f"where: {{clouds: [{cloud}]}}"
    )
    plan, engine = standing(catalog, text, here)
    world = engine.shared_world
    begin = world.view().memory.seconds
    advance(world, 3 * DAY)
    assert nodes(world) == 0
    advance(world, 60 * DAY)
    assert nodes(world) == 0
    memory = world.view().memory
    machines = next(
        line
        for line in metered_lines(memory, catalog, begin, memory.seconds)
        if line.kind == "accelerators"
    )
    planned = sum(
        float(line.usd or 0)
        for line in plan.cost.lines
        if line.kind == "accelerators"
    )
    # The first day begins at midnight: the machines stand before their first hour.
    pool = plan.solution.pools[0]
    first_hours = 6 * pool.nodes * float(pool.usd_per_hour)
    assert float(machines.usd) == pytest.approx(planned + first_hours, rel=0.05)


LOSSES = "losses: [{per_day: 2}]\nseed: SEED"


@pytest.mark.parametrize("seed", [1, 2])
def test_time_in_pieces_is_time_at_once(here, catalog, seed) -> None:
    text = chat(traffic="peak_rps: 60", extra="where: {clouds: [aws]}")
    rules = LOSSES.replace("SEED", str(seed))
    _, engine = standing(catalog, text, here / "one", rules)
    shutil.copytree(here / "one", here / "other")
    other = SimulatedEngine(engine.world, here / "other" / "clouds")
    at_once = advance(engine.shared_world, 5 * DAY)
    pieces = []
    for seconds in (HOUR, 100.0, 2 * DAY - HOUR, 3 * DAY - 100.0):
        pieces += advance(other.shared_world, seconds)
    assert pieces == at_once
    assert other.shared_world.view().memory == engine.shared_world.view().memory


def test_what_is_lost_comes_back_and_is_not_billed_meanwhile(
    here, catalog
) -> None:
    text = chat(traffic="peak_rps: 60", extra="where: {clouds: [aws]}")
    _, engine = standing(catalog, text, here, "losses: [{per_day: 4}]")
    world = engine.shared_world
    before = nodes(world)
    begin = world.view().memory.seconds
    events = advance(world, 10 * DAY)
    lost = [e for e in events if e.kind == "lost"]
    # Poisson: 4 a day and node, within five standard deviations.
    mean = 4 * 10 * before
    assert abs(len(lost) - mean) < 5 * mean**0.5
    advance(world, RELAUNCH_S)
    back = [e for e in world.view().memory.events if e.kind == "back"]
    assert len(back) >= len(lost)
    memory = world.view().memory
    hours = next(
        line.hours
        for line in metered_lines(memory, catalog, begin, memory.seconds)
        if line.kind == "accelerators"
    )
    stretch = (memory.seconds - begin) / HOUR
    absent = len(lost) * RELAUNCH_S / HOUR
    assert hours == pytest.approx(before * stretch - absent, rel=0.01)


def test_spot_is_told_before_and_a_cloud_without_capacity_keeps_it(
    here, catalog
) -> None:
    text = chat(extra="buy: {spot: only}\nwhere: {clouds: [aws]}")
    plan, engine = standing(catalog, text, here)
    start = nodes(engine.shared_world)
    assert start
    none_left = read_world(
        b"capacity: [{nodes: 0}]\nlosses: [{purchase: spot, per_day: 9}]",
        "w.yaml",
    )
    world = SharedWorld(none_left, engine.folder)
    events = advance(world, 20 * DAY)
    kinds = [e.kind for e in events]
    assert kinds.count("lost") == start
    assert "refused" in kinds
    for number, kind in enumerate(kinds):
        if kind == "lost":
            told = [e for e in events[:number] if e.kind == "notice"]
            # AWS says it two minutes before.
            assert told[-1].second == pytest.approx(events[number].second - 120)
    assert nodes(world) == 0
    assert usd_hour_now(world.view().memory, catalog) > 0
    engine.destroy(
        plan.stack.name, quiet, RunControl(allow=frozenset({"delete-data"}))
    )
    assert usd_hour_now(engine.shared_world.view().memory, catalog) == 0


@given(
    days=st.sets(st.integers(0, 6), min_size=1),
    minute=st.integers(0, 1439),
    zone=st.sampled_from(["UTC", "Europe/Berlin", "America/New_York"]),
    start=st.integers(0, 365 * 24 * 60),
)
@settings(max_examples=60)
def test_a_weekly_rule_is_due_on_its_days_alone(
    days, minute, zone, start
) -> None:
    """Four weeks have four times each day, whatever the clocks do."""
    begin = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(minutes=start)
    rule = SizeRule(
        group="g",
        minimum=0,
        maximum=1,
        weekdays=tuple(days),
        minute_of_day=minute,
        timezone=zone,
    )
    times = list(rule.times(begin, begin + timedelta(weeks=4)))
    assert times == sorted(times)
    # A change of the clocks moves a time over an edge of the four weeks at most once.
    assert abs(len(times) - 4 * len(days)) <= 1
    half = begin + timedelta(weeks=2)
    assert times == [
        *rule.times(begin, half),
        *rule.times(half, begin + timedelta(weeks=4)),
    ]


def test_a_day_of_the_year_is_the_next_one() -> None:
    after = datetime(2026, 11, 23, 12, 0, tzinfo=UTC)
    assert yearly_moment("30 7 24 11 *", after) == datetime(
        2026, 11, 24, 7, 30, tzinfo=UTC
    )
    assert yearly_moment("30 7 2 1 *", after) == datetime(
        2027, 1, 2, 7, 30, tzinfo=UTC
    )

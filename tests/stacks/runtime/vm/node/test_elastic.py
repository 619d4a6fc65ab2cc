"""Machines of an elastic service: how many are wanted, and what a group does in a day."""

from __future__ import annotations

import datetime as dt
import math
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stacks.runtime.vm.node.elastic import read_rule
from stacks.runtime.vm.node.host import RequestError
from tests.stacks.runtime.vm.sandbox import (
    HOUR,
    MINUTE,
    SandboxMachine,
    World,
    settings_of,
)

# Two machines at the least, six at the most, another one from 10 requests on each.
SETTINGS = {
    "least": [2] * 168,
    "zone": "UTC",
    "most": 6,
    "target": 10.0,
    "spare": 0,
    "startup_s": 480,
    "linger_s": 960,
}
RULE = read_rule(SETTINGS, print)
MOMENT = dt.datetime(2026, 11, 24, 12, tzinfo=dt.UTC)
MONDAY_6 = dt.datetime(2026, 7, 6, 6, tzinfo=dt.UTC)


@given(st.floats(0, 1000), st.floats(0.5, 100), st.integers(1, 5))
def test_as_many_machines_as_keep_below_the_target(
    requests: float, target: float, least: int
) -> None:
    rule = RULE._replace(target=target, least=[least] * 168)
    wanted = rule.wanted(requests, MOMENT)
    assert least <= wanted <= rule.most
    if wanted < rule.most:
        assert requests <= wanted * target * (1 + 1e-9) + 1e-9
    if wanted > least:
        assert requests > (wanted - 1) * target * (1 - 1e-9)


def test_spare_machines_stand_beside_those_that_the_load_takes() -> None:
    rule = RULE._replace(spare=1)
    assert [rule.wanted(n, MOMENT) for n in (0, 15, 25, 45, 99)] == [
        2,
        3,
        4,
        6,
        6,
    ]


def test_hours_are_those_of_the_schedule_also_in_summer() -> None:
    # From Monday 08:00 in Berlin on, which is 06:00 UTC in July and 07:00 in January.
    least = [1] * 8 + [4] * 160
    berlin = ZoneInfo("Europe/Berlin")
    rule = RULE._replace(least=least, zone=berlin, startup_s=60)
    assert rule.least_at(MONDAY_6 - dt.timedelta(minutes=5)) == 1
    assert rule.least_at(MONDAY_6) == 4
    january = dt.datetime(2026, 1, 5, 6, tzinfo=dt.UTC)
    assert rule.least_at(january) == 1
    assert rule.least_at(january + dt.timedelta(hours=1)) == 4


def test_machines_of_an_hour_are_asked_for_before_it_begins() -> None:
    rule = RULE._replace(least=[1] * 6 + [4] * 162, startup_s=480)
    assert rule.least_at(MONDAY_6 - dt.timedelta(minutes=9)) == 1
    assert rule.least_at(MONDAY_6 - dt.timedelta(minutes=8)) == 4


def test_without_time_zones_all_hours_are_the_busiest() -> None:
    told: list[str] = []
    settings = SETTINGS | {"zone": "Mars/Olympus", "least": [1] * 167 + [5]}
    assert read_rule(settings, told.append).least_at(MONDAY_6) == 5
    assert "Mars/Olympus" in told[0]


def serving(world: World, count: int, **changes: Any) -> None:
    world.upload(
        "models/llama-3.1-8b/",
        ["config.json", "model.safetensors", "tokenizer.json"],
    )
    settings = settings_of(world.provider, "serve")
    settings["agent"]["elastic"] = SETTINGS | changes
    settings["agent"]["limits"]["idle"] = 0
    for _ in range(count):
        world.add("serve", settings)


def sizes_of(world: World, until_s: float) -> list[tuple[float, int]]:
    """The sizes of the group each minute, while time goes on."""
    sizes = []
    while world.timeline.now_s < until_s:
        world.run(world.timeline.now_s + MINUTE)
        sizes.append((world.timeline.now_s, world.wished))
    return sizes


def test_machines_come_with_the_load_and_go_after_it(world: World) -> None:
    world.requests = lambda now_s: 45.0 if HOUR <= now_s < 2 * HOUR else 12.0
    serving(world, 2)
    sizes = sizes_of(world, 4 * HOUR)
    assert {size for at, size in sizes if at < HOUR} == {2}
    # Two looks, a minute apart, and the one in which the load was not yet that of the minute.
    asked_s = min(at for at, size in sizes if size == 5)
    assert HOUR + MINUTE <= asked_s <= HOUR + 5 * MINUTE
    assert max(size for _, size in sizes) == 5
    assert len(world.answering()) == 2
    left_s = min(at for at, size in sizes if at > 2 * HOUR and size == 4)
    gone_s = min(at for at, size in sizes if at > 2 * HOUR and size == 2)
    assert left_s >= 2 * HOUR + RULE.linger_s - 2 * MINUTE
    # One at a time.
    assert left_s + 2 * MINUTE <= gone_s <= left_s + 6 * MINUTE
    assert sizes[-1][1] == 2


def test_never_more_than_the_most(world: World) -> None:
    world.requests = lambda _: 1000.0
    serving(world, 2)
    sizes = sizes_of(world, 2 * HOUR)
    assert max(size for _, size in sizes) == sizes[-1][1] == RULE.most
    assert len(world.answering()) == RULE.most


def test_a_burst_of_a_minute_brings_no_machine(world: World) -> None:
    world.requests = lambda now_s: 30.0 if HOUR <= now_s < HOUR + 40 else 12.0
    serving(world, 2)
    assert {size for _, size in sizes_of(world, 2 * HOUR)} == {2}


def test_another_machine_leads_when_the_first_is_dead(world: World) -> None:
    # The machine whose agent is dead answers a third of them, and says nothing of it.
    world.requests = lambda now_s: 60.0 if now_s >= HOUR else 12.0
    serving(world, 3, least=[3] * 168)
    first = world.machines[0]
    world.timeline.at(HOUR - MINUTE, first.kill_agent)
    sizes = sizes_of(world, HOUR + 20 * MINUTE)
    asked_s = min(at for at, size in sizes if size >= 4)
    assert asked_s <= HOUR + 10 * MINUTE


def test_the_last_one_leaves_when_nobody_asks(world: World) -> None:
    world.requests = lambda now_s: 12.0 if now_s < HOUR else 0.0
    serving(world, 2, least=[0] * 168)
    sizes = sizes_of(world, 2 * HOUR)
    one_s = min(at for at, size in sizes if size == 1)
    none_s = min(at for at, size in sizes if size == 0)
    assert HOUR < one_s < none_s
    assert none_s >= HOUR + RULE.linger_s
    assert world.answering() == []
    # Whoever starts it again has machines that follow the load.
    world.requests = lambda _: 12.0
    world.resize(world.machines[0], 1)
    assert {size for _, size in sizes_of(world, 4 * HOUR)[60:]} == {2}


def test_one_that_works_between_looks_stays(world: World) -> None:
    """A request of a second in each five minutes is seen by no look of a minute."""
    world.requests = lambda now_s: 1.0 if now_s % 300 < 15 else 0.0
    serving(world, 1, least=[0] * 168)
    assert {size for _, size in sizes_of(world, 3 * HOUR)} == {1}


def test_what_was_stopped_by_hand_stays_stopped(world: World) -> None:
    world.requests = lambda _: 45.0
    serving(world, 2)
    world.run(30 * MINUTE)
    world.wished = 0
    asked = [m for m in world.machines if not m.is_up]
    sizes = sizes_of(world, HOUR)
    assert {size for _, size in sizes} == {0}
    assert [m for m in world.machines if not m.is_up] == asked


def test_a_cloud_that_has_no_machine_is_asked_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def refuse(_: SandboxMachine, nodes: int) -> None:
        asked.append(nodes)
        raise RequestError(400, "InsufficientInstanceCapacity")

    monkeypatch.setattr(world, "resize", refuse)
    world.requests = lambda _: 45.0
    serving(world, 2)
    world.run(HOUR)
    assert len(asked) > 10
    assert asked[-1] == math.ceil(45 / RULE.target)
    assert any(
        "InsufficientInstanceCapacity" in line
        for line in world.machines[0].log_lines
    )

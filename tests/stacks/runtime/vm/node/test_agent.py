"""Agents: what they decide, and what the others do when one of them is dead."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stacks.runtime.vm.node.agent import Limits, release_of
from stacks.runtime.vm.node.host import RequestError
from stacks.runtime.vm.node.work import WorkState
from stacks.spec.metric import told_metrics
from tests.stacks.runtime.vm.sandbox import (
    DAY,
    HOUR,
    MINUTE,
    World,
    settings_of,
    stack_of,
)

WEIGHTS = ["config.json", "model.safetensors", "tokenizer.json"]

LIMITS = Limits(start=2700, wait=7200, grace=1800, idle=3600, ttl=100_000)
PHASES = (
    "starting",
    "waiting",
    "spare",
    "working",
    "done",
    "failed",
    "unhealthy",
)


def state(
    phase: str,
    since_s: float = 0,
    told_s: float = math.inf,
    busy_s: float = 0,
) -> WorkState:
    return WorkState(phase, "step", "why", since_s, told_s, busy_s)


@pytest.mark.parametrize(
    ("now_s", "work", "reason"),
    [
        (2699, None, ""),
        (2700, None, "never begun"),
        (2699, state("starting"), ""),
        (2700, state("starting"), "did not get beyond: step: why"),
        (5000, state("starting", 4000), ""),
        (7199, state("waiting"), ""),
        (7200, state("waiting"), "waited too long"),
        (90_000, state("spare"), ""),
        (5399, state("working"), ""),  # half an hour of boot is no idleness
        (5400, state("working"), "nobody asked"),
        (9000, state("working", busy_s=8000), ""),
        (99_999, state("working", busy_s=99_999), ""),
        (100_000, state("working", busy_s=100_000), "time to live"),
        (10, state("done"), "done"),
        (10, state("failed"), "fails again and again: why"),
        (10, state("unhealthy"), "broken: why"),
        # Work that says nothing does not run, whatever it said at last.
        (9000, state("spare", told_s=6301), ""),
        (9000, state("spare", told_s=6300), "did not get beyond"),
    ],
)
def test_a_node_is_given_back_for_a_reason(
    now_s: float, work: WorkState | None, reason: str
) -> None:
    release = release_of(now_s, now_s, work, LIMITS)
    assert (release is None) == (not reason)
    if release is not None:
        assert reason in release.reason
        assert release.is_replaced == (
            work is not None and work.phase == "unhealthy"
        )


@given(
    st.sampled_from(PHASES),
    st.floats(0, 90_000),
    st.floats(0, 90_000),
    st.floats(0, 90_000),
)
def test_without_limits_only_what_has_ended_is_given_back(
    phase: str, now_s: float, since_s: float, busy_s: float
) -> None:
    none = Limits(start=0, wait=0, grace=0, idle=0, ttl=0)
    work = state(phase, since_s, told_s=0.0, busy_s=busy_s)
    release = release_of(now_s, now_s, work, none)
    assert (release is not None) == (phase in PHASES[4:])


def serving(world: World, machines: int) -> None:
    world.upload(
        "models/llama-3.1-8b/",
        ["config.json", "model.safetensors", "tokenizer.json"],
    )
    world.has_traffic = lambda _: True
    settings = settings_of(world.provider, "serve")
    for _ in range(machines):
        world.add("serve", settings)


def test_a_machine_without_an_agent_is_given_back_by_the_others(
    world: World,
) -> None:
    serving(world, machines=3)
    wedged = world.machines[1]
    world.timeline.at(HOUR, wedged.kill_agent)
    world.run(DAY, lambda: not wedged.is_up)
    assert wedged.ended_s is not None
    assert wedged.ended_s <= HOUR + 45 * MINUTE
    world.run(3 * HOUR)
    assert [m.is_up for m in world.machines] == [True, False, True]


def test_machines_with_agents_leave_each_other_alone(world: World) -> None:
    serving(world, machines=3)
    world.run(3 * HOUR)
    assert all(m.is_up for m in world.machines)


def test_a_machine_that_the_cloud_took_is_forgotten(world: World) -> None:
    serving(world, machines=2)
    world.run(HOUR)
    gone, stays = world.machines
    world.end(gone, replaced=False)
    world.run(2 * HOUR)
    assert stays.is_up
    alive = [key for key in world.objects if key.startswith("alive/")]
    assert len(alive) == 1
    assert json.loads(world.objects[alive[0]][0])["handle"].endswith(
        stays.name.rpartition("_")[2]
    )


def test_a_spot_machine_that_is_stopped_stays_in_its_group(
    tmp_path: Path,
) -> None:
    """Google Cloud stops a machine that it takes back; its group starts it when it can."""
    world = World("gcp", tmp_path)
    serving(world, machines=2)
    world.run(HOUR)
    stopped = world.machines[0]
    stopped.is_stopped = True
    stopped.shut_down()
    world.run(2 * HOUR)
    assert stopped.is_up
    stopped.is_stopped = False
    stopped.reboot()
    world.run(3 * HOUR)
    assert all(m.is_up for m in world.machines)
    assert len([k for k in world.objects if k.startswith("alive/")]) == 2
    world.timeline.close()


def test_nobody_is_ended_while_the_bucket_is_not_reached(world: World) -> None:
    serving(world, machines=2)
    world.is_online = lambda: not HOUR < world.timeline.now_s < 4 * HOUR
    world.run(5 * HOUR)
    assert all(m.is_up for m in world.machines)


def test_in_200_weeks_of_traffic_billing_ends_after_the_idle_limit() -> None:
    """Requests in random bursts: a machine stays between them and leaves after the last of all."""
    draw = random.Random(1)
    for _ in range(200):
        idle_s = draw.choice([HOUR / 2, HOUR, 3 * HOUR, 12 * HOUR])
        limits = Limits(start=2700, wait=7200, grace=1800, idle=idle_s, ttl=0)
        boot_s = draw.uniform(60, 2600)
        requests_s = [boot_s]
        while requests_s[-1] < 7 * DAY and draw.random() < 0.98:
            # Most gaps are short, and some are longer than the limit.
            requests_s.append(
                requests_s[-1] + idle_s * draw.expovariate(1) * 0.3
            )
        ended_s = ends_at(requests_s, boot_s, limits)
        # The first look after the limit ends it, and sees what came until then.
        end_s = math.inf
        for request_s in requests_s:
            if request_s > end_s:
                break
            limit_s = max(request_s, limits.grace) + idle_s
            end_s = math.ceil(limit_s / 20) * 20
        assert ended_s == end_s


def ends_at(requests_s: list[float], boot_s: float, limits: Limits) -> float:
    """When the agent gives a machine back that is looked at three times a minute."""
    now_s, busy_s, position = 0.0, 0.0, 0
    while True:
        while position < len(requests_s) and requests_s[position] <= now_s:
            busy_s, position = requests_s[position], position + 1
        phase = "starting" if now_s < boot_s else "working"
        busy_s = now_s if phase == "starting" else busy_s
        work = state(phase, told_s=now_s, busy_s=busy_s)
        if release_of(now_s, now_s, work, limits):
            return now_s
        now_s += 20


def busy_values(world: World, after_s: float) -> list[float]:
    return [
        values["Busy"]
        for time_s, _, values in world.metrics
        if "Busy" in values and time_s > after_s
    ]


def test_a_start_that_says_nothing_for_long_is_no_idleness(
    world: World,
) -> None:
    """From outside idle machines are ended, and a large image or large weights take their time."""
    slept: list[bool] = []

    def take_long() -> bool:
        if not slept:
            slept.append(True)
            machine.sleep(40 * MINUTE)
        return False

    world.upload("models/llama-3.1-8b/", ["config.json"])
    machine = world.add("serve", failures={"docker": take_long})
    world.run(39 * MINUTE)
    assert busy_values(world, 0)
    assert all(busy_values(world, 0))


def test_a_machine_that_cannot_be_given_back_is_idle_from_outside(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may not end itself: then the alarm must."""

    def refuse(*_: object, **__: object) -> None:
        raise RequestError(403, "not allowed")

    monkeypatch.setattr(world, "end", refuse)
    machine = world.add("serve")
    world.run(4 * HOUR)
    assert machine.is_up
    # Its weights never come, so that it is given back again and again.
    assert not any(busy_values(world, 2 * HOUR))


def troubled(world: World) -> list[float]:
    """When trouble was told."""
    return [
        time_s
        for time_s, _, values in world.metrics
        if values.get("Trouble") == 1
    ]


def test_work_that_fails_is_trouble_for_some_minutes(world: World) -> None:
    world.has_traffic = lambda _: True
    world.upload("models/llama-3.1-8b/", WEIGHTS)
    machine = world.add("serve")

    def die() -> None:
        machine.containers["tonnage-serve"].is_running = False

    world.timeline.at(HOUR, die)
    world.run(3 * HOUR)
    assert machine.is_up
    # Alarms look at five minutes.
    assert HOUR <= min(troubled(world)) <= HOUR + 2 * MINUTE
    assert HOUR + 5 * MINUTE <= max(troubled(world)) <= HOUR + 15 * MINUTE


def test_a_machine_that_breaks_says_so_before_it_leaves(world: World) -> None:
    world.upload("models/llama-3.1-8b/", WEIGHTS)
    machine = world.add("serve", accelerators=7)
    world.run(10 * MINUTE)
    assert machine.name in {
        name for _, name, values in world.metrics if values.get("Trouble")
    }


def test_what_is_planned_is_no_trouble(world: World) -> None:
    world.upload("models/llama-3.1-8b/", WEIGHTS)
    machine = world.add("serve")
    world.run(DAY, lambda: not machine.is_up)
    assert not machine.is_up
    assert troubled(world) == []


@pytest.mark.parametrize("role", ["serve", "workspace"])
def test_machines_tell_what_alarms_and_charts_show(
    world: World, role: str
) -> None:
    world.has_traffic = lambda _: True
    world.upload("models/llama-3.1-8b/", WEIGHTS)
    world.add(role, utilization=80.0)
    world.run(30 * MINUTE)
    told: dict[str, float] = {}
    for _, _, values in world.metrics:
        told |= values
    stack = stack_of(world.provider, role)
    assert told.keys() == {metric.name for metric in told_metrics(stack)}
    count = settings_of(world.provider, role)["health"]["accelerators"]
    assert told["Utilization"] == 80
    assert told["Power"] == pytest.approx(350.5 * count)
    if role == "serve":
        # The engine of the sandbox runs one request, and makes a token a second.
        assert (told["Requests"], told["Tokens"]) == (1, 1)

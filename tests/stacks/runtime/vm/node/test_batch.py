"""Machines that answer a batch: every line once, whoever is lost, and then nobody is paid."""

from __future__ import annotations

import json
from concurrent.futures import Future, wait
from types import SimpleNamespace
from typing import Any

import pytest

from stacks.runtime.vm.node import batch as node_batch
from tests.stacks.runtime.vm.sandbox import (
    DAY,
    HOUR,
    MINUTE,
    SandboxMachine,
    World,
    settings_of,
    state_of,
)

MODEL = "models/llama-3.1-8b/"
WEIGHTS = ["config.json", "model.safetensors", "tokenizer.json"]


def submit(world: World, files: int, lines: int = 5) -> None:
    for number in range(files):
        text = "".join(
            json.dumps({"custom_id": f"{number}-{line}", "body": {"n": line}})
            + "\n"
            for line in range(lines)
        )
        world.put(f"batch/job/input/{number:05d}.jsonl", text.encode())
    world.put("batch/job/manifest.json", json.dumps({"files": files}).encode())


def batch(world: World, machines: int = 1) -> list[SandboxMachine]:
    world.upload(MODEL, WEIGHTS)
    return [world.add("batch") for _ in range(machines)]


def lines_of(world: World, part: str) -> list[dict[str, Any]]:
    return [
        json.loads(line)
        for key, (data, _) in sorted(world.objects.items())
        if f"/{part}/" in key
        for line in data.decode().splitlines()
    ]


def answered(world: World) -> list[str]:
    return sorted(line["custom_id"] for line in lines_of(world, "output"))


def test_every_line_is_answered_once_and_the_machines_are_given_back(
    world: World,
) -> None:
    submit(world, files=6)
    machines = batch(world, machines=2)
    world.run(DAY, lambda: not any(m.is_up for m in machines))
    assert world.timeline.now_s < 30 * MINUTE
    assert answered(world) == sorted(
        f"{n}-{line}" for n in range(6) for line in range(5)
    )
    assert lines_of(world, "errors") == []
    first = lines_of(world, "output")[0]
    assert first["response"]["status_code"] == 200
    assert not any("/lease/" in key for key in world.objects)


def test_a_file_of_a_lost_machine_is_taken_by_another_one(
    world: World,
) -> None:
    submit(world, files=3)
    machines = batch(world, machines=2)
    lost = machines[0]
    # It had taken a file and was gone before it answered.
    world.put(
        "batch/job/lease/00000.jsonl", json.dumps({"node": lost.name}).encode()
    )
    world.end(lost, replaced=False)
    world.run(DAY, lambda: not any(m.is_up for m in machines))
    assert world.timeline.now_s < 30 * MINUTE
    assert len(answered(world)) == 15


@pytest.fixture
def slow_answers(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every answer takes ten minutes, and all machines go on meanwhile."""
    ends_s: dict[int, float] = {}

    def slow_wait(futures: list[Future[Any]], timeout: float) -> Any:
        program = world.timeline.current()
        assert program is not None
        end_s = ends_s.setdefault(
            id(futures[0]), world.timeline.now_s + 10 * MINUTE
        )
        if world.timeline.now_s < end_s:
            program.sleep(timeout)
            return SimpleNamespace(done=set())
        return wait(futures)

    monkeypatch.setattr(node_batch, "wait", slow_wait)


@pytest.mark.usefixtures("slow_answers")
def test_a_machine_keeps_its_file_while_it_waits_for_one_answer(
    world: World,
) -> None:
    submit(world, files=1, lines=3)
    machines = batch(world, machines=2)
    world.run(DAY, lambda: not any(m.is_up for m in machines))
    assert len(answered(world)) == 3
    logs = [line for machine in machines for line in machine.log_lines]
    assert not any("has taken it" in line for line in logs)
    # Nobody answered a line twice: half an hour of answers, and the start.
    assert world.timeline.now_s < 40 * MINUTE


@pytest.mark.usefixtures("slow_answers")
def test_a_bucket_that_is_away_for_a_moment_costs_no_answers(
    world: World,
) -> None:
    submit(world, files=1, lines=3)
    machines = batch(world, machines=2)
    world.is_online = lambda: (
        not 15 * MINUTE < world.timeline.now_s < 18 * MINUTE
    )
    world.run(DAY, lambda: not any(m.is_up for m in machines))
    assert len(answered(world)) == 3
    logs = [line for machine in machines for line in machine.log_lines]
    assert any("is not renewed" in line for line in logs)
    assert world.timeline.now_s < 40 * MINUTE


@pytest.mark.usefixtures("slow_answers")
def test_a_machine_that_is_taken_back_leaves_its_file_to_another_one(
    world: World,
) -> None:
    submit(world, files=1, lines=2)
    machines = batch(world, machines=2)
    world.run(DAY, lambda: any("/lease/" in key for key in world.objects))
    [lease] = [key for key in world.objects if "/lease/" in key]
    holder = json.loads(world.objects[lease][0])["node"]
    [first] = [m for m in machines if holder.endswith(m.name[-1])]
    first.notice = True
    noticed_s = world.timeline.now_s
    world.run(DAY, lambda: lease not in world.objects)
    assert world.timeline.now_s - noticed_s <= 30
    world.run(DAY, lambda: not any(m.is_up for m in machines if m != first))
    assert len(answered(world)) == 2


def test_what_is_no_request_stands_beside_the_answers(world: World) -> None:
    submit(world, files=1)
    text = b'nonsense\n{"body": {}}\n{"custom_id": "good", "body": {}}\n'
    world.put("batch/job/input/00000.jsonl", text)
    machines = batch(world)
    world.run(DAY, lambda: not any(m.is_up for m in machines))
    assert answered(world) == ["good"]
    assert len(lines_of(world, "errors")) == 2


def test_a_line_ends_with_a_line_feed_and_nothing_else(world: World) -> None:
    """Other ends of lines may stand in a text, and bytes may be no text at all."""
    submit(world, files=1)
    good = json.dumps(
        {"custom_id": "good", "body": {"text": "a\u2028b\u0085c"}},
        ensure_ascii=False,
    )
    world.put("batch/job/input/00000.jsonl", good.encode() + b"\n\xff\xfe\n")
    machines = batch(world)
    world.run(DAY, lambda: not any(m.is_up for m in machines))
    assert world.timeline.now_s < HOUR
    assert answered(world) == ["good"]
    assert len(lines_of(world, "errors")) == 1


def test_input_that_comes_late_is_waited_for(world: World) -> None:
    machines = batch(world)
    world.timeline.at(40 * MINUTE, lambda: submit(world, files=2))
    world.run(DAY, lambda: not any(m.is_up for m in machines))
    assert len(answered(world)) == 10
    assert world.timeline.now_s < HOUR


def test_a_batch_that_nobody_submits_is_idle(world: World) -> None:
    [machine] = batch(world)
    world.run(DAY, lambda: not machine.is_up)
    assert machine.ended_s is not None
    assert machine.ended_s < 2 * HOUR
    reasons = [
        json.loads(data)["reason"]
        for key, (data, _) in world.objects.items()
        if key.startswith("released/")
    ]
    assert reasons == ["nobody asked for anything"]


def test_files_without_a_manifest_may_be_more(world: World) -> None:
    """The manifest is the last thing that who submits writes."""
    submit(world, files=2)
    del world.objects["batch/job/manifest.json"]
    [machine] = batch(world)
    world.run(30 * MINUTE)
    assert len(answered(world)) == 10
    assert machine.is_up
    assert state_of(machine)["phase"] == "working"


def test_a_daily_batch_waits_for_the_next_day(world: World) -> None:
    submit(world, files=1)
    settings = settings_of(world.provider, "batch")
    settings["work"]["runs_once"] = False
    world.upload(MODEL, WEIGHTS)
    machine = world.add("batch", settings)
    world.run(30 * MINUTE)
    assert machine.is_up
    assert len(answered(world)) == 5


def test_an_engine_that_restarts_in_between_loses_no_line(
    world: World,
) -> None:
    submit(world, files=40)
    [machine] = batch(world)

    def dies() -> None:
        machine.containers["tonnage-serve"].is_running = False

    world.timeline.at(6 * MINUTE, dies)
    world.run(DAY, lambda: not machine.is_up)
    assert len(answered(world)) == 200
    assert lines_of(world, "errors") == []

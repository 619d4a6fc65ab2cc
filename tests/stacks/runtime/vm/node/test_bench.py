"""Machines that measure: each load once, whatever fails, and then nobody is paid."""

from __future__ import annotations

import json
from typing import Any

from tests.stacks.runtime.vm.sandbox import (
    DAY,
    HOUR,
    MINUTE,
    SWEEP,
    Container,
    SandboxMachine,
    World,
    settings_of,
)

MODEL = "models/llama-3.1-8b/"
WEIGHTS = ["config.json", "model.safetensors", "tokenizer.json"]
CLIENT = "tonnage-bench"
NAMES = [f"{step.user_count:05d}-users.json" for step in SWEEP.steps]
CLIENT_S = 2 * MINUTE


class Client:
    """The benchmark client of the engine, as far as its machine sees it."""

    def __init__(self, failures: dict[str, int] | None = None) -> None:
        self.begun: list[str] = []
        self.failures = failures or {}

    def __call__(self, machine: SandboxMachine, container: Container) -> None:
        words = container.words
        if f"--name={CLIENT}" not in words:
            return
        name = container.option("--result-filename")
        if machine.world.timeline.now_s - container.started_s < CLIENT_S:
            return
        self.begun.append(name)
        container.is_running = False
        if self.failures.get(name, 0):
            self.failures[name] -= 1
            container.code, container.log = 1, "ConnectionError"
            return
        folder = machine.path(container.option("--result-dir"))
        users = container.option("--max-concurrency")
        (folder / name).write_text(json.dumps({"max_concurrency": users}))


def measuring(
    world: World, client: Client, settings: dict[str, Any] | None = None
) -> SandboxMachine:
    """A machine whose weights are there before it is."""
    world.upload(MODEL, WEIGHTS)
    machine = world.add("bench", settings)
    machine.job = client
    return machine


def results(world: World) -> list[str]:
    return sorted(
        key.removeprefix("bench/")
        for key in world.objects
        if key.startswith("bench/")
    )


def reasons(world: World) -> list[tuple[str, bool]]:
    return [
        (record["reason"], record["trouble"])
        for key, (data, _) in world.objects.items()
        if key.startswith("released/")
        for record in [json.loads(data)]
    ]


def test_every_load_is_measured_once_and_the_machine_is_given_back(
    world: World,
) -> None:
    client = Client()
    machine = measuring(world, client)
    world.run(DAY, lambda: not machine.is_up)
    assert machine.ended_s is not None
    assert machine.ended_s < HOUR
    assert client.begun == NAMES
    assert results(world) == [*NAMES, "manifest.json"]
    users = [
        json.loads(world.objects[f"bench/{name}"][0])["max_concurrency"]
        for name in NAMES
    ]
    assert users == ["1", "4", "16"]
    assert json.loads(world.objects["bench/manifest.json"][0]) == {"loads": 3}
    assert reasons(world) == [("its work is done", False)]


def test_nothing_is_measured_before_the_engine_answers(world: World) -> None:
    world.load_s = 20 * MINUTE
    client = Client()
    machine = measuring(world, client)
    world.run(19 * MINUTE)
    assert CLIENT not in machine.containers
    world.run(DAY, lambda: not machine.is_up)
    assert client.begun == NAMES


def test_a_client_that_fails_once_is_started_again(world: World) -> None:
    client = Client({NAMES[1]: 1})
    machine = measuring(world, client)
    world.run(DAY, lambda: not machine.is_up)
    assert client.begun == [NAMES[0], NAMES[1], NAMES[1], NAMES[2]]
    assert results(world) == [*NAMES, "manifest.json"]


def test_a_load_that_cannot_be_measured_ends_the_benchmark_with_its_reason(
    world: World,
) -> None:
    client = Client({NAMES[1]: 9})
    machine = measuring(world, client)
    world.run(DAY, lambda: not machine.is_up)
    assert client.begun == [NAMES[0], NAMES[1], NAMES[1]]
    assert results(world) == [NAMES[0], "failure.json", "manifest.json"]
    failure = json.loads(world.objects["bench/failure.json"][0])
    assert failure["name"] == NAMES[1]
    assert "ended with 1: ConnectionError" in failure["reason"]
    # It is over, and paid no longer.
    assert reasons(world) == [("its work is done", False)]


def test_an_engine_that_is_lost_takes_the_load_under_way_with_it(
    world: World,
) -> None:
    client = Client()
    machine = measuring(world, client)

    def is_under_way() -> bool:
        return CLIENT in machine.containers

    world.run(HOUR, is_under_way)
    engine = machine.containers["tonnage-serve"]
    engine.is_running, engine.code, engine.log = False, 137, "killed"
    world.run(world.timeline.now_s + MINUTE)
    # Nothing is measured of an engine that is not there.
    assert CLIENT not in machine.containers
    assert client.begun == []
    world.run(DAY, lambda: not machine.is_up)
    assert client.begun == NAMES
    assert results(world) == [*NAMES, "manifest.json"]


def test_a_machine_that_boots_again_measures_what_is_left(
    world: World,
) -> None:
    client = Client()
    machine = measuring(world, client)
    world.run(HOUR, lambda: f"bench/{NAMES[0]}" in world.objects)
    machine.reboot()
    world.run(DAY, lambda: not machine.is_up)
    assert client.begun == NAMES
    assert results(world) == [*NAMES, "manifest.json"]


def test_a_bucket_that_is_away_loses_no_result(world: World) -> None:
    client = Client()
    machine = measuring(world, client)
    world.is_online = lambda: (
        not 11 * MINUTE < world.timeline.now_s < 20 * MINUTE
    )
    world.run(DAY, lambda: not machine.is_up)
    assert results(world) == [*NAMES, "manifest.json"]


def test_the_machine_ends_at_its_time_to_live_whatever_it_does(
    world: World,
) -> None:
    """Nobody may be there who would end it."""
    settings = settings_of(world.provider, "bench")
    settings["agent"]["limits"]["ttl"] = 8 * 60
    machine = measuring(world, Client(), settings)
    world.run(DAY, lambda: not machine.is_up)
    assert machine.ended_s is not None
    assert 8 * MINUTE <= machine.ended_s < 10 * MINUTE
    assert "manifest.json" not in results(world)


def test_machines_of_one_replica_measure_once_and_all_are_given_back(
    world: World,
) -> None:
    settings = settings_of(world.provider, "bench")
    settings["work"] |= {"group_count": 1, "span": 2}
    client = Client()
    machines = [measuring(world, client, settings) for _ in range(2)]
    world.run(DAY, lambda: not any(machine.is_up for machine in machines))
    assert client.begun == NAMES
    assert results(world) == [*NAMES, "manifest.json"]
    assert world.timeline.now_s < HOUR

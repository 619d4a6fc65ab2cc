"""Machines with an engine of each of several services, from their boot to their last request."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from stacks.runtime.vm.node.host import CommandError
from tests.stacks.runtime.vm.sandbox import (
    DAY,
    HOUR,
    MINUTE,
    SandboxMachine,
    World,
    settings_of,
    state_of,
)

WEIGHTS = ["config.json", "model.safetensors", "tokenizer.json"]
FIRST = "tonnage-serve"
RERANK, EMBED = "tonnage-serve-1", "tonnage-serve-2"
SLICES = [
    {"profile": "3g.20gb", "start": 0},
    {"profile": "2g.10gb", "start": 4},
    {"profile": "1g.5gb", "start": 6},
]


def shared(world: World, **more: Any) -> SandboxMachine:
    """A machine of three services, whose weights are there before it is."""
    settings = settings_of(world.provider, "serve")
    work = settings["work"]
    router = {
        "image": "nginx",
        "routing": "random",
        "port": 8000,
        "engine_port": 8001,
        "tls_port": 0,
        "certificate": "",
        "is_public": False,
        "beside": {"rerank": 8002, "embed": 8003},
    }
    beside = [
        {
            "name": name,
            "port": port,
            "container": work["container"],
            "words": [f"--port={port}"],
            "upload": {
                **work["upload"],
                "prefix": prefix,
                "folder": f"/{prefix[:-1]}",
            },
        }
        for name, port, prefix in (
            ("rerank", 8002, "models/llama-3.2-1b/"),
            ("embed", 8003, "models/qwen2.5-3b/"),
        )
    ]
    world.upload("models/llama-3.1-8b/", WEIGHTS)
    for engine in beside:
        world.upload(engine["upload"]["prefix"], WEIGHTS)
    work |= {"port": 8001, "router": router, "beside": beside, **more}
    return world.add("serve", settings)


def started(machine: SandboxMachine) -> list[str]:
    """The names of the engines in the order of their starts."""
    return [
        word.partition("=")[2]
        for words in machine.commands
        if words[:3] == ("docker", "run", "--detach")
        for word in words
        if word.startswith("--name=tonnage-serve")
    ]


def config_of(machine: SandboxMachine) -> str:
    return machine.path("/run/tonnage/router/nginx.conf").read_text()


def test_engines_start_one_after_the_other(world: World) -> None:
    """Each sizes its cache by what it finds free, while nobody else takes memory."""
    machine = shared(world)
    world.run(HOUR)
    assert started(machine) == [FIRST, RERANK, EMBED]
    starts = [
        machine.containers[name].started_s for name in (FIRST, RERANK, EMBED)
    ]
    assert starts[1] - starts[0] >= world.load_s
    assert starts[2] - starts[1] >= world.load_s
    assert state_of(machine)["phase"] == "working"


def test_a_machine_is_well_when_all_its_engines_are(world: World) -> None:
    machine = shared(world)
    world.run(2 * world.load_s)
    assert "return 503;" in config_of(machine)
    world.run(HOUR)
    config = config_of(machine)
    assert "return 200;" in config
    machine.containers[EMBED].is_running = False
    world.run(HOUR + 2 * MINUTE)
    assert "return 503;" in config_of(machine)


def test_each_service_has_its_path(world: World) -> None:
    machine = shared(world)
    world.run(HOUR)
    config = config_of(machine)
    for name, port in (("rerank", 8002), ("embed", 8003)):
        assert (
            f"location /{name}/ {{ proxy_pass http://beside-{name}/; }}"
            in config
        )
        upstream = config.partition(f"upstream beside-{name} {{")[2]
        assert f"server {machine.address}:{port} " in upstream.partition("}")[0]
    assert "location / { proxy_pass http://engines; }" in config


def test_an_engine_that_ends_starts_again_alone(world: World) -> None:
    machine = shared(world)
    world.run(HOUR)
    machine.containers[RERANK].is_running = False
    world.run(2 * HOUR)
    assert started(machine) == [FIRST, RERANK, EMBED, RERANK]
    assert state_of(machine)["phase"] == "working"


def test_no_engine_starts_while_another_one_does(world: World) -> None:
    machine = shared(world)
    world.run(HOUR)
    for name in (FIRST, RERANK, EMBED):
        machine.containers[name].is_running = False
    begun = len(started(machine))
    world.run(2 * HOUR)
    assert sorted(started(machine)[begun:]) == sorted([FIRST, RERANK, EMBED])
    starts = sorted(
        machine.containers[name].started_s for name in (FIRST, RERANK, EMBED)
    )
    assert all(
        later - earlier >= world.load_s
        for earlier, later in itertools.pairwise(starts)
    )


def test_requests_of_any_service_keep_the_machine(world: World) -> None:
    world.has_beside_traffic = lambda now_s: now_s < 5 * HOUR
    machine = shared(world)
    world.run(DAY, lambda: not machine.is_up)
    assert machine.ended_s is not None
    assert 6 * HOUR <= machine.ended_s <= 6 * HOUR + 10 * MINUTE


def test_an_engine_that_fails_again_and_again_breaks_the_machine(
    world: World,
) -> None:
    machine = shared(world)
    world.run(HOUR)
    for _ in range(3):
        machine.containers[EMBED].is_running = False
        world.run(world.timeline.now_s + 10 * MINUTE)
        if EMBED not in machine.containers:
            break
    assert state_of(machine)["phase"] == "unhealthy"


def test_each_engine_has_its_slice_after_every_boot(world: World) -> None:
    machine = shared(world, slices=SLICES)
    world.run(2 * HOUR)
    # The mode came by one reboot.
    assert machine.boots == 2
    devices = {
        name: machine.containers[name].option("--gpus")
        for name in (FIRST, RERANK, EMBED)
    }
    assert devices == {
        FIRST: "device=MIG-2-0",
        RERANK: "device=MIG-2-4",
        EMBED: "device=MIG-2-6",
    }
    machine.reboot()
    world.run(4 * HOUR)
    assert machine.boots == 3
    assert machine.containers[EMBED].option("--gpus") == "device=MIG-3-6"
    assert state_of(machine)["phase"] == "working"


def test_a_reset_saves_the_reboot(world: World) -> None:
    machine = shared(world, slices=SLICES)
    machine.mig.reset_works = True
    world.run(2 * HOUR)
    assert machine.boots == 1
    assert machine.containers[FIRST].option("--gpus") == "device=MIG-1-0"


def test_a_machine_that_cannot_be_divided_is_broken(world: World) -> None:
    machine = shared(world, slices=SLICES)
    machine.mig.never_enters = True
    world.run(HOUR)
    # Clouds that move a broken machine to other hardware boot it again.
    assert machine.commands.count(("systemctl", "reboot")) == 1
    assert FIRST not in machine.containers
    assert "does not enter MIG mode" in str(state_of(machine))


def test_slices_that_are_in_the_way_are_refused_by_the_driver() -> None:
    from tests.stacks.runtime.vm.mig import MigDevice

    device = MigDevice()
    device.is_on = True
    with pytest.raises(CommandError, match="insufficient"):
        device.answer(("mig", "-i", "0", "-cgi", "3g.20gb:0,1g.5gb:3", "-C"), 0)

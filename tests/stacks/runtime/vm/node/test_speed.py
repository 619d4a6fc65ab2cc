"""Machines that are slow, by their disk and by how their accelerators speak to each other."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.stacks.runtime.vm.sandbox import (
    HOUR,
    MINUTE,
    SandboxMachine,
    World,
    settings_of,
    state_of,
)

MODEL = "models/llama-3.1-8b/"
WEIGHTS = ["config.json", "model.safetensors", "tokenizer.json"]


def booted(world: World, **state: Any) -> SandboxMachine:
    """A machine with a disk and eight accelerators that should speak at 391 GB/s."""
    world.has_traffic = lambda _: True
    world.upload(MODEL, WEIGHTS)
    settings = settings_of(world.provider, "serve")
    health = {**settings["health"], "disk_gb_s": 0.5, "all_reduce_gb_s": 391}
    return world.add("serve", {**settings, "health": health}, **state)


def why_broken(world: World) -> list[str]:
    return [
        json.loads(data)["reason"]
        for key, (data, _) in world.objects.items()
        if key.startswith("broken/")
    ]


def measured(machine: SandboxMachine) -> int:
    """How often the speeds were measured."""
    return sum(words[0] == "dd" for words in machine.commands)


def test_a_machine_that_is_fast_enough_is_measured_once_after_a_boot(
    world: World,
) -> None:
    machine = booted(world)
    world.run(HOUR)
    assert state_of(machine)["phase"] == "working"
    assert measured(machine) == 1
    world.timeline.at(HOUR + MINUTE, machine.reboot)
    world.run(2 * HOUR)
    assert state_of(machine)["phase"] == "working"
    assert measured(machine) == 2
    assert not machine.path("/models/.tonnage-speed").exists()


@pytest.mark.parametrize(
    ("speeds", "why"),
    [
        ({"disk_gb_s": 0.1}, "disk has 0.1 of 0.5 GB/s"),
        ({"bus_gb_s": 56.0}, "all_reduce has 56 of 391 GB/s"),
    ],
)
def test_a_slow_machine_takes_no_work(
    world: World, speeds: dict[str, float], why: str
) -> None:
    machine = booted(world, **speeds)
    world.run(20 * MINUTE)
    [reason] = why_broken(world)
    assert why in reason
    assert world.replaced == [machine.name]
    assert not any(
        words[:3] == ("docker", "run", "--detach") for words in machine.commands
    )


def test_a_measure_that_cannot_be_taken_is_no_broken_machine(
    world: World,
) -> None:
    machine = booted(world)
    machine.failures["dd"] = lambda: True
    world.run(2 * HOUR, lambda: not machine.is_up)
    assert not machine.is_up
    assert why_broken(world) == []
    [reason] = [
        data.decode()
        for key, (data, _) in world.objects.items()
        if key.startswith("released/")
    ]
    assert "speed: dd ended with 1" in reason


def test_families_with_a_published_speed_must_reach_it(world: World) -> None:
    least = {
        role: settings_of(world.provider, role)["health"]["all_reduce_gb_s"]
        for role in ("train", "workspace")
    }
    # Eight H100, and one small accelerator that speaks to no other.
    assert least == {"train": 391, "workspace": 0}

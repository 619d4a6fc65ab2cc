"""Machines that serve with TensorRT-LLM, which tells less of itself than other engines."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import pytest

from stacks.runtime.vm.node.serve import ENGINES
from tests.stacks.runtime.vm import engines
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
ENGINE = "tonnage-serve"


def serving(world: World) -> SandboxMachine:
    """A machine with TensorRT-LLM whose weights are there before it is."""
    world.upload(MODEL, WEIGHTS)
    settings: dict[str, Any] = settings_of(world.provider, "trtllm")
    return world.add("serve", settings)


def starts(machine: SandboxMachine) -> list[tuple[str, ...]]:
    return [words for words in machine.commands if f"--name={ENGINE}" in words]


def test_a_service_without_requests_is_given_back(world: World) -> None:
    world.has_traffic = lambda now_s: now_s < 3 * HOUR
    machine = serving(world)
    world.run(DAY, lambda: not machine.is_up)
    assert machine.ended_s is not None
    assert 4 * HOUR <= machine.ended_s <= 4 * HOUR + 10 * MINUTE


def test_one_answer_for_hours_is_work(world: World) -> None:
    """No request ends, and the page that counts them stands still; accelerators do not."""
    world.has_traffic = lambda now_s: now_s % engines.REQUEST_S > 0
    machine = serving(world)
    world.run(DAY)
    assert machine.is_up
    assert state_of(machine)["phase"] == "working"
    # Nor is it taken for an engine that hangs.
    assert len(starts(machine)) == 1


def test_short_requests_between_looks_are_work(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Accelerators rest whenever they are looked at, and requests end all the same."""
    world.has_traffic = lambda _: True
    monkeypatch.setattr(engines, "WORKING_UTILIZATION", 0.0)
    machine = serving(world)
    world.run(6 * HOUR)
    assert machine.is_up
    monkeypatch.undo()


def test_what_the_engine_does_not_count_is_not_told(world: World) -> None:
    world.has_traffic = lambda _: True
    serving(world)
    world.run(HOUR)
    told = {name for _, _, numbers in world.metrics for name in numbers}
    assert "Utilization" in told
    assert not told & {"Requests", "Tokens"}


def test_pages_of_steps_are_never_asked_for(world: World) -> None:
    """Under load they would not answer, and the machine would count as broken."""
    world.has_traffic = lambda _: True
    machine = serving(world)
    world.run(2 * HOUR)
    assert ENGINES["trtllm"].metrics.path == "/prometheus/metrics"
    assert len(starts(machine)) == 1


def test_a_notice_lets_the_engine_finish(world: World) -> None:
    world.has_traffic = lambda now_s: now_s < HOUR + 40
    machine = serving(world)
    world.timeline.at(HOUR, partial(setattr, machine, "notice", True))
    world.run(HOUR + 35)
    assert machine.containers[ENGINE].is_running
    world.run(HOUR + 70)
    assert not machine.containers[ENGINE].is_running
    stops = [
        words for words in machine.commands if words[:2] == ("docker", "stop")
    ]
    assert stops == [("docker", "stop", "--time=100", ENGINE)]


def test_no_key_reaches_the_engine(world: World) -> None:
    machine = serving(world)
    world.run(15 * MINUTE)
    [words] = starts(machine)
    assert not any(word.startswith("--env-file=") for word in words)
    assert ENGINES["trtllm"].key_variable == ""
    assert "api_key" not in json.dumps(machine.settings["work"])

"""Machines that serve with another engine than the one that is taken by itself: SGLang."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from stacks.runtime.vm.node.serve import DEFAULT_ENGINE, ENGINES
from stacks.runtime.vm.serving_engine import engine_launches
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


def serving(
    world: World, limits: dict[str, int] | None = None, **work: Any
) -> SandboxMachine:
    """A machine with SGLang whose weights are there before it is."""
    world.upload(MODEL, WEIGHTS)
    settings = settings_of(world.provider, "sglang")
    settings["work"] |= work
    settings["agent"]["limits"] |= limits or {}
    return world.add("serve", settings)


def always(_: float) -> bool:
    return True


def test_machines_know_every_engine_that_is_launched() -> None:
    assert set(ENGINES) == set(engine_launches())
    assert DEFAULT_ENGINE in ENGINES


def test_only_another_engine_is_named_to_a_machine(world: World) -> None:
    assert "engine" not in settings_of(world.provider, "serve")["work"]
    assert settings_of(world.provider, "sglang")["work"]["engine"] == "sglang"


def test_a_service_without_requests_is_given_back(world: World) -> None:
    world.has_traffic = lambda now_s: now_s < 3 * HOUR
    machine = serving(world)
    world.run(DAY, lambda: not machine.is_up)
    assert machine.ended_s is not None
    assert 4 * HOUR <= machine.ended_s <= 4 * HOUR + 10 * MINUTE


def test_answers_that_take_long_are_no_hung_engine(world: World) -> None:
    """Tokens of answers count when they end; steps count at once."""
    world.has_traffic = always
    machine = serving(world)
    world.run(3 * HOUR)
    starts = [
        words for words in machine.commands if f"--name={ENGINE}" in words
    ]
    assert len(starts) == 1
    assert state_of(machine)["phase"] == "working"


def test_requests_of_all_stages_count_once(world: World) -> None:
    """Each stage of a pipeline has gauges of its own for the same requests."""
    world.has_traffic = always
    settings = settings_of(world.provider, "sglang")
    words = [
        word.replace("--pp-size=1", "--pp-size=4")
        for word in settings["work"]["words"]
    ]
    machine = serving(world, words=words)
    world.run(HOUR)
    assert state_of(machine)["phase"] == "working"
    requests = [
        numbers["Requests"]
        for _, _, numbers in world.metrics
        if "Requests" in numbers
    ]
    assert requests
    assert set(requests) == {1.0}


@pytest.mark.parametrize(
    ("answered_s", "stopped_s"),
    [
        # It ends by itself once the last answer is done.
        (40, 40),
        # Answers that never end are dropped before the machine is taken away.
        (DAY, 100),
    ],
)
def test_a_notice_lets_the_engine_finish(
    world: World, answered_s: float, stopped_s: float
) -> None:
    world.has_traffic = lambda now_s: now_s < HOUR + answered_s
    machine = serving(world)
    world.timeline.at(HOUR, partial(setattr, machine, "notice", True))
    world.run(HOUR + stopped_s - 5)
    assert machine.containers[ENGINE].is_running
    world.run(HOUR + stopped_s + 30)
    assert not machine.containers[ENGINE].is_running
    stops = [
        words for words in machine.commands if words[:2] == ("docker", "stop")
    ]
    assert stops == [("docker", "stop", "--time=100", ENGINE)]


def test_machines_of_a_replica_are_joined_as_the_engine_joins_them(
    world: World,
) -> None:
    machines = [
        serving(world, {"idle": 0}, group_count=1, span=2) for _ in range(2)
    ]
    world.run(20 * MINUTE)
    found = [machine.containers[ENGINE].words for machine in machines]
    ranks = {
        rank: machine.address
        for machine, words in zip(machines, found, strict=True)
        for rank in range(2)
        if f"--node-rank={rank}" in words
    }
    assert set(ranks) == {0, 1}
    for machine, words in zip(machines, found, strict=True):
        assert "--nnodes=2" in words
        assert f"--dist-init-addr={ranks[0]}:20000" in words
        assert f"--env=SGLANG_HOST_IP={machine.address}" in words
        assert "--headless" not in words


def test_the_key_of_clients_is_in_no_word(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.has_traffic = always
    name = "team/key" if world.provider == "azure" else "key"
    world.secrets[name] = "sk-clients\n"
    machine = serving(world, api_key=name)
    handed_over: list[str] = []
    run = machine.run

    def watched(*words: str, **options: Any) -> str:
        handed_over.extend(
            Path(word.partition("=")[2]).read_text()
            for word in words
            if word.startswith("--env-file=")
        )
        return run(*words, **options)

    monkeypatch.setattr(machine, "run", watched)
    world.run(15 * MINUTE)
    assert state_of(machine)["phase"] == "working"
    assert handed_over == ["SGLANG_API_KEY=sk-clients\n"]
    assert not any("sk-clients" in " ".join(w) for w in machine.commands)
    assert "sk-clients" not in json.dumps(machine.settings)

"""Weights that machines fetch from Hugging Face, with and without a token."""

from __future__ import annotations

from typing import Any

import pytest

from tests.stacks.runtime.vm.sandbox import (
    DAY,
    HOUR,
    MINUTE,
    SandboxMachine,
    World,
    settings_of,
    state_of,
)

REPOSITORY = "meta-llama/Llama-3.1-8B"
FILES = [
    "config.json",
    "model.safetensors",
    "tokenizer.json",
    "original.pth",
]
FOLDER = "/models/llama-3.1-8b"


def booted(world: World, token: str = "") -> SandboxMachine:
    """A machine whose weights are on the hub, behind a secret where it has a name."""
    settings: dict[str, Any] = settings_of(world.provider, "serve")
    work = dict(settings["work"])
    del work["upload"]
    work["hub"] = {
        "repository": REPOSITORY,
        "revision": "main",
        "folder": FOLDER,
        "secret": token,
    }
    world.hub[REPOSITORY] = FILES
    return world.add("serve", {**settings, "work": work})


def secret_name(world: World) -> str:
    return "team/hub" if world.provider == "azure" else "hub"


def downloads(machine: SandboxMachine) -> list[tuple[str, ...]]:
    return [
        words
        for words in machine.commands
        if words[:2] == ("docker", "run") and "--detach" not in words
    ]


def test_weights_come_from_the_hub_once(world: World) -> None:
    world.has_traffic = lambda _: True
    machine = booted(world)
    world.run(15 * MINUTE)
    assert state_of(machine)["phase"] == "working"
    folder = machine.path(FOLDER)
    # Weights of another format stay where they are.
    assert sorted(p.name for p in folder.iterdir() if p.name[0] != ".") == [
        "config.json",
        "model.safetensors",
        "tokenizer.json",
    ]
    assert len(downloads(machine)) == 1
    world.timeline.at(20 * MINUTE, machine.reboot)
    world.run(HOUR)
    assert state_of(machine)["phase"] == "working"
    assert len(downloads(machine)) == 1


def test_another_revision_is_fetched(world: World) -> None:
    machine = booted(world)
    world.run(15 * MINUTE)
    machine.settings["work"]["hub"]["revision"] = "v2"
    world.timeline.at(20 * MINUTE, machine.reboot)
    world.run(HOUR)
    assert [words[-8] for words in downloads(machine)] == ["main", "v2"]


def test_a_token_comes_from_the_store_of_secrets_and_stays_nowhere(
    world: World,
) -> None:
    world.has_traffic = lambda _: True
    world.hub_token = "hf_secret"
    world.secrets[secret_name(world)] = "hf_secret\n"
    machine = booted(world, secret_name(world))
    world.run(15 * MINUTE)
    assert state_of(machine)["phase"] == "working"
    assert not any("hf_secret" in " ".join(w) for w in machine.commands)
    # Docker keeps the variables of a container as long as there is one.
    assert all("--rm" in words for words in downloads(machine))
    assert "hf_secret" not in "".join(machine.journal)
    texts = [
        path.read_text()
        for path in machine.root.rglob("*")
        if path.is_file() and path.suffix != ".part"
    ]
    assert not any("hf_secret" in text for text in texts)


@pytest.mark.parametrize("has_secret", [False, True])
def test_weights_behind_a_wrong_token_give_the_machine_back(
    world: World, has_secret: bool
) -> None:
    world.hub_token = "hf_secret"
    if has_secret:
        world.secrets[secret_name(world)] = "hf_old"
    machine = booted(world, secret_name(world))
    world.run(DAY, lambda: not machine.is_up)
    assert machine.ended_s is not None
    assert machine.ended_s < 2 * HOUR
    [reason] = [
        data.decode()
        for key, (data, _) in world.objects.items()
        if key.startswith("released/")
    ]
    word = "Hugging Face" if has_secret else f"secret {secret_name(world)}"
    assert word in reason


PLACES = {
    "aws": {"bucket": "teamweights"},
    "gcp": {"bucket": "teamweights"},
    "azure": {"account": "teamweights", "container": "llms"},
}


@pytest.mark.parametrize("prefix", ["", "llms/llama/"])
def test_weights_come_from_a_bucket_that_there_is_already(
    world: World, prefix: str
) -> None:
    world.has_traffic = lambda _: True
    settings: dict[str, Any] = settings_of(world.provider, "serve")
    upload = {
        **settings["work"]["upload"],
        "prefix": prefix,
        "is_elsewhere": True,
    }
    machine = world.add(
        "serve",
        {
            **settings,
            "cloud": {**settings["cloud"], "weights": PLACES[world.provider]},
            "work": {**settings["work"], "upload": upload},
        },
    )
    world.run(10 * MINUTE)
    assert state_of(machine)["step"] == "upload"
    for name in FILES:
        world.foreign[prefix + name] = (name.encode(), 1)
    # Consoles and file systems mark folders by empty objects.
    world.foreign[prefix] = (b"", 1)
    world.foreign[f"{prefix}original"] = (b"", 1)
    world.foreign[f"{prefix}original/"] = (b"", 1)
    world.foreign[f"{prefix}original/params.json"] = (b"{}", 1)
    world.run(HOUR)
    assert state_of(machine)["phase"] == "working"
    config = machine.path(FOLDER) / "config.json"
    assert config.read_text() == "config.json"


def test_a_hub_that_is_away_for_a_while_is_asked_again(world: World) -> None:
    world.has_traffic = lambda _: True
    world.is_online = lambda: world.timeline.now_s > 10 * MINUTE
    machine = booted(world)
    world.run(HOUR)
    assert state_of(machine)["phase"] == "working"

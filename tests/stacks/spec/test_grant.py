"""Rights on things of others: told where a stack does not give them itself."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from stacks.spec.grant import hand_grants
from tests.conftest import chat
from tests.planner.cli.conftest import Command
from tests.stacks.engine.test_simulated import plan_of
from tests.stacks.told import inputs_of

STORE = "abfss://weights@corpdata.dfs.core.windows.net/llms"
SECRET = 'endpoint: {api_key: "secret://corp-keys/chat"}\n'
AZURE = "where: {clouds: [azure]}\n"


def text(extra: str, weights: str = "bucket") -> str:
    return chat(extra=extra).replace(
        "precision: auto", f"precision: auto, weights: '{weights}'"
    )


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (text(AZURE), []),
        (
            text(AZURE + SECRET),
            ["--name corp-keys ", "Key Vault Secrets User"],
        ),
        (
            text(AZURE, STORE),
            [
                "--name corpdata ",
                "/containers/weights",
                "Storage Blob Data Reader",
            ],
        ),
        # Elsewhere the role of the machines reads it.
        (
            text("where: {clouds: [aws]}\n" + SECRET.replace("corp-keys/", "")),
            [],
        ),
        (
            text("where: {clouds: [gcp]}\n" + SECRET.replace("corp-keys/", "")),
            [],
        ),
        (text("where: {clouds: [aws]}\n", "s3://corp-weights/llms"), []),
    ],
)
def test_a_command_names_the_machines_and_what_they_read(
    catalog, spec: str, words: list[str]
) -> None:
    plan = plan_of(catalog, spec)
    commands = hand_grants(plan, {"resource_group": "chat-0a1b2c3d"})
    assert len(commands) == bool(words)
    for command in commands:
        assert all(word in command for word in words)
        assert "--resource-group chat-0a1b2c3d" in command
        # A shell reads it as a command and its options.
        assert shlex.split(command)[:4] == [
            "az",
            "role",
            "assignment",
            "create",
        ]
        identities = inputs_of(plan.graph, "UserAssignedIdentity")
        name = identities["node-identity"]["resourceName"]
        assert f"--name {name} " in command


def test_an_apply_tells_it(tonnage: Command, here: Path) -> None:
    (here / "s.yaml").write_text(text(AZURE + SECRET))
    tonnage("plan", "s.yaml", "-o", "p.json")
    code, said, _ = tonnage("apply", "p.json", "--simulate")
    assert code == 0
    assert "to grant" in said
    assert "az role assignment create" in said

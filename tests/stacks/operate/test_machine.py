"""Machines as their owner finds them, and the way to them on three clouds."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import obstore
import pytest
from obstore.store import LocalStore, MemoryStore

from planner.errors import MissingError, UsageError
from stacks.aws.door import tunnel as aws_tunnel
from stacks.azure.door import command
from stacks.azure.door import tunnel as azure_tunnel
from stacks.engine.handover import WORKING
from stacks.gcp.door import tunnel as gcp_tunnel
from stacks.operate.machine import (
    LOST_AFTER,
    SIGNS,
    Door,
    find_machine,
    machines,
)
from tests.planner.cli.conftest import Command
from tests.stacks.runtime.vm.sandbox import World

GCP_HANDLE = "zones/us-east4-a/instances/chat-8b-serve-x1y2"


def alive(store, *handles: str) -> None:
    for handle in handles:
        name = handle.replace("/", "_")
        text = json.dumps({"handle": handle, "at": 0.0})
        obstore.put(store, f"serve/{name}", text.encode())


def test_machines_are_those_whose_agents_write(tmp_path: Path) -> None:
    """What agents of the sandbox leave is what is read."""
    world = World("gcp", tmp_path / "machines")
    world.upload(
        "models/llama-3.1-8b/",
        ["config.json", "model.safetensors", "tokenizer.json"],
    )
    world.add("serve")
    world.run(1200)
    store = LocalStore(tmp_path / "bucket", mkdir=True)
    for key, (data, _) in world.objects.items():
        if key.startswith(SIGNS):
            obstore.put(store, key.removeprefix(SIGNS), data)
    now = obstore.list(store).collect()[0]["last_modified"]
    [machine] = machines(store, now)
    assert machine.handle.startswith("zones/")
    assert machine.name in machine.handle
    # A hand-over waits for this word.
    assert machine.phase == WORKING
    assert machines(store, now + LOST_AFTER + timedelta(minutes=1)) == []


def test_a_machine_is_named_where_there_are_several() -> None:
    store = MemoryStore()
    alive(store, "i-2", "i-1")
    now = obstore.list(store).collect()[0]["last_modified"]
    found = machines(store, now)
    assert [machine.name for machine in found] == ["i-1", "i-2"]
    assert find_machine(found, "chat", "i-2").handle == "i-2"
    assert find_machine(found[:1], "chat", "").handle == "i-1"
    with pytest.raises(UsageError, match="2 machines"):
        find_machine(found, "chat", "")
    with pytest.raises(MissingError, match="named i-3"):
        find_machine(found, "chat", "i-3")
    with pytest.raises(MissingError, match="sign of life"):
        find_machine([], "chat", "")


@pytest.mark.parametrize(
    ("cloud", "handle", "typed", "expected"),
    [
        (
            "gcp",
            GCP_HANDLE,
            [],
            "gcloud compute ssh chat-8b-serve-x1y2 --zone=us-east4-a "
            "--tunnel-through-iap",
        ),
        (
            "gcp",
            GCP_HANDLE,
            ["chat-8b-serve-x1y2", "--", "nvidia-smi", "-q"],
            "gcloud compute ssh chat-8b-serve-x1y2 --zone=us-east4-a "
            "--tunnel-through-iap '--command=nvidia-smi -q'",
        ),
        (
            "aws",
            "i-0abc",
            [],
            "aws ssm start-session --region=REGION --target=i-0abc",
        ),
        (
            "aws",
            "i-0abc",
            ["i-0abc", "--", "echo", "it's", "$(x)"],
            "aws ssm start-session --region=REGION --target=i-0abc "
            "--document-name=AWS-StartInteractiveCommand "
            + shlex.quote(
                "--parameters="
                + json.dumps(
                    {"command": [shlex.join(["echo", "it's", "$(x)"])]}
                )
            ),
        ),
        (
            "azure",
            "serve_ab12",
            ["serve_ab12", "--", "uptime"],
            "az vm run-command invoke --resource-group=GROUP --name=serve_ab12 "
            "--command-id=RunShellScript --scripts=uptime",
        ),
        (
            "azure",
            "3",
            ["3", "--", "uptime"],
            "az vmss run-command invoke --resource-group=GROUP "
            "--name=chat-serve --instance-id=3 "
            "--command-id=RunShellScript --scripts=uptime",
        ),
    ],
)
def test_the_way_to_a_machine_is_that_of_its_cloud(
    tonnage: Command,
    here: Path,
    cloud: str,
    handle: str,
    typed: list[str],
    expected: str,
) -> None:
    spec = here / "chat.yaml"
    blueprint = Path(__file__).resolve().parents[3] / "blueprints/chat-8b.yaml"
    text = blueprint.read_text().replace("name: chat-8b", "name: chat", 1)
    spec.write_text(f"{text}\nwhere:\n  clouds: [{cloud}]\n")
    code, _, err = tonnage("apply", str(spec), "--simulate", "--yes")
    assert code == 0, err
    _, out, _ = tonnage("status", "chat", "--simulate", "-f", "json")
    status = json.loads(out)
    bucket = here / ".tonnage/simulated/buckets" / status["outputs"]["bucket"]
    alive(LocalStore(bucket / SIGNS, mkdir=True), handle)
    words = ("connect", "chat", *typed[:1])
    flags = ("--print", "--simulate")
    code, out, err = tonnage(*words, *flags, *typed[1:])
    assert code == 0, err
    expected = expected.replace("REGION", status["facts"]["region"])
    group = str(status["outputs"].get("resource_group", ""))
    assert out == expected.replace("GROUP", group) + "\n"
    # A simulated machine has no shell.
    assert tonnage(*words, "--simulate", *typed[1:])[0] == 2


@pytest.mark.parametrize(
    ("tunnel", "handle", "expected"),
    [
        (
            aws_tunnel,
            "i-0a1",
            [
                "aws",
                "ssm",
                "start-session",
                "--region=us-east-1",
                "--target=i-0a1",
                "--document-name=AWS-StartPortForwardingSession",
                '--parameters={"portNumber": ["8888"], "localPortNumber": ["8888"]}',
            ],
        ),
        (
            gcp_tunnel,
            GCP_HANDLE,
            [
                "gcloud",
                "compute",
                "ssh",
                "chat-8b-serve-x1y2",
                "--zone=us-east4-a",
                "--tunnel-through-iap",
                "--",
                "-N",
                "-L8888:localhost:8888",
            ],
        ),
    ],
)
def test_a_port_is_brought_here(
    tunnel: Callable[[Door, int], list[str]],
    handle: str,
    expected: list[str],
) -> None:
    door = Door(handle=handle, region="us-east-1", group="g", resource_group="")
    assert tunnel(door, 8888) == expected


GROUP_ID = "/subscriptions/s/resourceGroups/r"


@pytest.mark.parametrize(
    ("handle", "machine"),
    [
        ("desk_ab12", "virtualMachines/desk_ab12"),
        ("3", "virtualMachineScaleSets/desk-workspace/virtualMachines/3"),
    ],
)
def test_azure_brings_a_port_of_a_workspace(handle: str, machine: str) -> None:
    door = Door(
        handle=handle,
        region="eastus",
        group="desk-workspace",
        resource_group="r",
        group_id=GROUP_ID,
        bastion="desk-bastion",
    )
    assert azure_tunnel(door, 8888) == [
        "az",
        "network",
        "bastion",
        "tunnel",
        "--name=desk-bastion",
        "--resource-group=r",
        f"--target-resource-id={GROUP_ID}/providers/Microsoft.Compute/{machine}",
        "--resource-port=8888",
        "--port=8888",
    ]


def test_azure_brings_no_port_of_other_machines() -> None:
    door = Door(handle="3", region="eastus", group="g", resource_group="r")
    with pytest.raises(UsageError, match="cannot be brought"):
        azure_tunnel(door, 8888)


def test_azure_wants_a_command() -> None:
    door = Door(handle="3", region="eastus", group="g", resource_group="r")
    with pytest.raises(UsageError, match="open no shell"):
        command(door, "")

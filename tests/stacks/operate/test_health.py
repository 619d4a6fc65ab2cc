"""How machines are, by what their agents leave: agents of the sandbox, and a status page."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import obstore
import pytest
from obstore.store import LocalStore

from planner.plan.account import StackHealth
from stacks.operate.bucket import Bucket
from stacks.operate.health import MOST_EVENTS, stack_health, troubles_since
from tests.conftest import chat
from tests.planner.cli.conftest import Command
from tests.stacks.runtime.vm.sandbox import World

LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)


@pytest.fixture
def bucket(tmp_path: Path) -> Bucket:
    return Bucket(
        provider="gcp", name="b", region="r", simulated_folder=tmp_path / "b"
    )


def leave(bucket: Bucket, key: str, content: bytes) -> None:
    folder, _, name = key.partition("/")
    obstore.put(bucket.folder(f"{folder}/"), name, content)


def health(bucket: Bucket, after: timedelta = timedelta()) -> StackHealth:
    return stack_health(bucket, datetime.now(UTC) + after)


def test_what_agents_leave_is_what_is_told(
    tmp_path: Path, bucket: Bucket
) -> None:
    """An idle machine lives, and is later given back for a reason."""
    world = World("gcp", tmp_path / "machines")
    world.upload(
        "models/llama-3.1-8b/",
        ["config.json", "model.safetensors", "tokenizer.json"],
    )
    world.add("serve")
    world.run(1200)
    for key, (data, _) in world.objects.items():
        if key.startswith("alive/"):
            leave(bucket, key, data)
    [group] = health(bucket).groups
    assert (group.group, group.alive) == ("serve", 1)
    assert 0 <= group.heard_s < 60
    assert health(bucket).events == ()
    assert health(bucket, timedelta(hours=1)).groups == ()
    world.run(3 * 3600)
    for key, (data, _) in world.objects.items():
        if key.startswith("released/"):
            leave(bucket, key, data)
    # What is planned to end is in no trouble.
    assert troubles_since(bucket, LONG_AGO) == []
    event = health(bucket).events[0]
    assert (event.group, event.outcome) == ("serve", "given back")
    assert event.reason == "nobody asked for anything"


def test_a_machine_whose_work_fails_is_in_trouble(
    tmp_path: Path, bucket: Bucket
) -> None:
    """Its weights never come, so the agent gives it back."""
    world = World("gcp", tmp_path / "machines")
    world.add("serve")
    world.run(4 * 3600)
    [released] = [key for key in world.objects if key.startswith("released/")]
    leave(bucket, released, world.objects[released][0])
    [trouble] = troubles_since(bucket, LONG_AGO)
    assert trouble.group == "serve"
    name = released.rpartition("/")[2].removesuffix(".json")
    assert trouble.handle.endswith(name)
    assert "did not get beyond" in trouble.reason
    assert troubles_since(bucket, datetime.now(UTC) + timedelta(hours=1)) == []


def test_hours_are_those_of_all_machines_that_ever_lived(
    tmp_path: Path, bucket: Bucket
) -> None:
    """Agents of the sandbox write for as long as they live, through a reboot, and no longer."""
    world = World("gcp", tmp_path / "machines")
    machine = world.add("workspace")
    world.run(900)
    machine.reboot()
    world.run(1800)
    [(key, _)] = [
        (key, written)
        for key, written in world.objects.items()
        if key.startswith("lived/")
    ]
    group = key.split("/")[1]
    launched = datetime.now(UTC) - timedelta(hours=3)
    for number, hours in enumerate((0, 2)):
        name = f"{launched + timedelta(hours=hours):%Y%m%dT%H%M%SZ}_{number}"
        leave(bucket, f"lived/{group}/{name}", b"")
    leave(bucket, f"lived/{group}/nonsense", b"")
    [(found_group, found)] = health(bucket).lived_hours.items()
    assert found_group == group
    assert found == pytest.approx(3 + 1, abs=0.01)


def test_only_the_newest_are_told_and_nonsense_is_passed_over(
    bucket: Bucket,
) -> None:
    for day in range(1, 8):
        record = {
            "reason": f"reason {day}",
            "at": f"2026-11-0{day}T08:00:00+00:00",
        }
        leave(bucket, f"broken/serve/i-{day}.json", json.dumps(record).encode())
    told = health(bucket).events
    assert [event.reason for event in told] == [
        f"reason {day}" for day in range(8 - MOST_EVENTS, 8)
    ]
    assert told[-1].machine == "i-7"
    for number, content in enumerate([b"", b"{}", b"[1]", b'{"at": 3}']):
        leave(bucket, f"released/serve/odd-{number}.json", content)
    assert health(bucket).events == told


def test_machines_that_cannot_be_asked_are_no_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("AWS_PROFILE", "AWS_ACCESS_KEY_ID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    found = health(Bucket(provider="aws", name="b", region="us-east-1"))
    assert (found.groups, found.events) == ((), ())
    assert "cannot be used" in found.problem


def test_the_status_says_how_machines_are(tonnage: Command, here: Path) -> None:
    (here / "chat.yaml").write_text(chat(extra="where: {clouds: [aws]}"))
    assert tonnage("apply", "chat.yaml", "--simulate", "--yes")[0] == 0
    _, out, _ = tonnage("status", "chat", "--simulate", "-f", "json")
    status = json.loads(out)
    nothing = {"events": [], "groups": [], "lived_hours": {}, "problem": ""}
    assert status["health"] == nothing
    folder = here / ".tonnage/simulated/buckets" / status["outputs"]["bucket"]
    store = LocalStore(folder, mkdir=True)
    obstore.put(store, "alive/serve/i-1", b'{"handle": "i-1"}')
    obstore.put(
        store,
        "released/serve/i-2.json",
        b'{"reason": "idle for 30 minutes", "at": "2026-11-23T08:00:00+00:00"}',
    )
    _, out, _ = tonnage("status", "chat", "--simulate")
    assert "serve: 1 machine alive, heard " in out
    assert "2026-11-23 08:00  serve i-2 given back: idle for 30 minutes" in out

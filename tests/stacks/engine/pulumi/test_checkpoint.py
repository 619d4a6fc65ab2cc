"""Files of Pulumi that a killed run leaves: what is cut is mended, what lives is not touched."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from planner.errors import LockedError
from stacks.engine.lock import host_name
from stacks.engine.pulumi.checkpoint import FolderBackend, place_of

WHOLE = b'{"version": 3}'
CUT = b'{"version": '
# More processes than any machine has.
DEAD_PROCESS = 2**22 + 1


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    path = tmp_path / ".pulumi/stacks/tonnage/chat.json"
    path.parent.mkdir(parents=True)
    path.write_bytes(WHOLE)
    return path


def lock(tmp_path: Path, holder: bytes) -> Path:
    path = tmp_path / ".pulumi/locks/organization/tonnage/chat/one.json"
    path.parent.mkdir(parents=True)
    path.write_bytes(holder)
    return path


def holder(process_id: int, host: str = "") -> bytes:
    return json.dumps(
        {"pid": process_id, "hostname": host or host_name()}
    ).encode()


def beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


@pytest.mark.parametrize("suffix", [".attrs", ".bak.attrs"])
@pytest.mark.parametrize("content", [b"", CUT])
def test_half_written_attributes_are_dropped(
    tmp_path: Path, checkpoint: Path, suffix: str, content: bytes
) -> None:
    beside(checkpoint, ".bak").write_bytes(WHOLE)
    beside(checkpoint, suffix).write_bytes(content)
    FolderBackend(tmp_path).mend("chat")
    assert not beside(checkpoint, suffix).exists()
    assert checkpoint.read_bytes() == WHOLE


def test_whole_files_stay_as_they_are(tmp_path: Path, checkpoint: Path) -> None:
    beside(checkpoint, ".attrs").write_bytes(b"{}")
    beside(checkpoint, ".bak").write_bytes(b'{"version": 2}')
    FolderBackend(tmp_path).mend("chat")
    assert beside(checkpoint, ".attrs").read_bytes() == b"{}"
    assert checkpoint.read_bytes() == WHOLE


def test_a_cut_checkpoint_comes_back_from_its_copy(
    tmp_path: Path, checkpoint: Path
) -> None:
    checkpoint.write_bytes(CUT)
    beside(checkpoint, ".bak").write_bytes(WHOLE)
    FolderBackend(tmp_path).mend("chat")
    assert checkpoint.read_bytes() == WHOLE


@pytest.mark.parametrize("backup", [None, CUT])
def test_what_has_no_whole_copy_is_left(
    tmp_path: Path, checkpoint: Path, backup: bytes | None
) -> None:
    checkpoint.write_bytes(CUT)
    if backup is not None:
        beside(checkpoint, ".bak").write_bytes(backup)
    FolderBackend(tmp_path).mend("chat")
    assert checkpoint.read_bytes() == CUT


def test_a_removed_stack_does_not_come_back(
    tmp_path: Path, checkpoint: Path
) -> None:
    checkpoint.rename(beside(checkpoint, ".bak"))
    FolderBackend(tmp_path).mend("chat")
    assert not checkpoint.exists()


@pytest.mark.parametrize(
    "held_by",
    [
        holder(os.getpid()),
        holder(DEAD_PROCESS, "another-machine"),
        CUT,
    ],
    ids=["lives", "elsewhere", "cut"],
)
def test_nothing_is_mended_or_freed_while_a_run_may_live(
    tmp_path: Path, checkpoint: Path, held_by: bytes
) -> None:
    checkpoint.write_bytes(CUT)
    beside(checkpoint, ".bak").write_bytes(WHOLE)
    lock_path = lock(tmp_path, held_by)
    files = FolderBackend(tmp_path)
    files.mend("chat")
    assert checkpoint.read_bytes() == CUT
    with pytest.raises(LockedError):
        files.free_dead_locks("chat")
    assert lock_path.exists()


def test_the_lock_of_a_dead_run_is_freed(
    tmp_path: Path, checkpoint: Path
) -> None:
    checkpoint.write_bytes(CUT)
    beside(checkpoint, ".bak").write_bytes(WHOLE)
    lock_path = lock(tmp_path, holder(DEAD_PROCESS))
    files = FolderBackend(tmp_path)
    files.mend("chat")
    assert checkpoint.read_bytes() == WHOLE
    assert files.free_dead_locks("chat") == 1
    assert not lock_path.exists()
    assert files.free_dead_locks("chat") == 0


def test_a_resource_is_in_the_place_of_its_own_provider() -> None:
    """While a stack moves, its checkpoint has providers of two places."""
    providers = [
        {
            "urn": f"urn:{package}",
            "id": provider_id,
            "type": f"pulumi:providers:{package}",
            "inputs": {key: region},
        }
        for package, provider_id, key, region in (
            ("aws", "1", "region", "us-east-1"),
            ("aws", "2", "region", "us-west-2"),
            ("azure-native", "3", "location", "eastus"),
        )
    ]
    deployment = {"resources": providers}
    assert [
        place_of(deployment, {"provider": reference})
        for reference in ("urn:aws::1", "urn:aws::2", "urn:azure-native::3")
    ] == [("aws", "us-east-1"), ("aws", "us-west-2"), ("azure", "eastus")]
    assert place_of(deployment, {"provider": "urn:aws::9"}) == ("", "")
    assert place_of(deployment, {}) == ("", "")
    assert place_of({}, {"provider": "urn:aws::1"}) == ("", "")

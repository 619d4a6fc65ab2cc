"""The checkpoint of a stack, as Pulumi keeps it in a folder or a bucket.

Pulumi writes it whole, after a copy of the one before. Its lock is a file that names a process;
one that was killed leaves it. A call that was cut off is a pending operation in the checkpoint.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlsplit

from planner.errors import LockedError, Problem
from planner.facts.cloud import clouds
from providers.files import write_atomically
from stacks.engine.lock import host_name, is_running
from stacks.engine.pulumi.session import PROJECT_NAME

if TYPE_CHECKING:
    from planner.plan.types import Properties

BACKUP_SUFFIX: Final = ".bak"


class FolderBackend:
    """Pulumi's files in a folder of this machine."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / ".pulumi"

    def free_dead_locks(self, stack_name: str) -> int:
        """Delete the locks of processes that are gone, and return how many there were.

        Raises LockedError while one of them lives, or is on a machine that cannot be asked.
        """
        lock_folder = (
            self.folder / "locks" / "organization" / PROJECT_NAME / stack_name
        )
        lock_paths = sorted(lock_folder.glob("*.json"))
        for lock_path in lock_paths:
            holder = _read_json(lock_path) or {}
            if holder.get("hostname") != host_name() or is_running(
                int(holder["pid"]), ""
            ):
                raise _held_error(stack_name, holder)
        for lock_path in lock_paths:
            lock_path.unlink(missing_ok=True)
        return len(lock_paths)

    def restore_checkpoint(self, stack_name: str) -> bool:
        """Put the copy of the checkpoint in place of one that is cut; return whether it was."""
        checkpoint_path = (
            self.folder / "stacks" / PROJECT_NAME / f"{stack_name}.json"
        )
        backup_path = checkpoint_path.with_name(
            checkpoint_path.name + BACKUP_SUFFIX
        )
        if (
            not backup_path.exists()
            or _read_json(checkpoint_path) is not None
            or _read_json(backup_path) is None
        ):
            return False
        # A stack that was removed has a copy, and no checkpoint.
        if not checkpoint_path.exists():
            return False
        write_atomically(checkpoint_path, backup_path.read_bytes())
        return True


def folder_backend(backend_url: str) -> FolderBackend | None:
    """Return the files of a backend that is a folder; nothing for any other."""
    url = urlsplit(backend_url)
    if url.scheme != "file":
        return None
    return FolderBackend(Path(unquote(url.path)).expanduser())


def pending_operations(deployment: Properties) -> list[Properties]:
    """Return the operations of a checkpoint whose end is not known."""
    return list(deployment.get("pending_operations") or ())


def resource_ids(deployment: Properties) -> set[str]:
    """Return the ids of all objects in a checkpoint."""
    return {
        str(record["id"])
        for record in deployment.get("resources") or ()
        if record.get("id")
    }


def place_of(deployment: Properties) -> tuple[str, str]:
    """Return cloud and region of a checkpoint, as its provider has them."""
    for state_record in deployment.get("resources") or ():
        for cloud, facts in clouds().items():
            if state_record["type"] == f"pulumi:providers:{facts.package}":
                region = state_record["inputs"].get(facts.region_property, "")
                return (cloud, str(region))
    return ("", "")


def _read_json(path: Path) -> Any:
    """Return the document of a file; nothing for one that is absent or cut."""
    try:
        return json.loads(path.read_bytes())
    except (FileNotFoundError, ValueError):
        return None


def _held_error(stack_name: str, holder: Properties) -> LockedError:
    return LockedError(
        Problem(
            code="locked",
            message=f"{stack_name} is locked by Pulumi itself",
            cause=f"{holder.get('username')}@{holder.get('hostname')} "
            f"(process {holder.get('pid')}) since {holder.get('timestamp')}",
            next_step="wait for it to end, then try again",
        )
    )

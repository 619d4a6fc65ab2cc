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

if TYPE_CHECKING:
    from planner.plan.types import Properties

PROJECT_NAME: Final = "tonnage"
BACKUP_SUFFIX: Final = ".bak"
# What Pulumi's storage writes beside each of its files.
ATTRIBUTES_SUFFIX: Final = ".attrs"


class FolderBackend:
    """Pulumi's files in a folder of this machine."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / ".pulumi"

    def free_dead_locks(self, stack_name: str) -> int:
        """Delete the locks of processes that are gone, and return how many there were.

        Raises LockedError while one of them lives, or is on a machine that cannot be asked.
        """
        lock_paths = self._lock_paths(stack_name)
        for lock_path in lock_paths:
            holder = _read_json(lock_path)
            if not _is_dead(holder):
                raise _held_error(stack_name, holder or {})
        for lock_path in lock_paths:
            lock_path.unlink(missing_ok=True)
        return len(lock_paths)

    def mend(self, stack_name: str) -> None:
        """Let the files of a stack be read again after a run was killed while it wrote them.

        While a run lives, nothing is touched.
        """
        if not all(
            _is_dead(_read_json(lock_path))
            for lock_path in self._lock_paths(stack_name)
        ):
            return
        stack_folder = self.folder / "stacks" / PROJECT_NAME
        checkpoint_path = stack_folder / f"{stack_name}.json"
        backup_path = checkpoint_path.with_name(
            checkpoint_path.name + BACKUP_SUFFIX
        )
        for path in (checkpoint_path, backup_path):
            attributes_path = path.with_name(path.name + ATTRIBUTES_SUFFIX)
            # A file can be read without its attributes, but not with half of them.
            if attributes_path.exists() and _read_json(attributes_path) is None:
                attributes_path.unlink(missing_ok=True)
        # A stack that was removed has a copy, and no checkpoint.
        is_cut = (
            checkpoint_path.exists() and _read_json(checkpoint_path) is None
        )
        if is_cut and _read_json(backup_path) is not None:
            write_atomically(checkpoint_path, backup_path.read_bytes())

    def stack_names(self) -> list[str]:
        """Return the names of all stacks that have a checkpoint."""
        folder = self.folder / "stacks" / PROJECT_NAME
        return sorted(path.stem for path in folder.glob("*.json"))

    def _lock_paths(self, stack_name: str) -> list[Path]:
        lock_folder = (
            self.folder / "locks" / "organization" / PROJECT_NAME / stack_name
        )
        return sorted(lock_folder.glob("*.json"))


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


def place_of(
    deployment: Properties, state_record: Properties
) -> tuple[str, str]:
    """Return cloud and region of a resource, as its provider in the checkpoint has them.

    A stack that moves has a provider of each place; the place of a provider is its own.
    """
    clouds_by_type = {
        f"pulumi:providers:{facts.package}": (cloud, facts)
        for cloud, facts in clouds().items()
    }
    for provider in deployment.get("resources") or ():
        if provider["type"] not in clouds_by_type:
            continue
        # Pulumi refers to a provider by its name and its id.
        if (
            state_record.get("provider")
            != f"{provider['urn']}::{provider['id']}"
        ):
            continue
        cloud, facts = clouds_by_type[provider["type"]]
        return (cloud, str(provider["inputs"].get(facts.region_property, "")))
    return ("", "")


def _read_json(path: Path) -> Any:
    """Return the document of a file; nothing for one that is absent or cut."""
    try:
        return json.loads(path.read_bytes())
    except (FileNotFoundError, ValueError):
        return None


def _is_dead(holder: Any) -> bool:
    """Tell whether the process that a lock names is gone; one that cannot be asked is not."""
    return (
        isinstance(holder, dict)
        and holder.get("hostname") == host_name()
        and not is_running(int(holder["pid"]), "")
    )


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

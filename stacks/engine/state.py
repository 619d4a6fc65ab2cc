"""The state of a stack in a file: written whole or not at all, with a checksum, behind a lock."""

from __future__ import annotations

import hashlib
import json
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from filelock import FileLock, Timeout

from planner.errors import LockedError, Problem, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SCHEMA: Final = "tonnage.state/1"


def fresh(stack: str) -> dict[str, Any]:
    """Return the state of a stack that does not exist yet."""
    return {
        "schema": SCHEMA,
        "stack": stack,
        "serial": 0,
        "plan": "",
        "started": "",
        "complete": False,
        "resources": {},
        "outputs": {},
        "facts": {},
    }


def digest(state: dict[str, Any]) -> str:
    """SHA-256 of a state."""
    body = json.dumps(
        state, sort_keys=True, separators=(",", ":"), ensure_ascii=False
    )
    return hashlib.sha256(body.encode()).hexdigest()


def load(path: Path) -> dict[str, Any] | None:
    """Read a state; nothing when there is none. Raises UsageError when it is damaged."""
    if not path.exists():
        return None
    try:
        envelope = json.loads(path.read_text(encoding="utf-8"))
        state: dict[str, Any] = envelope["state"]
        whole = (
            envelope["sha256"] == digest(state) and state["schema"] == SCHEMA
        )
    except (ValueError, KeyError, TypeError) as error:
        raise _damaged(path) from error
    if not whole:
        raise _damaged(path)
    return state


def save(path: Path, state: dict[str, Any]) -> None:
    """Write a state: to a file beside, flushed to the disk, then renamed over the old one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_suffix(".tmp")
    with beside.open("w", encoding="utf-8") as handle:
        envelope = {"sha256": digest(state), "state": state}
        json.dump(envelope, handle, sort_keys=True, ensure_ascii=False)
        handle.flush()
        os.fsync(handle.fileno())
    beside.replace(path)


@contextmanager
def locked(path: Path, what: str) -> Iterator[None]:
    """Hold the lock of a file; the system frees it when the process ends, however it ends."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(path.with_suffix(".lock"), timeout=0)
    try:
        lock.acquire()
    except Timeout as error:
        problem = Problem(
            code="locked",
            message=f"another process works on {what}",
            next_step="wait for it to end, then try again",
        )
        raise LockedError(problem) from error
    try:
        yield
    finally:
        lock.release()


def _damaged(path: Path) -> UsageError:
    step = "restore the file from a copy; nothing was changed"
    message = f"the state {path} is damaged: its checksum differs"
    return UsageError(Problem(code="state", message=message, next_step=step))

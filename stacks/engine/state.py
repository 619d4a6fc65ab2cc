"""The state of a stack in a file: written whole or not at all, with a checksum, behind a lock."""

from __future__ import annotations

import hashlib
import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from filelock import FileLock, Timeout

from planner.errors import LockedError, Problem, UsageError
from providers.files import write_atomically

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from planner.plan.types import Properties

STATE_SCHEMA: Final = "tonnage.state/1"


def empty_state(stack_name: str) -> Properties:
    """Return the state of a stack that does not exist yet."""
    return {
        "schema": STATE_SCHEMA,
        "stack": stack_name,
        "serial": 0,
        "plan": "",
        "started": "",
        "complete": False,
        "resources": {},
        "outputs": {},
        "facts": None,
    }


def state_digest(stack_state: Properties) -> str:
    """SHA-256 of a state."""
    state_json = json.dumps(
        stack_state, sort_keys=True, separators=(",", ":"), ensure_ascii=False
    )
    return hashlib.sha256(state_json.encode()).hexdigest()


def load_state(state_path: Path) -> Properties | None:
    """Read a state; nothing when there is none. Raises UsageError when it is damaged."""
    if not state_path.exists():
        return None
    try:
        envelope = json.loads(state_path.read_text(encoding="utf-8"))
        stack_state: Properties = envelope["state"]
        is_intact = (
            envelope["sha256"] == state_digest(stack_state)
            and stack_state["schema"] == STATE_SCHEMA
        )
    except (ValueError, KeyError, TypeError) as read_error:
        raise _damaged_error(state_path) from read_error
    if not is_intact:
        raise _damaged_error(state_path)
    return stack_state


def save_state(state_path: Path, stack_state: Properties) -> None:
    """Write a state: to a file beside, flushed to the disk, then renamed over the old one."""
    envelope = {"sha256": state_digest(stack_state), "state": stack_state}
    write_atomically(
        state_path, json.dumps(envelope, sort_keys=True, ensure_ascii=False)
    )


@contextmanager
def exclusive_lock(locked_path: Path, lock_subject: str) -> Iterator[None]:
    """Hold the lock of a file; the system frees it when the process ends, however it ends."""
    locked_path.parent.mkdir(parents=True, exist_ok=True)
    file_lock = FileLock(locked_path.with_suffix(".lock"), timeout=0)
    try:
        file_lock.acquire()
    except Timeout as timeout_error:
        problem = Problem(
            code="locked",
            message=f"another process works on {lock_subject}",
            next_step="wait for it to end, then try again",
        )
        raise LockedError(problem) from timeout_error
    try:
        yield
    finally:
        file_lock.release()


def _damaged_error(state_path: Path) -> UsageError:
    next_step = "restore the file from a copy; nothing was changed"
    message = f"the state {state_path} is damaged: its checksum differs"
    return UsageError(
        Problem(code="state", message=message, next_step=next_step)
    )

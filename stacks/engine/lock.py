"""Who works on a stack: told to those who wait, and checked before a lock is taken over."""

from __future__ import annotations

import getpass
import os
import platform
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final
from uuid import uuid4

import msgspec
from msgspec import Struct

from planner.errors import LockedError, Problem

# A holder says that it lives three times in the time after which nobody believes it any more.
LEASE: Final = timedelta(seconds=60)
RENEWAL_S: Final = 20.0
PROC: Final = Path("/proc")
# The field of /proc/PID/stat with the start of the process, counted behind its name.
START_FIELD: Final = 19
# State of a process that has ended, and that nobody has asked for its exit code.
ZOMBIE: Final = "Z"


class LockHolder(Struct, frozen=True, kw_only=True):
    """A run that holds the lock of a stack.

    key      of this run alone
    user     and `host`: who it is, and where
    pid      process on the host
    started  when the system started the process, in its own ticks; empty where it does not say
    command  what is being done
    since    when the lock was taken; `renewed` when its holder last said that it lives
    """

    key: str
    user: str
    host: str
    pid: int
    started: str
    command: str
    since: datetime
    renewed: datetime

    def is_dead(self) -> bool:
        """Whether it ran on this machine, and its process is gone."""
        return self.host == host_name() and not is_running(
            self.pid, self.started
        )

    def is_expired(self, now: datetime) -> bool:
        """Whether it has not said for so long that it lives that the lock may be taken over."""
        return now > self.renewed + LEASE

    def describe(self) -> str:
        """Say who it is, where, and since when."""
        since = self.since.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        return f"{self.user}@{self.host} (process {self.pid}), {self.command} since {since}"


def this_run(command: str, now: datetime) -> LockHolder:
    """Return the holder that this process is."""
    pid = os.getpid()
    return LockHolder(
        key=uuid4().hex,
        user=user_name(),
        host=host_name(),
        pid=pid,
        started=process_start(pid),
        command=command,
        since=now,
        renewed=now,
    )


def encode_holder(holder: LockHolder) -> bytes:
    """Return a holder as JSON."""
    return msgspec.json.encode(holder)


def decode_holder(content: bytes) -> LockHolder | None:
    """Return the holder of a file; nothing when it says none."""
    try:
        return msgspec.json.decode(content, type=LockHolder)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None


def locked_error(stack_name: str, holder: LockHolder | None) -> LockedError:
    """Return the error of a stack that somebody else works on."""
    return LockedError(
        Problem(
            code="locked",
            message=f"another process works on {stack_name}",
            cause=holder.describe() if holder else "",
            next_step="wait for it to end, then try again; of one that is dead: "
            f"tonnage unlock {stack_name}",
        )
    )


def host_name() -> str:
    """Return the name of this machine."""
    return platform.node()


def is_running(pid: int, started: str) -> bool:
    """Whether a process of this machine lives; a later one with the same number is another.

    In a container nobody may ask for the exit code of a process that was killed; it stays as a
    zombie, which does nothing any more.
    """
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    if _status_fields(pid)[:1] == [ZOMBIE]:
        return False
    return not started or process_start(pid) == started


def process_start(pid: int) -> str:
    """Return when a process was started, in ticks of the system; empty where it does not say."""
    fields = _status_fields(pid)
    return fields[START_FIELD] if fields else ""


def _status_fields(pid: int) -> list[str]:
    """Return what the system says of a process, from its state on; nothing where it does not."""
    if sys.platform != "linux":
        return []
    try:
        status_line = (PROC / str(pid) / "stat").read_text("utf-8")
    except OSError:
        return []
    # The name of the program is in parentheses, and may have anything in it.
    return status_line.rpartition(")")[2].split()


def user_name() -> str:
    """Return who runs this process."""
    try:
        return getpass.getuser()
    # A container may run under a number that has no name.
    except (KeyError, OSError, ImportError):
        return str(os.getuid())

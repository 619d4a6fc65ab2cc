"""The world that all processes of a folder work on: each call is a transaction on its file."""

from __future__ import annotations

from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from filelock import FileLock

from providers.files import make_folder
from providers.simulated.cloud import SimulatedCloud
from providers.simulated.world import WorldMemory, load_memory, save_memory

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime
    from os import stat_result
    from pathlib import Path

    from providers.simulated.world import World

# Where a plugin, which is a process of its own, finds the world, and its rules.
FOLDER_VARIABLE: Final = "TONNAGE_SIMULATED_FOLDER"
WORLD_VARIABLE: Final = "TONNAGE_SIMULATED_WORLD"
# A call takes milliseconds, so whoever waits longer waits for a process that hangs.
PATIENCE_S: Final = 60.0


class SharedWorld:
    """A world in a folder.

    rules   what holds in the world
    memory  what has happened in it, as it was at the last call
    """

    def __init__(self, rules: World, folder: Path) -> None:
        self.rules = rules
        self.path = folder / "world.json"
        self.memory = WorldMemory()
        self._lock = FileLock(folder / "world.lock", timeout=PATIENCE_S)
        self._read_status: tuple[int, ...] | None = None

    @contextmanager
    def call(self, region: str) -> Iterator[SimulatedCloud]:
        """Make a call; what it did is durable when it returns, also when it was refused."""
        make_folder(self.path.parent)
        with self._lock:
            self._load()
            try:
                yield SimulatedCloud(self.rules, self.memory, region)
            finally:
                save_memory(self.path, self.memory)
                self._read_status = _file_identity(self.path.stat())

    def view(self, region: str = "") -> SimulatedCloud:
        """Return the clouds as they are, for calls that change nothing."""
        self._load()
        return SimulatedCloud(self.rules, self.memory, region)

    def rename(self, stack_name: str, new_name: str) -> None:
        """Let what was made for a stack be that of its new name."""
        with self.call("") as cloud:
            for history in cloud.memory.history.values():
                if history.stack == stack_name:
                    history.stack = new_name

    def silent_groups(self, stack_name: str) -> set[str]:
        """Return the groups of a stack whose new machines do not answer."""
        self._load()
        return {
            history.name
            for history in self.memory.history.values()
            if history.stack == stack_name
            and history.is_silent
            and history.until is None
        }

    def now(self) -> datetime:
        """Return the time in the world."""
        self._load()
        return self.rules.clock + timedelta(seconds=self.memory.seconds)

    def _load(self) -> None:
        """Read the file, unless it is the one that was read or written last."""
        if not self.path.exists():
            self.memory = WorldMemory()
            return
        found_status = _file_identity(self.path.stat())
        if found_status != self._read_status:
            self.memory = load_memory(self.path)
            self._read_status = found_status


def _file_identity(status: stat_result) -> tuple[int, ...]:
    # A file that replaces another has another number, however fast it comes.
    return (status.st_ino, status.st_mtime_ns, status.st_size)

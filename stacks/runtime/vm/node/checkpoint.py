"""Checkpoints in the bucket: complete ones alone count, and old ones go.

    checkpoints/announced             the step that is being brought, and the epoch that saved it
    checkpoints/iter_0000400/...      its files
    checkpoints/iter_0000400/.of-3-7  the files that the node of rank 3 has brought in epoch 7
    checkpoints/iter_0000400/.whole   names and sizes of all files; it is complete

Where nodes share a file system, the node of rank 0 brings the files of all. Otherwise each brings
its own, once the node of rank 0, to which the job tells that it has saved, has announced the step.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from typing import TYPE_CHECKING, Any, NamedTuple

from stacks.runtime.vm.node.host import write_whole
from stacks.runtime.vm.node.retention import expired_checkpoints
from stacks.runtime.vm.node.upload import MANIFEST
from stacks.runtime.vm.node.work import StepError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from stacks.runtime.vm.node.cloud import CloudApi
    from stacks.runtime.vm.node.host import Host

PREFIX = "checkpoints/"
ANNOUNCED = f"{PREFIX}announced"
WHOLE = ".whole"
# The job writes the step of its newest checkpoint here, as the last thing.
TRACKER = "latest_checkpointed_iteration.txt"
# On its own disk a node has the newest, and the one that is being written.
LOCAL_CHECKPOINTS = 2
PART_BYTES = 64 * 2**20


class Rank(NamedTuple):
    """The place of this node in a job: its rank among `nodes`, in an epoch."""

    number: int
    nodes: int
    epoch: int


class Ending(NamedTuple):
    """How a job has ended for good; without a problem it is done."""

    problem: str


class Checkpoints:
    """The checkpoints of a job, as one of its nodes keeps them.

    Settings: checkpoints (a folder), shares_files, job, keep_last, span_steps, last_step, upload.
    """

    def __init__(
        self, machine: Host, cloud: CloudApi, settings: Mapping[str, Any]
    ) -> None:
        self._machine = machine
        self._cloud = cloud
        self._settings = settings
        self._folder: Path = machine.path(settings["checkpoints"])

    @property
    def done_mark(self) -> str:
        """The file by which a job may say that it is done."""
        return f"{self._settings['checkpoints']}/done-{self._settings['job']}"

    def ending(self) -> Ending | None:
        """Return how the job has ended for good, as the bucket knows it."""
        if self._cloud.read(self._end_key("done")) is not None:
            return Ending("")
        failed = self._cloud.read(self._end_key("failed"))
        if failed is None:
            return None
        document = json.loads(failed.data)
        # Another upload is another try.
        if document["upload"] != self._upload_digest():
            return None
        return Ending(document["problem"])

    def tell_done(self) -> None:
        """Tell all nodes that the job is done."""
        self._cloud.write(self._end_key("done"), b"")

    def tell_failed(self, problem: str) -> None:
        """Tell all nodes that the job fails, however often it is started."""
        document = {"problem": problem, "upload": self._upload_digest()}
        self._cloud.write(
            self._end_key("failed"), json.dumps(document).encode()
        )

    def _end_key(self, ending: str) -> str:
        return f"{PREFIX}{ending}-{self._settings['job']}"

    def _upload_digest(self) -> str:
        folder = self._machine.path(self._settings["upload"]["folder"])
        listing = folder / f".{MANIFEST}"
        return hashlib.sha256(listing.read_bytes()).hexdigest()

    def is_saved(self) -> bool:
        """Whether the newest checkpoint of this node is complete in the bucket."""
        step = self.saved_step()
        return step == 0 or step in self._whole_steps()

    def says_done(self) -> bool:
        """Whether the job says so here: by its last checkpoint, or by its mark."""
        return (
            self.saved_step() >= self._settings["last_step"]
            or self._machine.path(self.done_mark).exists()
        )

    def saved_step(self) -> int:
        """Return the step of the newest checkpoint of this node; 0 without one."""
        try:
            return int((self._folder / TRACKER).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return 0

    def restore(self, rank: Rank, pulse: Callable[[], None]) -> None:
        """Bring the newest complete checkpoint here, so that all nodes go on from the same one.

        `pulse` is called between parts. Raises StepError when a file of it is not whole, and on
        a shared file system while the first node still brings it.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        steps = self._whole_steps()
        newest = steps[-1] if steps else 0
        if self._settings["shares_files"]:
            if self.saved_step() >= newest:
                return
            if rank.number:
                raise StepError("the first node brings the checkpoint")
        else:
            # What this node has alone, no other one could go on from; and what it has of a step
            # may be of another epoch than the one that became complete.
            (self._folder / TRACKER).unlink(missing_ok=True)
            for path in self._folder.glob("iter_*"):
                shutil.rmtree(path)
        if not newest:
            return
        whole = self._cloud.read(f"{PREFIX}{_name(newest)}/{WHOLE}")
        sizes: dict[str, int] = json.loads(whole.data) if whole else {}
        for name, size in sizes.items():
            self._fetch(f"{_name(newest)}/{name}", size, pulse)
        write_whole(self._folder / TRACKER, str(newest))

    def _fetch(self, name: str, size: int, pulse: Callable[[], None]) -> None:
        path = self._folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_name(f"{path.name}.part")
        with unfinished.open("wb") as stream:
            for start in range(0, size, PART_BYTES):
                part = self._cloud.read(
                    PREFIX + name, start, min(PART_BYTES, size - start)
                )
                if part is None:
                    raise StepError(f"{name} has gone from the bucket")
                stream.write(part.data)
                pulse()
        if unfinished.stat().st_size != size:
            raise StepError(f"{name} is not as long as when it was saved")
        unfinished.replace(path)

    def keep(self, rank: Rank, pulse: Callable[[], None]) -> None:
        """Bring what is new to the bucket, and delete what is not to be kept.

        `pulse` is called between files and parts of them.
        """
        if rank.number == 0:
            step = self.saved_step()
            if step and step not in self._whole_steps():
                announcement = {"step": step, "epoch": rank.epoch}
                self._cloud.write(ANNOUNCED, json.dumps(announcement).encode())
        stored = self._cloud.read(ANNOUNCED)
        announced = json.loads(stored.data) if stored else {"epoch": -1}
        # What another epoch has announced, this one has not saved.
        if announced["epoch"] != rank.epoch:
            return
        step = announced["step"]
        if rank.number == 0 or not self._settings["shares_files"]:
            self._bring(step, rank, pulse)
        if rank.number == 0:
            self._complete(step, rank)
            self._drop_expired()
        self._drop_local(step)

    def _bring(self, step: int, rank: Rank, pulse: Callable[[], None]) -> None:
        """Bring the files of this node, then say which these are."""
        mark = f"{PREFIX}{_name(step)}/.of-{rank.number}-{rank.epoch}"
        paths = _files(self._folder / _name(step))
        if not paths or self._cloud.read(mark) is not None:
            return
        sizes = {}
        for path in paths:
            name = path.relative_to(self._folder / _name(step)).as_posix()
            self._cloud.write_file(
                f"{PREFIX}{_name(step)}/{name}", str(path), pulse
            )
            sizes[name] = path.stat().st_size
            pulse()
        self._cloud.write(mark, json.dumps(sizes).encode())

    def _complete(self, step: int, rank: Rank) -> None:
        """Write the list of the files of a checkpoint once every node has brought its own."""
        prefix = f"{PREFIX}{_name(step)}/"
        if self._cloud.read(prefix + WHOLE) is not None:
            return
        bringers = 1 if self._settings["shares_files"] else rank.nodes
        sizes: dict[str, int] = {}
        for number in range(bringers):
            mark = self._cloud.read(f"{prefix}.of-{number}-{rank.epoch}")
            if mark is None:
                return
            sizes |= json.loads(mark.data)
        self._cloud.write(prefix + WHOLE, json.dumps(sizes).encode())

    def _whole_steps(self) -> list[int]:
        """Return the steps of the complete checkpoints of the bucket."""
        return sorted(
            int(
                item.key.removeprefix(PREFIX)
                .partition("/")[0]
                .removeprefix("iter_")
            )
            for item in self._cloud.list(f"{PREFIX}iter_")
            if item.key.endswith(f"/{WHOLE}")
        )

    def _drop_expired(self) -> None:
        """Delete checkpoints that are not kept, and torn ones that newer ones replace."""
        steps = self._whole_steps()
        if not steps:
            return
        kept_names = {_name(step) for step in steps} - set(
            expired_checkpoints(
                [_name(step) for step in steps],
                self._settings["keep_last"],
                self._settings["span_steps"],
            )
        )
        for item in self._cloud.list(f"{PREFIX}iter_"):
            name = item.key.removeprefix(PREFIX).partition("/")[0]
            if name not in kept_names and name < _name(steps[-1]):
                self._cloud.delete(item.key)

    def _drop_local(self, step: int) -> None:
        """Delete checkpoints of this disk that are older than those that are still needed."""
        names = sorted(path.name for path in self._folder.glob("iter_*"))
        for name in names[:-LOCAL_CHECKPOINTS]:
            if name < _name(step):
                shutil.rmtree(self._folder / name)


def _name(step: int) -> str:
    return f"iter_{step:07d}"


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())

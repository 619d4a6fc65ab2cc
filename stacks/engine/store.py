"""Where states of stacks are kept: a folder, or a bucket that several people share.

A write names the version that it follows, and is refused when somebody else has written since.
So a run that has lost its lock cannot overwrite what the next one has written.
"""

from __future__ import annotations

import hashlib
import threading
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, Protocol

from filelock import FileLock, Timeout
from msgspec import Struct
from msgspec.structs import replace
from obstore import delete as delete_object
from obstore import exceptions
from obstore import get as get_object
from obstore import list as list_objects
from obstore import put as put_object

from planner.errors import LockedError, Problem
from providers.files import (
    MAX_DOCUMENT_BYTES,
    make_folder,
    read_regular,
    write_atomically,
)
from stacks.engine.lock import (
    RENEWAL_S,
    decode_holder,
    encode_holder,
    locked_error,
    this_run,
)
from stacks.operate.bucket_error import bucket_errors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    from obstore import ObjectMeta, PutResult, UpdateVersion
    from obstore.store import ObjectStore

    from stacks.engine.lock import LockHolder

STATE_SUFFIX: Final = ".json"
LOCK_SUFFIX: Final = ".lock"
HOLDER_SUFFIX: Final = ".holder"
NOTE_SUFFIX: Final = ".note"
KEPT_SUFFIX: Final = ".kept"
# How buckets say that an object is there already, or is another version.
CONFLICTS: Final = (
    exceptions.AlreadyExistsError,
    exceptions.PreconditionError,
)


class StoredState(Struct, frozen=True):
    """The content of a state, and the version that the next write has to name."""

    content: bytes
    version: str


class StateStore(Protocol):
    """Keeps one state for each stack."""

    def location(self, stack_name: str) -> str:
        """Say where the state of a stack is, for messages."""

    def stack_names(self) -> list[str]:
        """Return the names of all stacks, sorted."""

    def read(self, stack_name: str) -> StoredState | None:
        """Return the state of a stack; nothing when there is none."""

    def write(
        self, stack_name: str, content: bytes, version: str | None
    ) -> str:
        """Write a state durably and return its version.

        `version` is the one that was read; none for a state that must not exist yet. Raises
        LockedError when the state has another version.
        """

    def delete(self, stack_name: str) -> None:
        """Delete a state; an absent one is no error."""

    def lock(
        self, stack_name: str, command: str
    ) -> AbstractContextManager[None]:
        """Hold the lock of a stack. Raises LockedError, which names the holder."""

    def holder(self, stack_name: str) -> LockHolder | None:
        """Return who holds the lock of a stack; nothing when nobody does."""

    def add_note(self, stack_name: str, name: str, content: bytes) -> None:
        """Keep something about a stack that is never changed, also when the stack is gone."""

    def notes(self, stack_name: str) -> list[bytes]:
        """Return what is kept about a stack, in the order of names."""

    def keep(self, stack_name: str, content: bytes) -> None:
        """Keep a document of a stack in place of the one before."""

    def kept(self, stack_name: str) -> bytes | None:
        """Return the document that is kept of a stack; nothing when there is none."""

    def forget(self, stack_name: str) -> None:
        """Delete the document that is kept of a stack; an absent one is no error."""

    def unlock(self, stack_name: str) -> bool:
        """Free a lock whose holder is dead; return whether there was one.

        Raises LockedError while the holder lives.
        """


class FolderStore:
    """States in a folder. The system frees a lock when its process ends, however it ends."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, stack_name: str) -> Path:
        """Where the state of a stack lies."""
        return self.folder / f"{stack_name}{STATE_SUFFIX}"

    def location(self, stack_name: str) -> str:
        """Say where the state of a stack is."""
        return str(self.path(stack_name))

    def stack_names(self) -> list[str]:
        """Return the names of all stacks."""
        return sorted(
            state_path.stem for state_path in self.folder.glob("*.json")
        )

    def read(self, stack_name: str) -> StoredState | None:
        """Return the state of a stack."""
        try:
            content = read_regular(self.path(stack_name))
        except FileNotFoundError:
            return None
        return StoredState(content, _content_version(content))

    def write(
        self, stack_name: str, content: bytes, version: str | None
    ) -> str:
        """Write a state to a file beside, flushed to the disk, and rename it over the old one."""
        present = self.read(stack_name)
        if (present.version if present else None) != version:
            raise _overtaken_error(stack_name)
        write_atomically(self.path(stack_name), content)
        return _content_version(content)

    def delete(self, stack_name: str) -> None:
        """Delete a state."""
        self.path(stack_name).unlink(missing_ok=True)

    @contextmanager
    def lock(self, stack_name: str, command: str) -> Iterator[None]:
        """Hold the lock of a stack."""
        make_folder(self.folder)
        file_lock = self._file_lock(stack_name)
        holder_path = self._holder_path(stack_name)
        try:
            file_lock.acquire()
        except Timeout as timeout_error:
            raise locked_error(
                stack_name, self._written_holder(stack_name)
            ) from timeout_error
        try:
            write_atomically(
                holder_path, encode_holder(this_run(command, _now()))
            )
            yield
        finally:
            holder_path.unlink(missing_ok=True)
            file_lock.release()

    def holder(self, stack_name: str) -> LockHolder | None:
        """Return who holds the lock of a stack."""
        if not self.folder.is_dir():
            return None
        file_lock = self._file_lock(stack_name)
        try:
            file_lock.acquire()
        except Timeout:
            return self._written_holder(stack_name)
        file_lock.release()
        return None

    def unlock(self, stack_name: str) -> bool:
        """Free what a dead run has left: its name, for the system has freed its lock."""
        holder = self.holder(stack_name)
        if holder is not None:
            raise locked_error(stack_name, holder)
        has_remains = self._holder_path(stack_name).exists()
        self._holder_path(stack_name).unlink(missing_ok=True)
        return has_remains

    def add_note(self, stack_name: str, name: str, content: bytes) -> None:
        """Keep something about a stack in a file of its own."""
        note_folder = self.folder / f"{stack_name}{NOTE_SUFFIX}"
        make_folder(note_folder)
        write_atomically(note_folder / f"{name}{NOTE_SUFFIX}", content)

    def notes(self, stack_name: str) -> list[bytes]:
        """Return what is kept about a stack."""
        note_folder = self.folder / f"{stack_name}{NOTE_SUFFIX}"
        return [
            read_regular(note_path, MAX_DOCUMENT_BYTES)
            for note_path in sorted(note_folder.glob(f"*{NOTE_SUFFIX}"))
        ]

    def keep(self, stack_name: str, content: bytes) -> None:
        """Keep a document of a stack in a file of its own."""
        make_folder(self.folder)
        write_atomically(self._kept_path(stack_name), content)

    def kept(self, stack_name: str) -> bytes | None:
        """Return the document that is kept of a stack."""
        try:
            return read_regular(self._kept_path(stack_name), MAX_DOCUMENT_BYTES)
        except FileNotFoundError:
            return None

    def forget(self, stack_name: str) -> None:
        """Delete the document that is kept of a stack."""
        self._kept_path(stack_name).unlink(missing_ok=True)

    def _kept_path(self, stack_name: str) -> Path:
        return self.folder / f"{stack_name}{KEPT_SUFFIX}"

    def _file_lock(self, stack_name: str) -> FileLock:
        return FileLock(self.folder / f"{stack_name}{LOCK_SUFFIX}", timeout=0)

    def _holder_path(self, stack_name: str) -> Path:
        return self.folder / f"{stack_name}{HOLDER_SUFFIX}"

    def _written_holder(self, stack_name: str) -> LockHolder | None:
        try:
            return decode_holder(
                read_regular(self._holder_path(stack_name), MAX_DOCUMENT_BYTES)
            )
        except FileNotFoundError:
            return None


class BucketStore:
    """States in a bucket. A lock is an object that its holder renews while it lives."""

    def __init__(
        self,
        objects: ObjectStore,
        provider: str,
        url: str,
        clock: Callable[[], datetime] | None = None,
    ) -> None:
        self.objects = objects
        self.provider = provider
        self.url = url
        self.clock = clock or _now
        self.versions: dict[str, UpdateVersion] = {}

    def location(self, stack_name: str) -> str:
        """Say where the state of a stack is."""
        return f"{self.url}/{stack_name}{STATE_SUFFIX}"

    def stack_names(self) -> list[str]:
        """Return the names of all stacks."""
        with self._errors():
            return sorted(
                found["path"].rpartition("/")[2].removesuffix(STATE_SUFFIX)
                for page in list_objects(self.objects)
                for found in page
                if found["path"].endswith(STATE_SUFFIX)
            )

    def read(self, stack_name: str) -> StoredState | None:
        """Return the state of a stack."""
        found = self._get(f"{stack_name}{STATE_SUFFIX}")
        return found and StoredState(found[0], self._remember(found[1]))

    def write(
        self, stack_name: str, content: bytes, version: str | None
    ) -> str:
        """Write a state if nobody has written since."""
        with self._errors():
            try:
                written = put_object(
                    self.objects,
                    f"{stack_name}{STATE_SUFFIX}",
                    content,
                    mode="create"
                    if version is None
                    else self.versions[version],
                )
            except CONFLICTS:
                raise _overtaken_error(stack_name) from None
        return self._remember(written)

    def delete(self, stack_name: str) -> None:
        """Delete a state."""
        with self._errors(), suppress(FileNotFoundError):
            delete_object(self.objects, f"{stack_name}{STATE_SUFFIX}")

    @contextmanager
    def lock(self, stack_name: str, command: str) -> Iterator[None]:
        """Hold the lock of a stack, and renew it until the work is done."""
        key = f"{stack_name}{LOCK_SUFFIX}"
        holder = this_run(command, self.clock())
        version = self._take(stack_name, key, holder)
        done = threading.Event()
        renewal = threading.Thread(
            target=self._renew, args=(key, holder, version, done), daemon=True
        )
        renewal.start()
        try:
            yield
        finally:
            done.set()
            renewal.join()
            self._release(key, holder)

    def holder(self, stack_name: str) -> LockHolder | None:
        """Return who holds the lock of a stack."""
        found = self._get(f"{stack_name}{LOCK_SUFFIX}")
        holder = decode_holder(found[0]) if found else None
        return None if holder is None or self._is_gone(holder) else holder

    def unlock(self, stack_name: str) -> bool:
        """Free the lock of a run that is dead."""
        holder = self.holder(stack_name)
        if holder is not None:
            raise locked_error(stack_name, holder)
        key = f"{stack_name}{LOCK_SUFFIX}"
        if self._get(key) is None:
            return False
        with self._errors():
            delete_object(self.objects, key)
        return True

    def add_note(self, stack_name: str, name: str, content: bytes) -> None:
        """Keep something about a stack in an object of its own."""
        with self._errors():
            put_object(
                self.objects,
                f"{stack_name}{NOTE_SUFFIX}/{name}{NOTE_SUFFIX}",
                content,
            )

    def notes(self, stack_name: str) -> list[bytes]:
        """Return what is kept about a stack."""
        with self._errors():
            keys = sorted(
                found["path"]
                for page in list_objects(
                    self.objects, f"{stack_name}{NOTE_SUFFIX}/"
                )
                for found in page
            )
            return [
                bytes(get_object(self.objects, key).bytes()) for key in keys
            ]

    def keep(self, stack_name: str, content: bytes) -> None:
        """Keep a document of a stack in an object of its own."""
        with self._errors():
            put_object(self.objects, f"{stack_name}{KEPT_SUFFIX}", content)

    def kept(self, stack_name: str) -> bytes | None:
        """Return the document that is kept of a stack."""
        found = self._get(f"{stack_name}{KEPT_SUFFIX}")
        return found[0] if found else None

    def forget(self, stack_name: str) -> None:
        """Delete the document that is kept of a stack."""
        with self._errors(), suppress(FileNotFoundError):
            delete_object(self.objects, f"{stack_name}{KEPT_SUFFIX}")

    def _take(
        self, stack_name: str, key: str, holder: LockHolder
    ) -> UpdateVersion:
        """Write a lock that does not exist, or over that of a run that is dead."""
        content = encode_holder(holder)
        with self._errors():
            try:
                return _update_version(
                    put_object(self.objects, key, content, mode="create")
                )
            except CONFLICTS:
                found = self._get(key)
            prior_holder = decode_holder(found[0]) if found else None
            if found is None or (
                prior_holder and not self._is_gone(prior_holder)
            ):
                raise locked_error(stack_name, prior_holder)
            try:
                return _update_version(
                    put_object(self.objects, key, content, mode=found[1])
                )
            except CONFLICTS:
                holder_now = self.holder(stack_name)
                raise locked_error(stack_name, holder_now) from None

    def _errors(self) -> AbstractContextManager[None]:
        return bucket_errors(self.provider, self.url)

    def _is_gone(self, holder: LockHolder) -> bool:
        return holder.is_dead() or holder.is_expired(self.clock())

    def _renew(
        self,
        key: str,
        holder: LockHolder,
        version: UpdateVersion,
        done: threading.Event,
    ) -> None:
        """Say that the holder lives. Without an answer the lock expires, and so may its writes."""
        while not done.wait(RENEWAL_S):
            renewed = encode_holder(replace(holder, renewed=self.clock()))
            try:
                version = _update_version(
                    put_object(self.objects, key, renewed, mode=version)
                )
            except CONFLICTS:
                return
            except (exceptions.BaseError, OSError):
                continue

    def _release(self, key: str, holder: LockHolder) -> None:
        """Delete the lock, if it is still that of the holder."""
        with suppress(exceptions.BaseError, OSError):
            found = self._get(key)
            written = decode_holder(found[0]) if found else None
            if written is not None and written.key == holder.key:
                delete_object(self.objects, key)

    def _get(self, key: str) -> tuple[bytes, UpdateVersion] | None:
        with self._errors():
            try:
                answer = get_object(self.objects, key)
            except FileNotFoundError:
                return None
            return bytes(answer.bytes()), _update_version(answer.meta)

    def _remember(self, written: PutResult | UpdateVersion) -> str:
        version = f"{written.get('e_tag')}/{written.get('version')}"
        self.versions[version] = _update_version(written)
        return version


def _update_version(
    written: PutResult | ObjectMeta | UpdateVersion,
) -> UpdateVersion:
    """Return what identifies a version: some clouds have tags of contents, others numbers."""
    version: UpdateVersion = {}
    e_tag, number = written.get("e_tag"), written.get("version")
    if e_tag is not None:
        version["e_tag"] = e_tag
    if number is not None:
        version["version"] = number
    return version


def _content_version(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _overtaken_error(stack_name: str) -> LockedError:
    return LockedError(
        Problem(
            code="locked",
            message=f"{stack_name} was changed by another run while this one worked",
            cause="this run lost its lock; what it had begun is looked up by the next one",
            next_step=f"see where it stands: tonnage status {stack_name}",
        )
    )


def _now() -> datetime:
    return datetime.now(UTC)

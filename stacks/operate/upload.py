"""Brings a folder to a bucket: in parallel, with digests, and further where it has stopped.

Machines use an upload when its manifest is there: names, sizes and SHA-256 of all files, written
last. Until then a second list, of the same form, says which files have arrived.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import stat
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from pathlib import Path
from threading import Event, Lock
from typing import TYPE_CHECKING, Any, Final

import obstore
from msgspec import Struct

from planner.errors import Place, Problem, UsageError
from stacks.runtime.vm.node.upload import (
    ARRIVED,
    INDEX,
    INDEX_ERRORS,
    MANIFEST,
    UploadedFile,
    missing_names,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from obstore.store import ObjectStore

PARALLEL_FILES: Final = 4
# Parts of a file. S3 takes 10,000 of them, and those that are sent at once lie in memory.
PART_BYTES: Final = 16 * 2**20
MOST_PARTS: Final = 10_000
PARALLEL_PARTS: Final = 4


class LocalFile(Struct, frozen=True):
    """A file to be sent: its name in the upload, its path and its bytes."""

    name: str
    path: Path
    size: int


class TransferListener(Struct, frozen=True):
    """What is called while files are sent, from several threads.

    read  with the number of bytes that were read of a file
    done  with a file, and whether it was sent: it may have been there already
    """

    read: Callable[[int], None]
    done: Callable[[LocalFile, bool], None]


class UploadOutcome(Struct, frozen=True):
    """What an upload has sent."""

    sent_files: int
    sent_bytes: int
    all_files: int
    all_bytes: int


def local_files(folder: Path, required: Sequence[str]) -> list[LocalFile]:
    """Return the files of a folder by name, without hidden ones; links are followed.

    `required` are names, in which * stands for others, that an upload must have. Raises
    UsageError when one is missing, a file that the index of the weights names, or when a name
    cannot be that of an object. Raises OSError for what cannot be read.
    """
    files = []
    for path in _visible_files(folder):
        name = path.relative_to(folder).as_posix()
        if not name.isprintable():
            raise _folder_error(
                path, "its name has letters that cannot be printed", "rename it"
            )
        if name not in (MANIFEST, ARRIVED):
            files.append(LocalFile(name, path, path.stat().st_size))
    index_path = folder / INDEX
    try:
        missing = missing_names(
            [file.name for file in files],
            required,
            index_path.read_bytes() if index_path.is_file() else None,
        )
    except INDEX_ERRORS as error:
        raise _folder_error(
            index_path,
            f"the index of the weights cannot be read: {error}",
            "download the file again",
        ) from error
    if missing:
        others = f", and {len(missing) - 1} more" if missing[1:] else ""
        raise _folder_error(
            folder,
            f"{missing[0]} is missing{others}",
            "complete the folder, then upload it",
        )
    return files


def _visible_files(folder: Path) -> list[Path]:
    """Return the files below a folder, in the order of their paths, without hidden ones."""

    def refuse(error: OSError) -> None:
        raise error

    files: list[Path] = []
    for name, folders, file_names in os.walk(
        folder, onerror=refuse, followlinks=True
    ):
        parent = Path(name)
        # A link may lead to a folder above it.
        if parent.resolve() in (above.resolve() for above in parent.parents):
            folders.clear()
            continue
        folders[:] = [f for f in folders if not f.startswith(".")]
        files += [
            parent / file_name
            for file_name in file_names
            if not file_name.startswith(".")
            and stat.S_ISREG((parent / file_name).stat().st_mode)
        ]
    return sorted(files)


def _folder_error(path: Path, message: str, next_step: str) -> UsageError:
    return UsageError(
        Problem(
            code="upload",
            message=message,
            place=Place(str(path)),
            next_step=next_step,
        )
    )


def upload(
    store: ObjectStore, files: Sequence[LocalFile], listener: TransferListener
) -> UploadOutcome:
    """Bring files to a folder of a bucket, and write their manifest last.

    What the bucket has already, by name, size and SHA-256, is not sent again. Raises what
    `obstore` raises.
    """
    arrived = _Arrived(store)
    sent: list[LocalFile] = []
    is_stopped = Event()

    def send(file: LocalFile) -> None:
        record = UploadedFile(file.name, file.size, _sha256(file.path))
        is_sent = record not in arrived
        if is_sent:
            arrived.begin(file.name)
            _put(store, file, listener, is_stopped)
            arrived.add(record)
            sent.append(file)
        listener.done(file, is_sent)

    with ThreadPoolExecutor(PARALLEL_FILES) as workers:
        try:
            for task in as_completed(
                [workers.submit(send, file) for file in files]
            ):
                task.result()
        finally:
            # After a failure, what has begun would be sent to its end.
            is_stopped.set()
            workers.shutdown(cancel_futures=True)
    arrived.finish({file.name for file in files})
    return UploadOutcome(
        len(sent),
        sum(file.size for file in sent),
        len(files),
        sum(file.size for file in files),
    )


class _Arrived:
    """The files of an upload that are in the bucket."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._lock = Lock()
        sizes = {
            meta["path"]: meta["size"]
            for page in obstore.list(store)
            for meta in page
        }
        self._is_complete = MANIFEST in sizes
        # A list may be older than the objects that it names.
        self._records = {
            record.name: record
            for record in (*self._read(MANIFEST), *self._read(ARRIVED))
            if sizes.get(record.name) == record.size
        }

    def __contains__(self, record: UploadedFile) -> bool:
        return self._records.get(record.name) == record

    def begin(self, name: str) -> None:
        """Write down that a file is not what it was, before it changes: machines wait for it."""
        with self._lock:
            self._records.pop(name, None)
            self._write_list()
            if self._is_complete:
                obstore.delete(self._store, MANIFEST)
                self._is_complete = False

    def add(self, record: UploadedFile) -> None:
        """Write down that a file is there, once it is."""
        with self._lock:
            self._records[record.name] = record
            self._write_list()

    def finish(self, names: set[str]) -> None:
        """Write the manifest of the files of some names, which ends the upload."""
        records = [
            record for record in self._records.values() if record.name in names
        ]
        obstore.put(self._store, MANIFEST, _document(records))
        # A bucket says nothing of what is deleted and was not there; a folder does.
        with suppress(FileNotFoundError):
            obstore.delete(self._store, ARRIVED)

    def _write_list(self) -> None:
        obstore.put(self._store, ARRIVED, _document(self._records.values()))

    def _read(self, name: str) -> list[UploadedFile]:
        """Return the files of a list; none of one that cannot be read, so that all are sent."""
        try:
            document = json.loads(bytes(obstore.get(self._store, name).bytes()))
            return [
                UploadedFile(file["name"], file["bytes"], file["sha256"])
                for file in document["files"]
            ]
        except (FileNotFoundError, ValueError, LookupError, TypeError):
            return []


class _CountingReader(io.FileIO):
    """A file that tells how many bytes are read of it, until it is stopped."""

    def __init__(
        self, path: Path, count: Callable[[int], None], is_stopped: Event
    ) -> None:
        super().__init__(path)
        self._count = count
        self._is_stopped = is_stopped

    def read(self, size: int | None = -1) -> bytes:
        """Read bytes, and tell how many."""
        if self._is_stopped.is_set():
            # An InterruptedError would be read again, for ever.
            raise ConnectionAbortedError("the upload is stopped")
        data = super().read(-1 if size is None else size) or b""
        self._count(len(data))
        return data


def _put(
    store: ObjectStore,
    file: LocalFile,
    listener: TransferListener,
    is_stopped: Event,
) -> None:
    with _CountingReader(file.path, listener.read, is_stopped) as stream:
        obstore.put(
            store,
            file.name,
            stream,
            chunk_size=max(PART_BYTES, -(-file.size // MOST_PARTS)),
            max_concurrency=PARALLEL_PARTS,
        )


def _sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _document(records: Iterable[UploadedFile]) -> bytes:
    files: list[dict[str, Any]] = [
        {"name": record.name, "bytes": record.size, "sha256": record.sha256}
        for record in sorted(records)
    ]
    return json.dumps({"files": files}, indent=1).encode()

"""Brings a folder to a bucket: in parallel, with digests, and further where it has stopped.

Machines use an upload when its manifest is there: names, sizes and SHA-256 of all files, written
last. Until then a second list, of the same form, says which files have arrived.
"""

from __future__ import annotations

import hashlib
import io
import json
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from fnmatch import fnmatch
from pathlib import Path  # noqa: TC003 - msgspec reads the annotations
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

import obstore
from msgspec import Struct

from planner.errors import Place, Problem, UsageError
from stacks.runtime.vm.node.upload import (
    INDEX,
    MANIFEST,
    SINGLE_FILE,
    UploadedFile,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from obstore.store import ObjectStore

ARRIVED: Final = "tonnage-arrived.json"
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
    UsageError when one is missing, or a file that the index of the weights names.
    """
    files = [
        LocalFile(
            path.relative_to(folder).as_posix(), path, path.stat().st_size
        )
        for path in sorted(folder.rglob("*"))
        if path.is_file()
        and not any(
            part.startswith(".") for part in path.relative_to(folder).parts
        )
        and path.relative_to(folder).as_posix() not in (MANIFEST, ARRIVED)
    ]
    names = {file.name for file in files}
    missing = [
        pattern
        for pattern in wanted_names(folder, required)
        if not any(fnmatch(name, pattern) for name in names)
    ]
    if missing:
        raise UsageError(
            Problem(
                code="upload",
                message=f"{missing[0]} is missing"
                + (f", and {len(missing) - 1} more" if missing[1:] else ""),
                place=Place(str(folder)),
                next_step="complete the folder, then upload it",
            )
        )
    return files


def wanted_names(folder: Path, required: Sequence[str]) -> list[str]:
    """Return the patterns of names that an upload must have, with those of its index."""
    names = {*required}
    index_path = folder / INDEX
    if index_path.is_file():
        try:
            index = json.loads(index_path.read_text(encoding="utf-8"))
            names.update(index["weight_map"].values())
        except (ValueError, KeyError, AttributeError, TypeError) as error:
            raise UsageError(
                Problem(
                    code="upload",
                    message="the index of the weights cannot be read",
                    place=Place(str(index_path)),
                    cause=str(error),
                    next_step="download the file again",
                )
            ) from error
        names.discard(SINGLE_FILE)
    return sorted(names)


def upload(
    store: ObjectStore, files: Sequence[LocalFile], listener: TransferListener
) -> UploadOutcome:
    """Bring files to a folder of a bucket, and write their manifest last.

    What the bucket has already, by name, size and SHA-256, is not sent again. Raises what
    `obstore` raises.
    """
    arrived = _Arrived(store)
    sent: list[LocalFile] = []

    def send(file: LocalFile) -> None:
        record = UploadedFile(file.name, file.size, _sha256(file.path))
        is_sent = record not in arrived
        if is_sent:
            _put(store, file, listener)
            sent.append(file)
        arrived.add(record)
        listener.done(file, is_sent)

    with ThreadPoolExecutor(PARALLEL_FILES) as workers:
        try:
            for task in as_completed(
                [workers.submit(send, file) for file in files]
            ):
                task.result()
        finally:
            # After a failure, what has begun still ends, and nothing else begins.
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
        is_known = self._records.get(record.name) == record
        if not is_known:
            self._reopen()
        return is_known

    def add(self, record: UploadedFile) -> None:
        """Write down that a file is there, once it is."""
        with self._lock:
            if self._records.get(record.name) == record:
                return
            self._records[record.name] = record
            obstore.put(self._store, ARRIVED, _document(self._records.values()))

    def finish(self, names: set[str]) -> None:
        """Write the manifest of the files of some names, which ends the upload."""
        records = [
            record for record in self._records.values() if record.name in names
        ]
        obstore.put(self._store, MANIFEST, _document(records))
        # A bucket says nothing of what is deleted and was not there; a folder does.
        with suppress(FileNotFoundError):
            obstore.delete(self._store, ARRIVED)

    def _reopen(self) -> None:
        """Take the manifest away before a file changes: machines wait for the next one."""
        with self._lock:
            if self._is_complete:
                obstore.put(
                    self._store, ARRIVED, _document(self._records.values())
                )
                obstore.delete(self._store, MANIFEST)
                self._is_complete = False

    def _read(self, name: str) -> list[UploadedFile]:
        try:
            text = bytes(obstore.get(self._store, name).bytes())
        except FileNotFoundError:
            return []
        return [
            UploadedFile(file["name"], file["bytes"], file["sha256"])
            for file in json.loads(text)["files"]
        ]


class _CountingReader(io.FileIO):
    """A file that tells how many bytes are read of it."""

    def __init__(self, path: Path, count: Callable[[int], None]) -> None:
        super().__init__(path)
        self._count = count

    def read(self, size: int | None = -1) -> bytes:
        """Read bytes, and tell how many."""
        data = super().read(-1 if size is None else size) or b""
        self._count(len(data))
        return data


def _put(
    store: ObjectStore, file: LocalFile, listener: TransferListener
) -> None:
    with _CountingReader(file.path, listener.read) as stream:
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

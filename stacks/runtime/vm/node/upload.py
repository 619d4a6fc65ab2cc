"""An upload: fetched when all of it is in the bucket, and checked before it is used.

An upload writes its manifest last: names, sizes and digests of its files. Until then there is a
list of what has arrived. A node waits for the manifest, fetches what it does not have, and
compares. Files that were copied without either count when none is missing; of weights, those that
their index names.
"""

from __future__ import annotations

import fnmatch
import hashlib
import json
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple

from stacks.runtime.vm.node.host import read_document, write_whole
from stacks.runtime.vm.node.work import StepError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from stacks.runtime.vm.node.cloud import CloudApi
    from stacks.runtime.vm.node.host import Host

MANIFEST = "tonnage-manifest.json"
ARRIVED = "tonnage-arrived.json"
INDEX = "model.safetensors.index.json"
SINGLE_FILE = "model.safetensors"
# What a torn or foreign index raises.
INDEX_ERRORS = (ValueError, LookupError, TypeError, AttributeError)
PART_BYTES = 64 * 2**20
PARALLEL_PARTS = 16


class UploadedFile(NamedTuple):
    """A file of an upload. Without a manifest its digest is not known."""

    name: str
    size: int
    sha256: str = ""


def fetch_upload(
    machine: Host, cloud: CloudApi, settings: Mapping[str, Any]
) -> None:
    """Bring an upload to a folder, whole. Raises StepError while it is not complete.

    Settings: prefix (of the keys), folder, required (names of files that it must have, with *).
    Files that the node already has in the version of the manifest are not fetched again.
    """
    prefix: str = settings["prefix"]
    files = _files(cloud, prefix, settings["required"])
    path = machine.path(settings["folder"])
    path.mkdir(parents=True, exist_ok=True)
    done_path = path / f".{MANIFEST}"
    wanted = [list(file) for file in files]
    if read_document(done_path) == wanted and _has_all(path, files):
        return
    done_path.unlink(missing_ok=True)
    for file in files:
        _fetch_file(machine, cloud, prefix, path, file)
    write_whole(done_path, json.dumps(wanted))


def _files(
    cloud: CloudApi, prefix: str, required: Sequence[str]
) -> list[UploadedFile]:
    """Return the files of a complete upload. Raises StepError."""
    manifest = cloud.read(f"{prefix}{MANIFEST}")
    if manifest is not None:
        return [
            UploadedFile(file["name"], file["bytes"], file["sha256"])
            for file in json.loads(manifest.data)["files"]
        ]
    listed = _without_folders(
        {
            item.key.removeprefix(prefix): item.size
            for item in cloud.list(prefix)
        }
    )
    if ARRIVED in listed:
        raise StepError(f"{prefix} of the bucket is still being uploaded")
    index = cloud.read(f"{prefix}{INDEX}") if INDEX in listed else None
    try:
        missing = missing_names(listed, required, index and index.data)
    except INDEX_ERRORS as error:
        raise StepError(f"{prefix}{INDEX} cannot be read: {error}") from error
    if missing:
        raise StepError(
            f"{prefix} of the bucket is not complete: {missing[0]} is missing, and "
            f"{len(missing) - 1} others; upload what is missing"
        )
    return [UploadedFile(name, size) for name, size in sorted(listed.items())]


def _without_folders(listed: dict[str, int]) -> dict[str, int]:
    """Leave out the empty objects by which consoles and file systems mark folders."""
    folders = {
        name.rpartition("/")[0] for name in listed if "/" in name.strip("/")
    }
    return {
        name: size
        for name, size in listed.items()
        if name and not name.endswith("/") and (size or name not in folders)
    }


def missing_names(
    names: Iterable[str], required: Sequence[str], index: bytes | None
) -> list[str]:
    """Return what an upload of some names lacks: names of files, in which * stands for others.

    `index` is that of the weights, none without one. Raises an error of INDEX_ERRORS.
    """
    wanted = {*required}
    if index is not None:
        wanted.update(json.loads(index)["weight_map"].values())
        wanted.discard(SINGLE_FILE)
    known = list(names)
    return sorted(name for name in wanted if not fnmatch.filter(known, name))


def _has_all(path: Path, files: list[UploadedFile]) -> bool:
    return all(
        (path / file.name).is_file()
        and (path / file.name).stat().st_size == file.size
        for file in files
    )


def _fetch_file(
    machine: Host,
    cloud: CloudApi,
    prefix: str,
    folder: Path,
    file: UploadedFile,
) -> None:
    """Fetch a file, several parts at once, check it, and give it its name."""
    key, path = prefix + file.name, folder / file.name
    if path.is_file() and _is_whole(path, file):
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f"{path.name}.part")
    with unfinished.open("wb") as stream:
        stream.truncate(file.size)

    def fetch_part(start: int) -> None:
        size = min(PART_BYTES, file.size - start)
        part = cloud.read(key, start, size)
        if part is None or len(part.data) != size:
            raise StepError(f"{key} ends before byte {start + size}")
        with unfinished.open("r+b") as part_stream:
            part_stream.seek(start)
            part_stream.write(part.data)

    with ThreadPoolExecutor(PARALLEL_PARTS) as workers:
        list(workers.map(fetch_part, range(0, file.size, PART_BYTES)))
    if not _is_whole(unfinished, file):
        unfinished.unlink()
        raise StepError(f"{key} is not what its manifest says")
    unfinished.replace(path)
    machine.log(f"fetched {key}")


def _is_whole(path: Path, file: UploadedFile) -> bool:
    if path.stat().st_size != file.size:
        return False
    if not file.sha256:
        return True
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while block := stream.read(PART_BYTES):
            digest.update(block)
    return digest.hexdigest() == file.sha256

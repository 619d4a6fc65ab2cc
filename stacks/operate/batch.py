"""Batches in the bucket of a stack: requests go in, answers come out.

A line of the input is that of OpenAI's batch files: {"custom_id", "url", "body"}. Machines answer
one file at a time, so the input is divided into files of some thousand lines.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Final, NoReturn

import obstore

from planner.errors import MissingError, Place, Problem, UsageError
from planner.plan.status import BatchJob
from stacks.operate.upload import LocalFile
from stacks.runtime.vm.node.batch import MANIFEST, PREFIX, file_count

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from obstore.store import ObjectStore

# What is submitted under a name, so that another batch does not go on with its files.
SOURCE: Final = "source.json"
# What was fetched to a folder, so that nothing else is written over.
FETCHED: Final = "batch.json"
REQUEST_STEP: Final = (
    'write {"custom_id": "1", "url": "/v1/chat/completions", "body": {…}}'
)
PARTS: Final = ("input", "lease", "output", "errors")
FETCHED_PARTS: Final = ("output", "errors")


def job_folder(job_name: str) -> str:
    """Return the prefix of a batch."""
    return f"{PREFIX}{job_name}/"


def input_folder(job_name: str) -> str:
    """Return the prefix of the input of a batch."""
    return f"{PREFIX}{job_name}/input/"


def divide(
    paths: Sequence[Path], lines_per_file: int, folder: Path
) -> list[LocalFile]:
    """Check requests and write them to files of a folder, some lines each.

    Equal input gives equal files. Raises UsageError with the line of a wrong request.
    """
    files: list[LocalFile] = []
    lines: list[str] = []

    def write_file() -> None:
        path = folder / f"{len(files):05d}.jsonl"
        path.write_text("".join(lines), encoding="utf-8")
        files.append(LocalFile(path.name, path, path.stat().st_size))
        lines.clear()

    for line in _checked_lines(paths):
        lines.append(line)
        if len(lines) == lines_per_file:
            write_file()
    if lines:
        write_file()
    if not files:
        raise UsageError(
            Problem(
                code="batch",
                message="there are no requests",
                place=Place(str(paths[0])) if paths else None,
                next_step="give files with a request in each line",
            )
        )
    return files


def _checked_lines(paths: Iterable[Path]) -> Iterator[str]:
    """Yield the requests of files, each a line, without empty lines."""
    places: dict[str, Place] = {}
    for path in paths:
        with path.open("rb") as stream:
            for number, line in enumerate(stream, 1):
                place = Place(str(path), number, 1)
                text = _line_text(line, place)
                if not text:
                    continue
                custom_id = _request_id(text, place)
                if custom_id in places:
                    raise _line_error(
                        place,
                        f"custom_id {custom_id} is that of {places[custom_id]}",
                        "give every request a custom_id of its own",
                    )
                places[custom_id] = place
                yield f"{text}\n"


def _line_text(line: bytes, place: Place) -> str:
    """Return a line without space around it. Raises UsageError when it is no UTF-8."""
    try:
        # Some editors begin a file with a mark.
        return line.decode("utf-8-sig" if place.line == 1 else "utf-8").strip()
    except UnicodeDecodeError as error:
        raise _line_error(
            place, "the request is no UTF-8", "save the file as UTF-8"
        ) from error


def _request_id(text: str, place: Place) -> str:
    """Return the custom_id of a request. Raises UsageError when it is none."""
    try:
        request = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        message = f"the request is no JSON: {error}"
        raise _line_error(place, message) from error
    if not isinstance(request, dict):
        raise _line_error(place, "the request is no JSON object")
    custom_id, url = request.get("custom_id"), request.get("url")
    if not isinstance(custom_id, str) or not custom_id:
        raise _line_error(place, "the request has no custom_id")
    if not isinstance(url, str) or not url.startswith("/v1/"):
        raise _line_error(
            place, "the request has no url such as /v1/chat/completions"
        )
    if not isinstance(request.get("body"), dict):
        raise _line_error(place, "the request has no body")
    return custom_id


def _refuse_constant(name: str) -> NoReturn:
    """Refuse what Python reads and JSON does not have."""
    raise ValueError(f"{name} is no number of JSON")


def _line_error(
    place: Place, message: str, next_step: str = REQUEST_STEP
) -> UsageError:
    return UsageError(
        Problem(code="batch", message=message, place=place, next_step=next_step)
    )


def refuse_submitted(jobs: Sequence[BatchJob], job_name: str) -> None:
    """Raise UsageError when a batch is complete: its answers would be those of other requests."""
    if any(job.name == job_name and job.files is not None for job in jobs):
        raise _name_error(f"{job_name} was submitted already")


def has_ended(jobs: Sequence[BatchJob]) -> bool:
    """Whether all that was submitted is answered: machines that run once have left then."""
    return bool(jobs) and all(job.is_done for job in jobs)


def open_batch(
    store: ObjectStore, job_name: str, parts: Sequence[LocalFile]
) -> None:
    """Write down what is submitted, before the first file is sent.

    `store` is the folder of the batch. Raises UsageError when other requests have begun under
    this name: machines may have answered some of them.
    """
    digest = hashlib.sha256()
    for part in parts:
        with part.path.open("rb") as stream:
            digest.update(hashlib.file_digest(stream, "sha256").digest())
    source = json.dumps({"sha256": digest.hexdigest()}).encode()
    names = {meta["path"] for page in obstore.list(store) for meta in page}
    if SOURCE not in names:
        if names:
            raise _name_error(f"other files are in {job_name} already")
        obstore.put(store, SOURCE, source)
    elif bytes(obstore.get(store, SOURCE).bytes()) != source:
        raise _name_error(
            f"{job_name} was begun with other requests, or other --lines"
        )


def _name_error(message: str) -> UsageError:
    return UsageError(
        Problem(
            code="batch",
            message=message,
            next_step="give this one another name: --job NAME",
        )
    )


def close_batch(store: ObjectStore, file_count: int) -> None:
    """Say how many files a batch has: with that it is complete."""
    obstore.put(store, MANIFEST, json.dumps({"files": file_count}).encode())


def batch_jobs(store: ObjectStore) -> list[BatchJob]:
    """Return the batches of a stack by name; `store` is the folder `PREFIX` of its bucket."""
    names: dict[str, dict[str, set[str]]] = {}
    closed: list[str] = []
    for page in obstore.list(store):
        for meta in page:
            job_name, _, rest = meta["path"].partition("/")
            if not rest:
                continue
            parts = names.setdefault(job_name, {part: set() for part in PARTS})
            part, _, file_name = rest.partition("/")
            if part in parts and file_name.endswith(".jsonl"):
                parts[part].add(file_name)
            elif rest == MANIFEST:
                closed.append(job_name)
    return [
        BatchJob(
            name=job_name,
            files=_file_count(store, job_name) if job_name in closed else None,
            arrived=len(parts["input"]),
            begun=len(parts["lease"] - parts["output"]),
            answered=len(parts["output"]),
            failed=len(parts["errors"]),
        )
        for job_name, parts in sorted(names.items())
    ]


def find_job(
    jobs: Sequence[BatchJob], job_name: str, next_step: str
) -> BatchJob:
    """Return a batch by its name. Raises MissingError with a next step."""
    for job in jobs:
        if job.name == job_name:
            return job
    names = ", ".join(job.name for job in jobs) or "there are none"
    raise MissingError(
        Problem(
            code="batch",
            message=f"no batch is named {job_name}",
            cause=f"batches of the stack: {names}",
            next_step=next_step,
        )
    )


def claim_folder(folder: Path, stack: str, job_name: str) -> None:
    """Make a folder that of the answers of a batch.

    Raises UsageError when it has answers that are not those of this batch.
    """
    folder.mkdir(parents=True, exist_ok=True)
    claim = json.dumps({"stack": stack, "batch": job_name}) + "\n"
    claim_path = folder / FETCHED
    if claim_path.exists():
        is_free = claim_path.read_text(encoding="utf-8") == claim
    else:
        is_free = not any(
            (folder / f"{part}.jsonl").exists() for part in FETCHED_PARTS
        )
    if not is_free:
        raise UsageError(
            Problem(
                code="batch",
                message="the folder has answers that are not of this batch",
                place=Place(str(folder)),
                next_step="write to another one: -o FOLDER",
            )
        )
    claim_path.write_text(claim, encoding="utf-8")


def collect(store: ObjectStore, part: str, path: Path) -> int:
    """Write all lines of a part of a batch, output or errors, to a file; return their number.

    `store` is the folder of the batch. The lines are in the order of its files. Raises OSError
    with the name of the file that cannot be written, and what `obstore` raises.
    """
    names = sorted(
        meta["path"]
        for page in obstore.list(store, prefix=part)
        for meta in page
        if meta["path"].endswith(".jsonl")
    )
    line_count = 0
    unfinished = path.with_name(f"{path.name}.new")
    with unfinished.open("wb") as stream:
        for name in names:
            data = bytes(obstore.get(store, name).bytes())
            try:
                stream.write(data)
                stream.flush()
            except OSError as error:
                # A full disk does not say which file it was.
                raise OSError(
                    error.errno, error.strerror, str(unfinished)
                ) from error
            line_count += data.count(b"\n")
    unfinished.replace(path)
    return line_count


def _file_count(store: ObjectStore, job_name: str) -> int | None:
    return file_count(
        bytes(obstore.get(store, f"{job_name}/{MANIFEST}").bytes())
    )

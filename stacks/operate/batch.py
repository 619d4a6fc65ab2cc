"""Batches in the bucket of a stack: requests go in, answers come out.

A line of the input is that of OpenAI's batch files: {"custom_id", "url", "body"}. Machines answer
one file at a time, so the input is divided into files of some thousand lines.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import obstore

from planner.errors import MissingError, Place, Problem, UsageError
from planner.plan.status import BatchJob
from stacks.operate.upload import LocalFile

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from obstore.store import ObjectStore

ROOT: Final = "batch/"
MANIFEST: Final = "manifest.json"
PARTS: Final = ("input", "lease", "output", "errors")


def input_folder(job_name: str) -> str:
    """Return the prefix of the input of a batch."""
    return f"{ROOT}{job_name}/input/"


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
        with path.open(encoding="utf-8-sig", errors="replace") as stream:
            for number, text in enumerate(stream, 1):
                if not text.strip():
                    continue
                place = Place(str(path), number, 1)
                custom_id = _request_id(text, place)
                if custom_id in places:
                    raise _line_error(
                        place,
                        f"custom_id {custom_id} is that of {places[custom_id]}",
                    )
                places[custom_id] = place
                yield text.strip() + "\n"


def _request_id(text: str, place: Place) -> str:
    """Return the custom_id of a request. Raises UsageError when it is none."""
    try:
        request = json.loads(text)
    except ValueError as error:
        raise _line_error(place, f"is no JSON: {error}") from error
    if not isinstance(request, dict):
        raise _line_error(place, "is no JSON object")
    custom_id, url = request.get("custom_id"), request.get("url")
    if not isinstance(custom_id, str) or not custom_id:
        raise _line_error(place, "has no custom_id")
    if not isinstance(url, str) or not url.startswith("/v1/"):
        raise _line_error(place, "has no url such as /v1/chat/completions")
    if not isinstance(request.get("body"), dict):
        raise _line_error(place, "has no body")
    return custom_id


def _line_error(place: Place, message: str) -> UsageError:
    return UsageError(
        Problem(
            code="batch",
            message=f"the request {message}"
            if message.startswith(("is ", "has "))
            else message,
            place=place,
            next_step='write {"custom_id": "1", "url": "/v1/chat/completions", "body": {…}}',
        )
    )


def refuse_submitted(jobs: Sequence[BatchJob], job_name: str) -> None:
    """Raise UsageError when a batch is complete: its answers would be those of other requests."""
    if any(job.name == job_name and job.files is not None for job in jobs):
        raise UsageError(
            Problem(
                code="batch",
                message=f"{job_name} was submitted already",
                next_step="give this one another name: --job NAME",
            )
        )


def close_batch(store: ObjectStore, file_count: int) -> None:
    """Say how many files a batch has: with that it is complete."""
    obstore.put(store, MANIFEST, json.dumps({"files": file_count}).encode())


def batch_jobs(store: ObjectStore) -> list[BatchJob]:
    """Return the batches of a stack by name; `store` is the folder `ROOT` of its bucket."""
    names: dict[str, dict[str, set[str]]] = {}
    closed: list[str] = []
    for page in obstore.list(store):
        for meta in page:
            job_name, _, rest = meta["path"].partition("/")
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


def find_job(jobs: Sequence[BatchJob], job_name: str) -> BatchJob:
    """Return a batch by its name. Raises MissingError."""
    for job in jobs:
        if job.name == job_name:
            return job
    names = ", ".join(job.name for job in jobs) or "there are none"
    raise MissingError(
        Problem(
            code="batch",
            message=f"no batch is named {job_name}",
            cause=f"batches of the stack: {names}",
            next_step="see: tonnage batch status STACK",
        )
    )


def collect(store: ObjectStore, part: str, path: Path) -> int:
    """Write all lines of a part of a batch, output or errors, to a file; return their number.

    `store` is the folder of the batch. The lines are in the order of its files.
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
            stream.write(data)
            line_count += data.count(b"\n")
    unfinished.replace(path)
    return line_count


def _file_count(store: ObjectStore, job_name: str) -> int:
    document: dict[str, Any] = json.loads(
        bytes(obstore.get(store, f"{job_name}/{MANIFEST}").bytes())
    )
    return int(document["files"])

"""Batches that people submit, and what they are told of them."""

from __future__ import annotations

import json
from pathlib import Path

import obstore
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from obstore.store import LocalStore, MemoryStore

from planner.errors import MissingError, UsageError
from stacks.operate import batch
from stacks.operate.upload import TransferListener, upload
from stacks.runtime.vm.node.batch import PREFIX
from tests.stacks.runtime.vm.sandbox import DAY, World

SILENT = TransferListener(lambda _: None, lambda *_: None)


def request(custom_id: str) -> str:
    return json.dumps(
        {
            "custom_id": custom_id,
            "url": "/v1/chat/completions",
            "body": {"messages": []},
        }
    )


def written(path: Path, lines: list[str]) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def submitted(folder: Path, root, lines: int, per_file: int) -> int:
    """A batch named job in a bucket, as the command brings it there."""
    source = written(
        folder / "in.jsonl", [request(f"r{n}") for n in range(lines)]
    )
    parts = folder / "parts"
    parts.mkdir()
    files = batch.divide([source], per_file, parts)
    upload(
        LocalStore(root / batch.input_folder("job"), mkdir=True), files, SILENT
    )
    batch.close_batch(LocalStore(root / "batch/job"), len(files))
    return len(files)


@settings(max_examples=30, deadline=None)
@given(
    counts=st.lists(st.integers(0, 12), min_size=1, max_size=4).filter(any),
    per_file=st.integers(1, 7),
)
def test_every_request_is_in_one_file_in_its_order(
    tmp_path_factory: pytest.TempPathFactory, counts: list[int], per_file: int
) -> None:
    folder = tmp_path_factory.mktemp("batch")
    sources = [
        written(
            folder / f"{number}.jsonl",
            [request(f"{number}-{line}") for line in range(count)],
        )
        for number, count in enumerate(counts)
    ]
    parts = folder / "parts"
    parts.mkdir()
    files = batch.divide(sources, per_file, parts)
    lines = [
        line for file in files for line in file.path.read_text().splitlines()
    ]
    assert [json.loads(line)["custom_id"] for line in lines] == [
        f"{number}-{line}"
        for number, count in enumerate(counts)
        for line in range(count)
    ]
    assert len(files) == -(-sum(counts) // per_file)
    assert [file.name for file in files] == sorted(file.name for file in files)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "no JSON"),
        ("[1]", "no JSON object"),
        ('{"url": "/v1/completions", "body": {}}', "no custom_id"),
        ('{"custom_id": 7, "url": "/v1/x", "body": {}}', "no custom_id"),
        ('{"custom_id": "a", "url": "completions", "body": {}}', "no url"),
        ('{"custom_id": "a", "url": "/v1/completions"}', "no body"),
        (request("first"), "custom_id first is that of"),
        (request("a").replace("[]", "[NaN]"), "no JSON"),
        (request("a").replace("[]", "[" * 99_999), "no JSON"),
    ],
)
def test_a_wrong_request_is_refused_with_its_line(
    tmp_path: Path, line: str, message: str
) -> None:
    source = written(tmp_path / "in.jsonl", [request("first"), "", line])
    with pytest.raises(UsageError, match=message) as refused:
        batch.divide([source], 10, tmp_path)
    [problem] = refused.value.problems
    assert str(problem.place) == f"{source}:3:1"


def test_a_request_that_is_no_utf8_is_refused_with_its_line(
    tmp_path: Path,
) -> None:
    source = tmp_path / "in.jsonl"
    source.write_bytes(
        f"\ufeff{request('a')}\n".encode()
        + b'{"custom_id": "caf\xe9", "url": "/v1/x", "body": {}}'
    )
    with pytest.raises(UsageError, match="no UTF-8") as refused:
        batch.divide([source], 10, tmp_path)
    assert str(refused.value.problems[0].place) == f"{source}:2:1"


@pytest.mark.parametrize("manifest", [b"{", b"[]", b"{}", b'{"files": "3"}'])
def test_a_torn_manifest_leaves_a_batch_open(manifest: bytes) -> None:
    store = MemoryStore()
    obstore.put(store, "job/manifest.json", manifest)
    obstore.put(store, "README", b"")
    [job] = batch.batch_jobs(store)
    assert (job.name, job.state) == ("job", "being submitted")


def test_a_file_without_requests_is_refused(tmp_path: Path) -> None:
    source = written(tmp_path / "in.jsonl", ["", " "])
    with pytest.raises(UsageError, match="no requests"):
        batch.divide([source], 10, tmp_path)


def test_machines_answer_what_was_submitted(tmp_path: Path) -> None:
    """From the file of a user to the file of the answers, over the machines of the sandbox."""
    root = tmp_path / "bucket"
    assert submitted(tmp_path, root, lines=25, per_file=10) == 3
    store = LocalStore(root / PREFIX)
    [job] = batch.batch_jobs(store)
    assert (job.name, job.files, job.arrived, job.answered) == ("job", 3, 3, 0)
    assert not job.is_done

    world = World("gcp", tmp_path / "machines")
    world.upload(
        "models/llama-3.1-8b/",
        ["config.json", "model.safetensors", "tokenizer.json"],
    )
    for path in (root / "batch").rglob("*"):
        if path.is_file():
            world.put(path.relative_to(root).as_posix(), path.read_bytes())
    machine = world.add("batch")
    world.run(DAY, lambda: not machine.is_up)

    for key, (data, _) in world.objects.items():
        if key.startswith(PREFIX):
            (root / key).parent.mkdir(parents=True, exist_ok=True)
            (root / key).write_bytes(data)
    [job] = batch.batch_jobs(store)
    assert job.is_done
    assert (job.answered, job.failed) == (3, 0)
    answers = tmp_path / "answers.jsonl"
    assert (
        batch.collect(LocalStore(root / "batch/job"), "output", answers) == 25
    )
    assert [
        json.loads(line)["custom_id"]
        for line in answers.read_text().splitlines()
    ] == [f"r{n}" for n in range(25)]


def test_a_batch_that_is_being_submitted_has_no_number_of_files() -> None:
    store = MemoryStore()
    obstore.put(store, "job/input/00000.jsonl", b"{}")
    obstore.put(store, "job/input/tonnage-arrived.json", b"{}")
    obstore.put(store, "job/lease/00000.jsonl", b"{}")
    [job] = batch.batch_jobs(store)
    assert (job.files, job.arrived, job.begun) == (None, 1, 1)


def test_an_unknown_batch_is_named_with_those_that_are_known() -> None:
    store = MemoryStore()
    obstore.put(store, "summaries/input/00000.jsonl", b"{}")
    with pytest.raises(MissingError) as missing:
        batch.find_job(batch.batch_jobs(store), "sumaries", "look")
    assert "summaries" in missing.value.problems[0].cause

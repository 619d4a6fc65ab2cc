"""Uploads against buckets that fail, and against a server that speaks S3."""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from pathlib import Path
from threading import Event

import obstore
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from obstore.store import LocalStore, MemoryStore

from planner.errors import UsageError
from stacks.operate.upload import (
    PARALLEL_FILES,
    LocalFile,
    TransferListener,
    local_files,
    upload,
)
from stacks.runtime.vm.node.upload import ARRIVED, MANIFEST
from tests.stacks.runtime.vm.sandbox import World, settings_of, state_of

WEIGHTS = ("config.json", "model.safetensors", "tokenizer*")
SILENT = TransferListener(lambda _: None, lambda *_: None)


def weights(folder: Path, shards: int = 3) -> Path:
    """A folder of weights in the form of Hugging Face."""
    folder.mkdir(parents=True, exist_ok=True)
    names = [f"model-{n:05d}.safetensors" for n in range(shards)]
    (folder / "config.json").write_text("{}")
    (folder / "tokenizer.json").write_text("[]")
    for number, name in enumerate(names):
        (folder / name).write_bytes(bytes([number]) * (1000 + number))
    (folder / "model.safetensors.index.json").write_text(
        json.dumps({"weight_map": {f"w{n}": n for n in names}})
    )
    return folder


def names_in(store) -> set[str]:
    return {meta["path"] for page in obstore.list(store) for meta in page}


def manifest_of(store) -> dict[str, str]:
    document = json.loads(bytes(obstore.get(store, MANIFEST).bytes()))
    return {file["name"]: file["sha256"] for file in document["files"]}


class Failing:
    """Lets only some objects arrive, in place of obstore.put."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, allowed: int) -> None:
        self.put = obstore.put
        self.left = allowed
        monkeypatch.setattr(obstore, "put", self)

    def __call__(self, store, path, *arguments, **options):
        if self.left <= 0:
            raise OSError("the network is away")
        self.left -= 1
        return self.put(store, path, *arguments, **options)


def test_machines_take_what_was_uploaded(tmp_path: Path) -> None:
    folder = weights(tmp_path / "weights")
    store = LocalStore(tmp_path / "bucket", mkdir=True)
    outcome = upload(store, local_files(folder, WEIGHTS), SILENT)
    assert (outcome.sent_files, outcome.all_files) == (6, 6)
    assert outcome.sent_bytes == sum(f.stat().st_size for f in folder.iterdir())
    assert ARRIVED not in names_in(store)

    world = World("aws", tmp_path / "machines")
    model = settings_of("aws", "serve")["work"]["upload"]
    for path in (tmp_path / "bucket").iterdir():
        world.put(f"{model['prefix']}{path.name}", path.read_bytes())
    machine = world.add("serve")
    world.run(1200)
    for path in folder.iterdir():
        fetched = machine.path(f"{model['folder']}/{path.name}")
        assert fetched.read_bytes() == path.read_bytes()
    assert state_of(machine)["phase"] == "working"


@settings(max_examples=25, deadline=None)
@given(stops=st.lists(st.integers(0, 14), max_size=4))
def test_an_upload_goes_on_where_it_has_stopped(
    tmp_path_factory: pytest.TempPathFactory, stops: list[int]
) -> None:
    """However often the network fails: a manifest is true, and little is sent twice."""
    folder = weights(tmp_path_factory.mktemp("weights"))
    files = local_files(folder, WEIGHTS)
    store = MemoryStore()
    sent: list[str] = []
    listener = TransferListener(
        lambda _: None,
        lambda file, is_sent: sent.append(file.name) if is_sent else None,
    )
    for allowed in stops:
        with pytest.MonkeyPatch.context() as patch:
            Failing(patch, allowed)
            with suppress(OSError):
                upload(store, files, listener)
        if MANIFEST in names_in(store):
            assert_whole(store, files)
    upload(store, files, listener)
    assert_whole(store, files)
    # What was on its way when the network failed may have arrived unseen.
    assert len(sent) <= len(files) + PARALLEL_FILES * len(stops)


def assert_whole(store, files: list[LocalFile]) -> None:
    """The bucket has all files, as they are here and as its manifest says."""
    stored = {f.name: bytes(obstore.get(store, f.name).bytes()) for f in files}
    assert stored == {f.name: f.path.read_bytes() for f in files}
    assert manifest_of(store) == {
        name: hashlib.sha256(data).hexdigest() for name, data in stored.items()
    }


def test_a_changed_file_takes_the_manifest_away_until_it_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = weights(tmp_path / "weights")
    store = MemoryStore()
    upload(store, local_files(folder, WEIGHTS), SILENT)
    before = manifest_of(store)
    (folder / "config.json").write_text('{"changed": 1}')
    with monkeypatch.context() as patch:
        # The list of what is there, and nothing else.
        Failing(patch, 1)
        with pytest.raises(OSError, match="network"):
            upload(store, local_files(folder, WEIGHTS), SILENT)
    assert MANIFEST not in names_in(store)
    outcome = upload(store, local_files(folder, WEIGHTS), SILENT)
    assert outcome.sent_files == 1
    after = manifest_of(store)
    assert {n for n in after if after[n] != before[n]} == {"config.json"}


def test_machines_wait_while_anything_is_on_its_way(tmp_path: Path) -> None:
    """At every moment of an upload, and of a change, a machine takes nothing but a whole."""
    folder = weights(tmp_path / "weights")
    store = LocalStore(tmp_path / "bucket", mkdir=True)
    model = settings_of("aws", "serve")["work"]["upload"]
    problems: list[str] = []

    def look(*_: object) -> None:
        world = World("aws", tmp_path / f"machines-{len(problems)}")
        for name in names_in(store):
            path = tmp_path / "bucket" / name
            world.put(f"{model['prefix']}{name}", path.read_bytes())
        machine = world.add("serve")
        world.run(300)
        state = state_of(machine)
        problems.append(f"{state['step']}: {state['problem']}")

    listener = TransferListener(lambda _: None, look)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("stacks.operate.upload.PARALLEL_FILES", 1)
        upload(store, local_files(folder, WEIGHTS), listener)
    assert len(problems) == 6
    assert all("still being uploaded" in problem for problem in problems)


def test_the_list_never_has_a_file_that_is_being_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The old file comes back after the new one was sent and nobody wrote that down."""
    folder = weights(tmp_path / "weights")
    config = folder / "config.json"
    config.write_text('{"a": 1}')
    store = MemoryStore()
    files = local_files(folder, WEIGHTS)
    upload(store, files, SILENT)
    config.write_text('{"a": 2}')
    with monkeypatch.context() as patch:
        # The list, and the file itself.
        Failing(patch, 2)
        with pytest.raises(OSError, match="network"):
            upload(store, files, SILENT)
    config.write_text('{"a": 1}')
    upload(store, files, SILENT)
    assert_whole(store, files)


@pytest.mark.parametrize("list_name", [ARRIVED, MANIFEST])
def test_a_torn_list_sends_everything_again(
    tmp_path: Path, list_name: str
) -> None:
    folder = weights(tmp_path / "weights")
    store = MemoryStore()
    files = local_files(folder, WEIGHTS)
    obstore.put(store, list_name, b'{"files": [{"name"')
    assert upload(store, files, SILENT).sent_files == len(files)
    assert_whole(store, files)


def test_what_is_sent_stops_with_the_upload(tmp_path: Path) -> None:
    """Nobody waits for four files of many gigabytes after Ctrl-C."""
    large, small = tmp_path / "large.bin", tmp_path / "small.bin"
    with large.open("wb") as stream:
        stream.truncate(2**30)
    small.write_bytes(b"x")
    told: list[int] = []
    is_pressed = Event()

    def count(size: int) -> None:
        told.append(size)
        if size > 1:
            is_pressed.wait(30)

    def press(*_: object) -> None:
        is_pressed.set()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        upload(
            MemoryStore(),
            [LocalFile(p.name, p, p.stat().st_size) for p in (large, small)],
            TransferListener(count, press),
        )
    assert sum(told) < 2**29


def test_what_lies_in_the_bucket_with_another_size_is_sent_again(
    tmp_path: Path,
) -> None:
    folder = weights(tmp_path / "weights")
    store = MemoryStore()
    upload(store, local_files(folder, WEIGHTS), SILENT)
    obstore.put(store, "config.json", b"torn")
    assert upload(store, local_files(folder, WEIGHTS), SILENT).sent_files == 1
    assert bytes(obstore.get(store, "config.json").bytes()) == b"{}"


def test_files_that_are_gone_leave_the_manifest(tmp_path: Path) -> None:
    folder = weights(tmp_path / "weights")
    (folder / "notes.txt").write_text("draft")
    store = MemoryStore()
    upload(store, local_files(folder, WEIGHTS), SILENT)
    (folder / "notes.txt").unlink()
    upload(store, local_files(folder, WEIGHTS), SILENT)
    assert "notes.txt" not in manifest_of(store)


def test_every_byte_that_is_sent_is_told_once(tmp_path: Path) -> None:
    path = tmp_path / "large.bin"
    path.write_bytes(b"x" * (40 * 2**20))
    told: list[int] = []
    upload(
        MemoryStore(),
        [LocalFile(path.name, path, path.stat().st_size)],
        TransferListener(told.append, lambda *_: None),
    )
    assert sum(told) == path.stat().st_size


@pytest.mark.parametrize(
    ("lost", "named"),
    [
        ("config.json", "config.json is missing"),
        ("tokenizer.json", r"tokenizer\* is missing"),
        ("model-00001.safetensors", "model-00001.safetensors is missing"),
    ],
)
def test_an_incomplete_folder_is_refused_before_anything_is_sent(
    tmp_path: Path, lost: str, named: str
) -> None:
    folder = weights(tmp_path)
    (folder / lost).unlink()
    with pytest.raises(UsageError, match=named):
        local_files(folder, WEIGHTS)


@pytest.mark.parametrize(
    "index", ['{"weight_map": [', '{"weight_map": {"a": 5}}', "[]", "{}"]
)
def test_an_index_that_is_torn_is_refused(tmp_path: Path, index: str) -> None:
    folder = weights(tmp_path)
    (folder / "model.safetensors.index.json").write_text(index)
    with pytest.raises(UsageError, match="cannot be read"):
        local_files(folder, WEIGHTS)


def test_links_are_followed_and_hidden_files_left(tmp_path: Path) -> None:
    """The cache of Hugging Face has links to its files."""
    blob = tmp_path / "blobs" / "1"
    blob.parent.mkdir()
    blob.write_bytes(b"job")
    folder = tmp_path / "snapshot"
    (folder / ".git").mkdir(parents=True)
    (folder / ".git" / "config").write_text("x")
    (folder / "train.py").symlink_to(blob)
    (folder / "data").symlink_to(blob.parent)
    (folder / "circle").symlink_to(folder)
    files = local_files(folder, ("train.py",))
    assert [(file.name, file.size) for file in files] == [
        ("data/1", 3),
        ("train.py", 3),
    ]


def test_what_cannot_be_read_or_named_is_refused(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("job")
    broken = tmp_path / "utils.py"
    broken.symlink_to(tmp_path / "gone")
    with pytest.raises(OSError, match=r"utils\.py"):
        local_files(tmp_path, ())
    broken.unlink()
    (tmp_path / "a\nb").write_text("x")
    with pytest.raises(UsageError, match="cannot be printed"):
        local_files(tmp_path, ())

"""Stores of states: nobody writes over what another has written, and dead holders hold nothing."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TypeAlias

import pytest
from msgspec.structs import replace
from obstore import put as put_object
from obstore.store import MemoryStore

from planner.errors import LockedError
from stacks.engine.lock import (
    LEASE,
    decode_holder,
    encode_holder,
    process_start,
    this_run,
)
from stacks.engine.store import BucketStore, FolderStore, StateStore
from tests.conftest import present

NOW = datetime(2026, 11, 23, tzinfo=UTC)
# Opens the same states again, as another person does.
Opener: TypeAlias = Callable[[], StateStore]


@pytest.fixture(params=["folder", "bucket"])
def opener(request: pytest.FixtureRequest, tmp_path: Path) -> Opener:
    """The two kinds of stores."""
    if request.param == "folder":
        return lambda: FolderStore(tmp_path / "stacks")
    objects = MemoryStore()
    return lambda: BucketStore(objects, "aws", "s3://states", lambda: NOW)


def test_what_is_written_is_read(opener: Opener) -> None:
    store = opener()
    assert store.read("chat") is None
    assert store.stack_names() == []
    version = store.write("chat", b"one", None)
    assert present(opener().read("chat")).content == b"one"
    store.write("chat", b"two", version)
    store.write("other", b"x", None)
    assert opener().stack_names() == ["chat", "other"]
    store.delete("chat")
    store.delete("chat")
    assert opener().stack_names() == ["other"]


def test_a_write_that_follows_another_version_is_refused(
    opener: Opener,
) -> None:
    mine, theirs = opener(), opener()
    mine.write("chat", b"one", None)
    with pytest.raises(LockedError):
        theirs.write("chat", b"new", None)
    read_by_them = present(theirs.read("chat")).version
    mine.write("chat", b"two", present(mine.read("chat")).version)
    with pytest.raises(LockedError, match="changed by another run"):
        theirs.write("chat", b"three", read_by_them)
    assert present(opener().read("chat")).content == b"two"


def test_one_holds_a_lock_and_the_other_is_told_who(opener: Opener) -> None:
    with opener().lock("chat", "tonnage apply chat"):
        holder = present(opener().holder("chat"))
        assert holder.command == "tonnage apply chat"
        with (
            pytest.raises(LockedError) as caught,
            opener().lock("chat", "tonnage destroy chat"),
        ):
            pass
        [problem] = caught.value.problems
        assert f"process {holder.pid}" in problem.cause
        with pytest.raises(LockedError):
            opener().unlock("chat")
        # Another stack is another lock.
        with opener().lock("other", "tonnage apply other"):
            pass
    assert opener().holder("chat") is None
    assert opener().unlock("chat") is False
    with opener().lock("chat", "tonnage apply chat"):
        pass


def test_of_many_that_want_a_lock_one_has_it(opener: Opener) -> None:
    """Everybody adds one to a number; none of those who had the lock is lost."""
    opener().write("chat", b"0", None)
    added: list[int] = []

    def work() -> None:
        store = opener()
        for _ in range(20):
            try:
                with store.lock("chat", "add"):
                    stored = present(store.read("chat"))
                    number = int(stored.content) + 1
                    store.write("chat", str(number).encode(), stored.version)
                    added.append(number)
            except LockedError:
                continue

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(added) == list(range(1, len(added) + 1))
    assert int(present(opener().read("chat")).content) == len(added) > 0


def bucket_with_lock(**changes: object) -> BucketStore:
    objects = MemoryStore()
    holder = replace(this_run("tonnage apply chat", NOW), **changes)
    put_object(objects, "chat.lock", encode_holder(holder))
    return BucketStore(objects, "aws", "s3://states", lambda: NOW)


def ended_process() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


@pytest.mark.parametrize(
    "changes",
    [
        {"renewed": NOW - LEASE - timedelta(seconds=1), "host": "elsewhere"},
        {"pid": ended_process(), "started": ""},
        # The number was given to another process.
        {"started": "1"},
    ],
)
def test_the_lock_of_a_dead_run_is_taken_over(
    changes: dict[str, object],
) -> None:
    store = bucket_with_lock(**changes)
    assert store.holder("chat") is None
    with store.lock("chat", "tonnage apply chat"):
        pass
    store = bucket_with_lock(**changes)
    assert store.unlock("chat") is True
    assert store.unlock("chat") is False


@pytest.mark.parametrize(
    "changes", [{"host": "elsewhere", "pid": 1}, {}, {"renewed": NOW - LEASE}]
)
def test_the_lock_of_a_living_run_is_not(changes: dict[str, object]) -> None:
    store = bucket_with_lock(**changes)
    with pytest.raises(LockedError), store.lock("chat", "x"):
        pass
    with pytest.raises(LockedError):
        store.unlock("chat")


def test_the_system_frees_the_lock_of_a_process_that_is_killed(
    tmp_path: Path,
) -> None:
    code = (
        "import sys, time; from pathlib import Path; "
        "from stacks.engine.store import FolderStore\n"
        f"with FolderStore(Path({str(tmp_path)!r})).lock('chat', 'apply'):\n"
        "    print('held', flush=True); time.sleep(60)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        store = FolderStore(tmp_path)
        assert present(store.holder("chat")).pid == process.pid
        process.kill()
        process.wait()
    assert store.holder("chat") is None
    assert store.unlock("chat") is True
    with store.lock("chat", "apply"):
        pass


def test_a_process_is_known_by_when_it_was_started() -> None:
    holder = this_run("x", NOW)
    assert not holder.is_dead()
    assert process_start(holder.pid) == holder.started
    assert decode_holder(encode_holder(holder)) == holder
    assert decode_holder(b"{") is None


def test_a_document_is_kept_in_place_of_the_one_before(
    opener: Opener,
) -> None:
    store = opener()
    assert store.kept("chat") is None
    store.keep("chat", b"first")
    opener().keep("chat", b"second")
    assert store.kept("chat") == b"second"
    assert opener().kept("chat-2") is None
    store.forget("chat-2")
    store.forget("chat")
    assert opener().kept("chat") is None
    assert opener().stack_names() == []


def test_notes_are_kept_in_their_order_and_are_no_stacks(
    opener: Opener,
) -> None:
    store = opener()
    assert store.notes("chat") == []
    store.add_note("chat", "2", b"second")
    opener().add_note("chat", "1", b"first")
    store.add_note("chat-2", "1", b"another's")
    store.write("chat", b"state", None)
    store.delete("chat")
    assert opener().notes("chat") == [b"first", b"second"]
    assert opener().stack_names() == []

"""Files that a power cut leaves whole: they are on the disk before they have their name."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from providers.files import write_atomically
from stacks.runtime.vm.node.host import write_whole

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.mark.parametrize("write", [write_atomically, write_whole])
def test_a_file_is_on_the_disk_before_it_replaces_the_old_one(
    write: Callable[[Path, str], None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = tmp_path / "state.json"
    path.write_text("old")
    flushed: list[tuple[str, list[str]]] = []

    def flush(_: int) -> None:
        beside = [
            each.read_text() for each in tmp_path.iterdir() if each != path
        ]
        flushed.append((path.read_text(), beside))

    monkeypatch.setattr("os.fsync", flush)
    write(path, "new")
    assert flushed == [("old", ["new"])]
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]

"""Files of a folder: all that are plain, and nothing that leads elsewhere."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from planner.cli import file_tree
from planner.cli.file_tree import FolderTree
from planner.errors import MissingError, UsageError


@pytest.fixture
def tree(tmp_path: Path) -> FolderTree:
    root = tmp_path / "top"
    (root / "b" / "c").mkdir(parents=True)
    (root / ".git").mkdir()
    (tmp_path / "secret").write_text("outside")
    for path in ("a", "b/c/d", "b/ü.yaml", ".hidden", ".git/config"):
        (root / path).write_text(path)
    (root / "link").symlink_to(tmp_path / "secret")
    (root / "folder").symlink_to(tmp_path)
    os.mkfifo(root / "pipe")
    Path(root, os.fsdecode(b"\xff")).write_text("no text")
    return FolderTree(root)


def test_it_has_plain_files_with_names_of_text(tree: FolderTree) -> None:
    assert tree.paths() == ["a", "b/c/d", "b/ü.yaml"]
    assert tree.read("b/c/d") == b"b/c/d"
    assert tree.read_many(["a", "nothing", "link", "pipe"]) == {"a": b"a"}


@pytest.mark.parametrize(
    "path",
    [
        "",
        ".",
        "b",
        "../secret",
        "b/../../secret",
        "link",
        "folder/secret",
        "pipe",
        "a/x",
        "a\0",
        "nothing",
    ],
)
def test_nothing_else_is_read(tree: FolderTree, path: str) -> None:
    with pytest.raises(MissingError, match="no such file in the folder"):
        tree.read(path)
    with pytest.raises(MissingError):
        tree.read(str(tree.root.parent / "secret"))


def test_a_disk_is_no_folder_of_specs(
    tree: FolderTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_tree, "MOST_FILES", 2)
    with pytest.raises(UsageError, match="more than 2 files"):
        tree.paths()


def test_a_large_file_is_said(
    tree: FolderTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_tree, "MAX_FILE_BYTES", 0)
    with pytest.raises(UsageError, match="has more than 0 MiB"):
        tree.read("a")

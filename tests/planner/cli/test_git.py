"""Files at a revision and as they are: a real git repository, which stays as it is."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from planner.cli.git import (
    WorkingTree,
    find_repository,
    folder_reader,
    open_tree,
)
from planner.errors import MissingError, UsageError

pytestmark = pytest.mark.skipif(
    shutil.which("git") is None, reason="git is not installed"
)
ODD_PATHS = ("plain.txt", "a folder/rág 日本.yaml", "x/-dash", 'x/"quote"')


def git(folder: Path, *words: str) -> str:
    """Run git as nobody in particular, without the settings of this machine."""
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "GIT_CONFIG_NOSYSTEM": "1",
    }
    identity = ("-c", "user.name=a", "-c", "user.email=a@b")
    return subprocess.run(
        ["git", *identity, *words],
        cwd=folder,
        env=environment,
        check=True,
        capture_output=True,
        text=True,
    ).stdout


def commit(folder: Path, files: dict[str, str], message: str = "x") -> str:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--allow-empty", "-m", message)
    return git(folder, "rev-parse", "HEAD").strip()


@pytest.fixture
def repository(here: Path) -> Path:
    """An empty repository that one is in."""
    git(here, "init", "--quiet", "--initial-branch=main")
    return here


def fingerprint(folder: Path) -> str:
    """All that a repository has, its index and its files included."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        digest.update(str(path).encode())
        if path.is_file() and not path.is_symlink():
            digest.update(path.read_bytes())
    return digest.hexdigest()


def test_a_revision_has_the_content_that_was_committed(
    repository: Path,
) -> None:
    first = commit(repository, {name: f"old {name}\n" for name in ODD_PATHS})
    commit(repository, {name: f"new {name}\n" for name in ODD_PATHS})
    (repository / ODD_PATHS[0]).write_text("now\n")
    (repository / "untracked").write_text("now\n")
    (repository / ".gitignore").write_text("ignored\n")
    (repository / "ignored").write_text("now\n")
    before = fingerprint(repository)
    found = find_repository(Path.cwd())
    tree = open_tree(found, "HEAD~1", found.resolve("HEAD~1"))
    assert tree.commit == first
    assert tree.name == f"HEAD~1 {first[:7]}"
    assert tree.paths() == sorted(ODD_PATHS)
    assert tree.read_many([*ODD_PATHS, "nothing"]) == {
        name: f"old {name}\n".encode() for name in ODD_PATHS
    }
    now = WorkingTree(found)
    assert now.paths() == sorted([*ODD_PATHS, "untracked", ".gitignore"])
    assert now.read(ODD_PATHS[0]) == b"now\n"
    assert now.read(ODD_PATHS[1]) == f"new {ODD_PATHS[1]}\n".encode()
    (repository / ODD_PATHS[1]).unlink()
    assert ODD_PATHS[1] not in now.paths()
    (repository / ODD_PATHS[1]).write_text(f"new {ODD_PATHS[1]}\n")
    assert fingerprint(repository) == before


def test_links_lead_nowhere(repository: Path, tmp_path_factory) -> None:
    """A spec of somebody else must not read files of this machine."""
    secret = tmp_path_factory.mktemp("elsewhere")
    (secret / "key").write_text("secret")
    (repository / "link").symlink_to(secret / "key")
    (repository / "folder").symlink_to(secret)
    commit(repository, {"spec.yaml": "x"})
    found = find_repository(repository)
    tree = open_tree(found, "main", found.resolve("main"))
    for side in (tree, WorkingTree(found)):
        assert side.paths() == ["spec.yaml"]
        for path in ("link", "folder/key"):
            with pytest.raises(MissingError):
                side.read(path)


def test_a_spec_names_files_of_its_folder_and_side(repository: Path) -> None:
    commit(repository, {"s/a.yaml": "", "s/t.csv": "old", "o.csv": "other"})
    (repository / "s" / "t.csv").write_text("new")
    found = find_repository(repository)
    tree = open_tree(found, "main", found.resolve("main"))
    old, new = (
        folder_reader(side, "s/a.yaml") for side in (tree, WorkingTree(found))
    )
    assert (old("t.csv"), new("./t.csv")) == (b"old", b"new")
    for reader in (old, new):
        for name in ("../o.csv", "/etc/passwd", "../s2/x"):
            with pytest.raises(UsageError, match="outside the folder"):
                reader(name)
        with pytest.raises(MissingError, match="no such file"):
            reader("nothing.csv")
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\n"
    (repository / "s" / "t.csv").write_text(pointer)
    with pytest.raises(UsageError, match="git-lfs"):
        new("t.csv")


def test_what_is_not_there_has_a_next_step(
    repository: Path, tmp_path_factory
) -> None:
    commit(repository, {"a": "1"})
    commit(repository, {"a": "2"})
    found = find_repository(repository)
    with pytest.raises(MissingError) as raised:
        found.resolve("nothing")
    assert "git branch --all" in raised.value.problems[0].next_step
    for revision in ("--help", "-x", ""):
        with pytest.raises(UsageError, match="is no revision"):
            found.resolve(revision)
    clone = tmp_path_factory.mktemp("clone") / "shallow"
    git(repository, "clone", "-q", "--depth=1", repository.as_uri(), str(clone))
    shallow = find_repository(clone)
    for revision, step in (
        ("HEAD~1", "git fetch --unshallow"),
        ("origin/dev", "git fetch --depth=1 origin +refs/heads/dev:"),
        ("0123456789abcdef", "git fetch --depth=1 origin 0123456789abcdef"),
    ):
        with pytest.raises(MissingError) as raised:
            shallow.resolve(revision)
        [problem] = raised.value.problems
        assert "shallow" in problem.cause
        assert step in problem.next_step
    nowhere = tmp_path_factory.mktemp("nowhere")
    with pytest.raises(UsageError, match="in no git repository"):
        find_repository(nowhere)


def test_without_git_there_is_a_next_step(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(repository))
    with pytest.raises(UsageError, match="not installed"):
        find_repository(repository)


def test_sides_meet_where_they_have_parted(repository: Path) -> None:
    fork = commit(repository, {"a": "1"})
    git(repository, "switch", "--quiet", "--create", "feature")
    feature = commit(repository, {"b": "1"})
    git(repository, "switch", "--quiet", "main")
    main = commit(repository, {"c": "1"})
    found = find_repository(repository)
    assert found.merge_base(main, feature) == fork
    git(repository, "switch", "--quiet", "--orphan", "alone")
    alone = commit(repository, {"d": "1"})
    with pytest.raises(MissingError, match="both sides come from"):
        found.merge_base(main, alone)


def test_paths_of_the_command_line_are_those_of_the_folder_one_is_in(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(repository, {"specs/a.yaml": "1"})
    monkeypatch.chdir(repository / "specs")
    found = find_repository(Path.cwd())
    assert found.from_root("a.yaml") == "specs/a.yaml"
    assert found.from_root("..") == ""
    assert found.from_root(str(repository / "x")) == "x"
    with pytest.raises(UsageError, match="outside the repository"):
        found.from_root("/")


def test_a_repository_without_files_has_its_commits(
    repository: Path, tmp_path_factory
) -> None:
    head = commit(repository, {"a": "1"})
    bare = tmp_path_factory.mktemp("bare") / "bare"
    git(repository, "clone", "-q", "--bare", repository.as_uri(), str(bare))
    found = find_repository(bare)
    assert found.is_bare
    tree = open_tree(found, head[:9], found.resolve(head[:9]))
    assert (tree.name, tree.read("a")) == (head[:9], b"1")

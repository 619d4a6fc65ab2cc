"""Files of a git repository, at a revision or as they are: read through plumbing, no checkout.

Nothing is written, and no program that the repository names is run: no filter, no hook. Names that
are not UTF-8, symbolic links and submodules are no files here.
"""

from __future__ import annotations

import os
import posixpath
import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from planner.cli.file_tree import FolderTree, is_plain_file
from planner.errors import MissingError, Place, Problem, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from planner.cli.file_tree import FileTree

FILE_MODES: Final = frozenset({"100644", "100755"})
SHORT_COMMIT: Final = 7
# What large files of git-lfs begin with: the content itself is elsewhere.
# A branch, a tag or a commit, without steps from it.
PLAIN_REVISION: Final = re.compile(r"[^~^@{}:]+")
REMEDY: Final = "check the path, and that the file was added to git"
LFS_POINTER: Final = b"version https://git-lfs.github.com/spec/"


class GitRepository(Struct, frozen=True):
    """A repository.

    root    its top folder; the git directory of one without files
    prefix  path from there to the folder that one is in, such as specs/; empty at the top
    """

    root: Path
    prefix: str
    is_bare: bool

    def run(self, *words: str, given: bytes = b"") -> bytes:
        """Return what git answers. Raises UsageError for anything that it refuses."""
        code, out, error_text = _run_git(words, self.root, given)
        if code:
            raise UsageError(_git_problem(error_text))
        return out

    def resolve(self, revision: str) -> str:
        """Return the commit of a revision. Raises MissingError with how to get it."""
        if not revision or revision.startswith("-"):
            raise UsageError(
                Problem(
                    code="git",
                    message=f"'{revision}' is no revision",
                    next_step="name a branch, a tag or a commit: --base origin/main",
                )
            )
        name = f"{revision}^{{commit}}"
        code, out, _ = _run_git(
            ("rev-parse", "--verify", "--quiet", name), self.root
        )
        if code:
            raise MissingError(self._absence(revision))
        return out.decode().strip()

    def merge_base(self, first: str, second: str) -> str:
        """Return where two commits have parted. Raises MissingError for none that is here."""
        code, out, _ = _run_git(("merge-base", first, second), self.root)
        if code:
            raise MissingError(
                Problem(
                    code="git",
                    message="no commit is known that both sides come from",
                    cause=self._shallow_cause(),
                    next_step="fetch the history: git fetch --unshallow"
                    if self._is_shallow()
                    else "leave out --merge-base",
                )
            )
        return out.decode().split()[0]

    def from_root(self, path: str) -> str:
        """Return a path of the command line from the top of the repository; empty: all of it.

        Raises UsageError for one outside.
        """
        full_path = Path(os.path.normpath(Path.cwd() / path))
        for root in (self.root, self.root.resolve()):
            if full_path == root:
                return ""
            if root in full_path.parents:
                return full_path.relative_to(root).as_posix()
        raise UsageError(
            Problem(
                code="git",
                message=f"{path} lies outside the repository",
                place=None,
                next_step=f"name a path in {self.root}",
            )
        )

    def _is_shallow(self) -> bool:
        code, out, _ = _run_git(
            ("rev-parse", "--is-shallow-repository"), self.root
        )
        return code == 0 and out.strip() == b"true"

    def _shallow_cause(self) -> str:
        if not self._is_shallow():
            return ""
        return "the clone is shallow: it has a part of the history"

    def _absence(self, revision: str) -> Problem:
        """Return why there is no revision, and how it is fetched."""
        _, out, _ = _run_git(("remote",), self.root)
        remotes = out.decode(errors="replace").split()
        remote, _, branch = revision.partition("/")
        next_step = "see what there is: git branch --all"
        if not PLAIN_REVISION.fullmatch(revision):
            # Steps back from a commit need the history.
            if self._is_shallow():
                next_step = "fetch the history: git fetch --unshallow"
        elif remote in remotes and branch:
            next_step = (
                f"git fetch --depth=1 {remote} "
                f"+refs/heads/{branch}:refs/remotes/{remote}/{branch}"
            )
        elif remotes:
            next_step = f"git fetch --depth=1 {remotes[0]} {revision}"
            if not _is_commit(revision):
                next_step += (
                    f", and name it FETCH_HEAD or {remotes[0]}/{revision}"
                )
        return Problem(
            code="git",
            message=f"there is no revision {revision}",
            cause=self._shallow_cause(),
            next_step=next_step,
        )


class GitTree(Struct, frozen=True):
    """The files of a commit.

    objects  names of the objects that files are, by path
    """

    repository: GitRepository
    name: str
    commit: str
    objects: dict[str, str]

    def paths(self) -> list[str]:
        """Return the paths of all files, sorted."""
        return sorted(self.objects)

    def read_many(self, paths: Iterable[str]) -> dict[str, bytes]:
        """Return the content of files by path, in one run of git."""
        wanted = [path for path in paths if path in self.objects]
        if not wanted:
            return {}
        names = "".join(f"{self.objects[path]}\n" for path in wanted)
        answer = self.repository.run(
            "cat-file", "--batch", given=names.encode()
        )
        contents: dict[str, bytes] = {}
        position = 0
        for path in wanted:
            # A line <object> SP <type> SP <size>, the content, a line break.
            header_end = answer.index(b"\n", position)
            header = answer[position:header_end].split()
            if header[-1] == b"missing":
                raise UsageError(
                    Problem(
                        code="git",
                        message=f"the content of {path} is not in this clone",
                        next_step="get it: git fetch --refetch --no-filter",
                    )
                )
            size = int(header[-1])
            contents[path] = answer[header_end + 1 : header_end + 1 + size]
            position = header_end + size + 2
        return contents

    def read(self, path: str) -> bytes:
        """Return the content of a file. Raises MissingError."""
        found = self.read_many([path])
        if path not in found:
            raise MissingError(_missing_problem(path, self.name))
        return found[path]


class WorkingTree(Struct, frozen=True):
    """The files of a repository as they are, but for those that git ignores."""

    repository: GitRepository
    name: str = "working tree"

    @property
    def commit(self) -> None:
        """It is no revision."""
        return

    def paths(self) -> list[str]:
        """Return the paths of all files, also of those that were not added yet, sorted."""
        out = self.repository.run(
            "ls-files",
            "-z",
            "--cached",
            "--others",
            "--exclude-standard",
            "--full-name",
        )
        return sorted(
            path
            for path in {*_texts(out)}
            if is_plain_file(self.repository.root / path)
        )

    def read_many(self, paths: Iterable[str]) -> dict[str, bytes]:
        """Return the content of files by path; those that are not there are left out."""
        return self._folder.read_many(paths)

    def read(self, path: str) -> bytes:
        """Return the content of a file. Raises MissingError, and UsageError for a large one."""
        return self._folder.read(path)

    @property
    def _folder(self) -> FolderTree:
        return FolderTree(self.repository.root, self.name, REMEDY)


def find_repository(folder: Path) -> GitRepository:
    """Return the repository that a folder is in.

    Raises UsageError outside of one, without git, and for one that git does not trust.
    """
    words = ("rev-parse", "--is-bare-repository", "--show-prefix")
    code, out, error_text = _run_git(words, folder)
    if code:
        raise UsageError(_git_problem(error_text))
    bare_text, _, prefix = out.decode().partition("\n")
    is_bare = bare_text == "true"
    top = "--absolute-git-dir" if is_bare else "--show-toplevel"
    code, out, error_text = _run_git(("rev-parse", top), folder)
    if code:
        raise UsageError(_git_problem(error_text))
    root = Path(os.fsdecode(out.removesuffix(b"\n")))
    return GitRepository(root, prefix.removesuffix("\n"), is_bare)


def open_tree(repository: GitRepository, revision: str, commit: str) -> GitTree:
    """Return the files of a commit; `revision` is what a reader knows it by."""
    out = repository.run("ls-tree", "-r", "-z", "--full-tree", commit)
    objects = {}
    for entry in _texts(out):
        # <mode> SP <type> SP <object> TAB <path>
        facts, _, path = entry.partition("\t")
        mode, _, object_name = facts.split(" ")
        if mode in FILE_MODES:
            objects[path] = object_name
    name = revision
    if not commit.startswith(revision):
        name = f"{revision} {commit[:SHORT_COMMIT]}"
    return GitTree(repository, name, commit, objects)


def folder_reader(tree: FileTree, spec_path: str) -> Callable[[str], bytes]:
    """Return a function that reads files beside a spec, from the same side.

    Raises UsageError for a file outside the folder of the spec, and for one that git-lfs keeps.
    """
    folder = posixpath.dirname(spec_path)

    def read_beside(file_name: str) -> bytes:
        path = posixpath.normpath(posixpath.join(folder, file_name))
        is_inside = not posixpath.isabs(path) and not path.startswith("..")
        # A spec of another author must not read this machine's files.
        if not is_inside or (folder and not path.startswith(f"{folder}/")):
            raise UsageError(
                Problem(
                    code="file",
                    message=f"{file_name} lies outside the folder of the spec",
                    place=Place(spec_path),
                    next_step="put the file beside the spec",
                )
            )
        content = tree.read(path)
        if content.startswith(LFS_POINTER):
            raise UsageError(
                Problem(
                    code="file",
                    message=f"git-lfs keeps what is in it, and {tree.name} has a pointer",
                    place=Place(path),
                    next_step="keep a smaller file in git itself, or compare two folders: "
                    "tonnage diff A B",
                )
            )
        return content

    return read_beside


def _run_git(
    words: tuple[str, ...], folder: Path, given: bytes = b""
) -> tuple[int, bytes, str]:
    """Run git, and return its exit code, its answer, and what it says."""
    environment = {
        **os.environ,
        # Its sentences are read, it never asks, and it changes nothing.
        "LC_ALL": "C",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_OPTIONAL_LOCKS": "0",
        # A clone without all contents would fetch them over the network.
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_LITERAL_PATHSPECS": "1",
    }
    try:
        done = subprocess.run(  # noqa: S603 - words of ours, and a revision that is no flag
            ["git", "-c", "core.fsmonitor=false", *words],  # noqa: S607 - the git of the user
            cwd=folder,
            env=environment,
            input=given,
            capture_output=True,
            check=False,
        )
    except FileNotFoundError as error:
        raise UsageError(
            Problem(
                code="git",
                message="--base reads revisions with git, which is not installed",
                next_step="install git, or compare two files: tonnage diff A B",
            )
        ) from error
    return done.returncode, done.stdout, done.stderr.decode(errors="replace")


def _git_problem(error_text: str) -> Problem:
    """Return what git refuses as a problem with a next step."""
    first_line = (error_text.strip().splitlines() or ["git failed"])[0]
    message = first_line.removeprefix("fatal: ").removeprefix("error: ")
    next_step = "try the same with git itself"
    if "not a git repository" in error_text:
        message = "this folder is in no git repository"
        next_step = (
            "go to one with -C DIR, or compare two files: tonnage diff A B"
        )
    elif "dubious ownership" in error_text:
        next_step = "trust it: git config --global --add safe.directory '*'"
        trusted = error_text.partition("repository at '")[2].partition("'")[0]
        if trusted:
            next_step = (
                f"trust it: git config --global --add safe.directory {trusted}"
            )
    return Problem(code="git", message=message, next_step=next_step)


def _missing_problem(path: str, side: str) -> Problem:
    return Problem(
        code="file",
        message=f"no such file in {side}",
        place=Place(path),
        next_step=REMEDY,
    )


def _texts(out: bytes) -> list[str]:
    """Return entries that end with NUL, but for those that are not UTF-8."""
    texts = []
    for entry in out.split(b"\0"):
        try:
            text = entry.decode()
        except UnicodeDecodeError:
            continue
        if text:
            texts.append(text)
    return texts


def _is_commit(revision: str) -> bool:
    return len(revision) >= SHORT_COMMIT and all(
        letter in "0123456789abcdef" for letter in revision
    )

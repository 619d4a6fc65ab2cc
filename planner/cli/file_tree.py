"""Files below a folder, by their paths from there: no links are followed, nothing is written.

What is hidden, and names that are not UTF-8, are no files here.
"""

from __future__ import annotations

import errno
import os
import posixpath
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from msgspec import Struct

from planner.errors import MissingError, Place, Problem, UsageError
from providers.files import MAX_FILE_BYTES, read_regular

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

# More is no folder of specs, but a disk.
MOST_FILES: Final = 20_000


class FileTree(Protocol):
    """The files of one side, by their paths from the top of the repository."""

    @property
    def name(self) -> str:
        """What a reader knows the side by."""

    @property
    def commit(self) -> str | None:
        """The revision; None for files as they are."""

    def paths(self) -> list[str]:
        """Return the paths of all files, sorted."""

    def read_many(self, paths: Iterable[str]) -> dict[str, bytes]:
        """Return the content of small files by path; those that are not there are left out."""

    def read(self, path: str) -> bytes:
        """Return the content of a file. Raises MissingError."""


class FolderTree(Struct, frozen=True):
    """The files of a folder as they are.

    remedy  what helps where a file is not there
    """

    root: Path
    name: str = "the folder"
    remedy: str = "check the path"

    @property
    def commit(self) -> None:
        """It is no revision."""
        return

    def paths(self) -> list[str]:
        """Return the paths of all files, sorted. Raises UsageError for too many of them."""
        found: list[str] = []
        for path in self._walk():
            found.append(path)
            if len(found) > MOST_FILES:
                raise UsageError(
                    Problem(
                        code="folder",
                        message=f"has more than {MOST_FILES:,} files",
                        place=Place(str(self.root)),
                        next_step="name the folder that the specs are in",
                    )
                )
        return sorted(found)

    def read_many(self, paths: Iterable[str]) -> dict[str, bytes]:
        """Return the content of files by path; those that are not there are left out."""
        return {
            path: self.read(path)
            for path in paths
            if is_plain_file(self.root / path)
        }

    def read(self, path: str) -> bytes:
        """Return the content of a file. Raises MissingError, and UsageError for a large one."""
        file_path = self.root / path
        # A link, or a way out, could lead to any file of this machine.
        if (
            _leads_out(path)
            or not is_plain_file(file_path)
            or _has_link(self.root, path)
        ):
            raise MissingError(
                Problem(
                    code="file",
                    message=f"no such file in {self.name}",
                    place=Place(path),
                    next_step=self.remedy,
                )
            )
        try:
            return read_regular(file_path, MAX_FILE_BYTES)
        except OSError as error:
            if error.errno != errno.EFBIG:
                raise
            raise UsageError(
                Problem(
                    code="file",
                    message=str(error.strerror),
                    place=Place(path),
                    next_step="give a smaller one",
                )
            ) from error

    def _walk(self) -> Iterator[str]:
        for folder, inner_folders, names in os.walk(self.root):
            inner_folders[:] = sorted(
                name for name in inner_folders if not name.startswith(".")
            )
            for name in names:
                path = Path(folder, name)
                if (
                    name.startswith(".")
                    or not is_plain_file(path)
                    or not _is_text(str(path))
                ):
                    continue
                yield path.relative_to(self.root).as_posix()


def is_plain_file(path: Path) -> bool:
    """Whether there is a regular file, and no link to one."""
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except (OSError, ValueError):
        return False


def _leads_out(path: str) -> bool:
    return posixpath.isabs(path) or ".." in path.split("/")


def _is_text(path: str) -> bool:
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


def _has_link(root: Path, path: str) -> bool:
    """Whether a folder on the way to a file is a link."""
    folder = posixpath.dirname(path)
    while folder:
        if (root / folder).is_symlink():
            return True
        folder = posixpath.dirname(folder)
    return False

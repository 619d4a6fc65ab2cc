"""The specs among the files of a tree, each with all that it says."""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from planner.cli.compose import SpecFile
from planner.cli.git import folder_reader
from planner.errors import MissingError, SpecError, UsageError
from planner.plan.canonical import dump_document
from planner.plan.document import normalized_spec
from planner.plan.spec_pair import SpecIdentity
from planner.spec.load import load_spec
from planner.spec.named_file import named_files

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from planner.cli.file_tree import FileTree
    from planner.errors import TonnageError

SPEC_SUFFIXES: Final = (".yaml", ".yml")
PLAN_SUFFIX: Final = ".plan.json"
# What only a spec says, however it is laid out.
SPEC_MARK: Final = re.compile(
    rb"""apiVersion["']?[ \t]*:[ \t]*["']?tonnage/""", re.IGNORECASE
)
# What is wrong with a spec, and with nothing else.
SPEC_ERRORS: Final = (SpecError, UsageError, MissingError)


class TreeSpec(Struct, frozen=True, kw_only=True):
    """A spec as one side has it.

    key      digest of all that it says, with the files that it names
    digests  SHA-256 of the files that it names; None for one that cannot be read
    error    what is wrong with it, where it is no spec
    """

    path: str
    file_bytes: bytes
    spec_file: SpecFile | None = None
    key: str = ""
    digests: dict[str, str | None] = {}
    error: TonnageError | None = None

    @property
    def identity(self) -> SpecIdentity:
        """By what it is found again on the other side."""
        spec = self.spec_file.spec if self.spec_file is not None else None
        return SpecIdentity(
            content=hashlib.sha256(self.file_bytes).hexdigest(),
            kind=type(spec).__name__ if spec is not None else None,
            name=spec.name if spec is not None else None,
        )


def yaml_files(tree: FileTree, paths: Sequence[str]) -> dict[str, bytes]:
    """Return the YAML files below some paths, and those that are named; without paths all."""
    return tree.read_many(
        path
        for path in tree.paths()
        if path in paths
        or (path.endswith(SPEC_SUFFIXES) and is_wanted(path, paths))
    )


def is_wanted(path: str, paths: Sequence[str]) -> bool:
    """Whether a file is below one of some paths; without paths all are."""
    return not paths or any(is_below(path, top) for top in paths)


def is_below(path: str, top: str) -> bool:
    """Whether a file is another one, or below it; the empty path is the top of all."""
    return not top or path == top or path.startswith(f"{top}/")


def read_tree_spec(tree: FileTree, path: str, file_bytes: bytes) -> TreeSpec:
    """Return the spec of a file of a tree, or what is wrong with it."""
    try:
        spec = load_spec(file_bytes, path)
    except SpecError as error:
        content = hashlib.sha256(file_bytes).hexdigest()
        return TreeSpec(
            path=path, file_bytes=file_bytes, key=content, error=error
        )
    read_beside = folder_reader(tree, path)
    digests = {
        name: _digest_beside(read_beside, name) for name in named_files(spec)
    }
    said = dump_document({"spec": normalized_spec(spec), "files": digests})
    return TreeSpec(
        path=path,
        file_bytes=file_bytes,
        spec_file=SpecFile(
            path=path, file_bytes=file_bytes, spec=spec, read_beside=read_beside
        ),
        key=hashlib.sha256(said.encode()).hexdigest(),
        digests=digests,
    )


def _digest_beside(
    read_beside: Callable[[str], bytes], name: str
) -> str | None:
    try:
        return hashlib.sha256(read_beside(name)).hexdigest()
    except SPEC_ERRORS:
        # A plan that needs it says what is wrong.
        return None

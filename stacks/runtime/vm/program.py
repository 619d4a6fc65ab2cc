"""The program of a node as text that fits into what a machine is given when it first starts.

The text is JSON of files by path, compressed, in letters. bzip2 gives the same bytes everywhere,
and nothing else may: another text would be another machine.
"""

from __future__ import annotations

import ast
import base64
import bz2
import hashlib
import io
import json
import tokenize
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

PACKAGE: Final = "stacks.runtime.vm.node"
FOLDER: Final = "/opt/tonnage"
# What the agent needs, and what brings the rest.
CORE: Final = (
    "__init__",
    "__main__",
    "agent",
    "cloud",
    "host",
    "journal",
    "lease",
    "work",
)
# Tokens after which a string alone is a docstring.
STATEMENT_STARTS: Final = (
    tokenize.ENCODING,
    tokenize.INDENT,
    tokenize.NEWLINE,
    tokenize.NL,
)
PREPARING: Final = (
    "activity",
    "container",
    "disk",
    "health",
    "job",
    "package",
    "speed",
)
JOINING: Final = ("fabric", "group", "upload")
ROLE_MODULES: Final = {
    "serve": (*JOINING, "elastic", "hub", "router", "secret", "serve"),
    "batch": (*JOINING, "hub", "router", "secret", "serve", "batch"),
    "train": (
        *JOINING,
        "checkpoint",
        "file_system",
        "retention",
        "train",
    ),
    "workspace": ("home", "workspace"),
}


class NodeProgram(NamedTuple):
    """The program of a node: what it has at once, and what its agent may fetch."""

    core: dict[str, str]
    rest: dict[str, str]


def node_program(
    cloud_modules: Iterable[str], role: str, more: tuple[str, ...] = ()
) -> NodeProgram:
    """Return the files of the program of a node, by path.

    `cloud_modules` are those of its cloud, by their full names, and `more` those that some
    machines need beside those of their role.
    """
    return NodeProgram(
        _sources([*(f"{PACKAGE}.{name}" for name in CORE), *cloud_modules]),
        _role_sources(role, more),
    )


# Many stacks are made in one process, all of these few roles.
@cache
def packed_role(role: str, more: tuple[str, ...] = ()) -> str:
    """Return what the agent of a node may fetch, as one text."""
    return packed(_role_sources(role, more))


def packed(files_by_path: Mapping[str, str]) -> str:
    """Return files as one text, which `unpacked` reads."""
    document = json.dumps(files_by_path, sort_keys=True)
    return base64.b85encode(bz2.compress(document.encode())).decode()


def unpacked(text: str) -> dict[str, str]:
    """Return the files of a packed text."""
    document: dict[str, str] = json.loads(
        bz2.decompress(base64.b85decode(text))
    )
    return document


def text_digest(text: str) -> str:
    """Return twelve hexadecimal digits that name a text."""
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _role_sources(role: str, more: tuple[str, ...]) -> dict[str, str]:
    return _sources(
        f"{PACKAGE}.{name}" for name in (*PREPARING, *ROLE_MODULES[role], *more)
    )


def _sources(modules: Iterable[str]) -> dict[str, str]:
    return {
        f"{FOLDER}/{module.replace('.', '/')}.py": _source(module)
        for module in sorted(modules)
    }


@cache
def _source(module: str) -> str:
    """Return a module without what is read here and not there.

    Those are comments, docstrings, and what the type checker alone wants: imports and protocols.
    """
    package, _, name = module.rpartition(".")
    text = files(package).joinpath(f"{name}.py").read_text(encoding="utf-8")
    lines = text.splitlines(keepends=True)
    tokens = list(tokenize.tokenize(io.BytesIO(text.encode()).readline))
    for before, token, after in zip(
        tokens, tokens[1:], tokens[2:], strict=False
    ):
        (first, start), last = token.start, token.end[0]
        if token.type == tokenize.COMMENT:
            lines[first - 1] = lines[first - 1][:start].rstrip() + "\n"
        elif (
            token.type == tokenize.STRING
            and before.type in STATEMENT_STARTS
            and after.type == tokenize.NEWLINE
        ):
            # A body that is nothing but its docstring still needs a statement; a module does not.
            indent = lines[first - 1][:start]
            lines[first - 1] = f"{indent}...\n" if indent else ""
            lines[first:last] = [""] * (last - first)
    for statement in ast.parse(text).body:
        if _is_for_types(statement):
            first, last = statement.lineno, statement.end_lineno or 0
            lines[first - 1 : last] = [""] * (last - first + 1)
    return "".join(line for line in lines if line.strip())


def _is_for_types(statement: ast.stmt) -> bool:
    """Whether a statement does nothing when the program runs."""
    if isinstance(statement, ast.ClassDef):
        return [ast.unparse(base) for base in statement.bases] == ["Protocol"]
    return (
        isinstance(statement, ast.If)
        and ast.unparse(statement.test) == "TYPE_CHECKING"
    )

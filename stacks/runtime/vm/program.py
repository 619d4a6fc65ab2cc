"""The program of a node as text that fits into what a machine is given when it first starts.

The text is JSON of files by path, compressed, in letters. bzip2 gives the same bytes everywhere,
and nothing else may: another text would be another machine.
"""

from __future__ import annotations

import base64
import bz2
import hashlib
import json
from functools import cache
from typing import TYPE_CHECKING, Final, NamedTuple

from stacks.runtime.shell import read_script
from stacks.runtime.vm.running_text import running_text

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
    "unique",
    "work",
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
    "serve": (
        *JOINING,
        "elastic",
        "hand_over",
        "hub",
        "length_rule",
        "router",
        "secret",
        "serve",
    ),
    "batch": (
        *JOINING,
        "hand_over",
        "hub",
        "length_rule",
        "router",
        "secret",
        "serve",
        "batch",
    ),
    "bench": (
        *JOINING,
        "hand_over",
        "hub",
        "length_rule",
        "router",
        "secret",
        "serve",
        "bench",
    ),
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
    """The program of a node: what it has at once, and what its agent may fetch.

    User data has little room, so what it has at once is without what only people read. What is
    fetched is whole, so that an error on a machine names the lines of the source.
    """

    core: dict[str, str]
    rest: dict[str, str]


def node_program(
    cloud_modules: Iterable[str], role: str, more: tuple[str, ...] = ()
) -> NodeProgram:
    """Return the files of the program of a node, by path.

    `cloud_modules` are those of its cloud, by their full names, and `more` those that some
    machines need beside those of their role.
    """
    core = _sources([*(f"{PACKAGE}.{name}" for name in CORE), *cloud_modules])
    return NodeProgram(
        {path: running_text(text) for path, text in core.items()},
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


def _source(module: str) -> str:
    package, _, name = module.rpartition(".")
    return read_script(package, f"{name}.py")

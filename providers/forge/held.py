"""A comment in a file: what a job wrote that may only read, for a job that may post it.

Whoever wrote the file ran the code of a fork, so nothing in it says where it is posted: only which
request it is about, and for which commit. The second job compares both with the code host.
"""

from __future__ import annotations

import re
from typing import Final, Literal

import msgspec
from msgspec import Struct

from planner.errors import Place, Problem, UsageError
from planner.render.comment import TAG
from providers.forge.publish import Behavior  # noqa: TC001 - msgspec reads it

SCHEMA: Final = "tonnage.comment/1"
COMMIT: Final = re.compile(r"[0-9a-f]{7,64}")


class HeldComment(
    Struct, frozen=True, kw_only=True, forbid_unknown_fields=True
):
    """A comment that waits to be posted.

    request  number of the pull request or merge request
    commit   of it, that the comment was computed from
    """

    schema: Literal["tonnage.comment/1"] = SCHEMA
    request: int
    commit: str
    tag: str
    behavior: Behavior
    body: str


def dump_held(held: HeldComment) -> str:
    """Return a comment as JSON."""
    return (
        msgspec.json.format(msgspec.json.encode(held), indent=2).decode() + "\n"
    )


def parse_held(content: bytes, path: str) -> HeldComment:
    """Return the comment in a file. Raises UsageError for anything else: others wrote it."""
    try:
        held = msgspec.json.decode(content, type=HeldComment)
    except msgspec.DecodeError as error:
        raise _unreadable(path, str(error)) from error
    if held.request < 1:
        raise _unreadable(path, "request: is no number of a request")
    if not COMMIT.fullmatch(held.commit):
        raise _unreadable(path, "commit: is no commit")
    if not TAG.fullmatch(held.tag):
        raise _unreadable(path, "tag: is no tag")
    return held


def _unreadable(path: str, cause: str) -> UsageError:
    return UsageError(
        Problem(
            code="held-comment",
            message="is no comment that tonnage comment --hold wrote",
            cause=cause,
            place=Place(path),
            next_step="take the file that the first job wrote",
        )
    )


def same_commit(held_commit: str, commit: str) -> bool:
    """Return whether two commits are the same, one of which may be shortened."""
    length = min(len(held_commit), len(commit))
    return length >= len("1234567") and held_commit[:length] == commit[:length]

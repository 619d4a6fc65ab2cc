"""What the machines of a standing stack have written, as the logs of its cloud have it."""

from __future__ import annotations

from datetime import datetime  # noqa: TC003 - msgspec reads the annotations
from importlib import import_module
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from planner.errors import MissingError, Problem, UsageError
from providers.live.access import cloud_errors

if TYPE_CHECKING:
    from collections.abc import Iterator

    from planner.plan.status import StackStatus

# The output of a stack of Azure that names where its lines are.
WORKSPACE_OUTPUT: Final = "log_workspace"


class LogQuery(Struct, frozen=True, kw_only=True):
    """Lines of a stack from a time on, and of one of its scaling groups where that is named.

    workspace  where Azure keeps them; empty elsewhere
    """

    stack: str
    region: str
    since: datetime
    group: str = ""
    workspace: str = ""


class LogLine(Struct, frozen=True, kw_only=True):
    """A line. `machine` is its number in the cloud, `source` the program that wrote it."""

    time: datetime
    group: str
    machine: str
    source: str
    text: str


def log_query(status: StackStatus, pool: str, since: datetime) -> LogQuery:
    """Return the question for the lines of a stack, or of one of its pools.

    Raises UsageError for a stack that is not complete, MissingError for an unknown pool.
    """
    facts = status.facts
    if facts is None:
        raise UsageError(
            Problem(
                code="logs",
                message=f"{status.stack} has no machines yet",
                next_step="complete the stack: tonnage apply",
            )
        )
    # A pool may have a group of spot machines beside the others.
    groups = {
        key.removeprefix("group_").replace("_", "-"): str(name)
        for key, name in status.outputs.items()
        if key.startswith("group_")
    }
    if pool and pool not in groups:
        raise MissingError(
            Problem(
                code="logs",
                message=f"{status.stack} has no pool {pool}",
                cause=f"its pools: {', '.join(sorted(groups))}",
                next_step="name one of them: --pool NAME",
            )
        )
    return LogQuery(
        stack=status.stack,
        region=facts.region,
        since=since,
        group=groups.get(pool, ""),
        workspace=str(status.outputs.get(WORKSPACE_OUTPUT, "")),
    )


def read_lines(provider: str, query: LogQuery) -> Iterator[LogLine]:
    """Yield the lines of a stack in their order. Raises TonnageError."""
    with cloud_errors(provider, "the logs cannot be read"):
        lines: Iterator[LogLine] = import_module(
            f"stacks.{provider}.logs"
        ).read_lines(query)
        yield from lines

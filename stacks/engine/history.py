"""What was done with a stack, run by run: kept beside its state, also when the stack is gone."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from uuid import uuid4

import msgspec

from planner.errors import Problem, UsageError
from planner.plan.account import PastRun
from stacks.engine.state import READ_ERRORS

if TYPE_CHECKING:
    from stacks.engine.store import StateStore


def run_name(began: str) -> str:
    """Return a name for what is written down of a run that begins at a time.

    Names sort by time; two runs of one moment have different ones.
    """
    return f"{re.sub(r'[^0-9T]', '', began)}-{uuid4().hex[:8]}"


def add_run(
    store: StateStore, stack_name: str, name: str, run: PastRun
) -> None:
    """Write down a run, in place of what was written under that name."""
    store.add_note(stack_name, name, msgspec.json.encode(run))


def past_runs(store: StateStore, stack_name: str) -> list[PastRun]:
    """Return the runs of a stack, the newest last. Raises UsageError for a damaged note."""
    return [_read_run(stack_name, note) for note in store.notes(stack_name)]


def _read_run(stack_name: str, note: bytes) -> PastRun:
    try:
        return msgspec.json.decode(note, type=PastRun)
    except READ_ERRORS as read_error:
        raise UsageError(
            Problem(
                code="history",
                message=f"a note on a run of {stack_name} is damaged",
                cause=str(read_error),
                next_step=f"remove it from {stack_name}.note beside the states",
            )
        ) from read_error

"""What was done with a stack, run by run: kept beside its state, also when the stack is gone."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from uuid import uuid4

import msgspec

from planner.plan.account import PastRun

if TYPE_CHECKING:
    from stacks.engine.store import StateStore


def add_run(store: StateStore, stack_name: str, run: PastRun) -> None:
    """Write down a run."""
    # Names sort by time; two runs of one moment have different ones.
    name = f"{re.sub(r'[^0-9T]', '', run.began)}-{uuid4().hex[:8]}"
    store.add_note(stack_name, name, msgspec.json.encode(run))


def past_runs(store: StateStore, stack_name: str) -> list[PastRun]:
    """Return the runs of a stack, the newest last."""
    return [
        msgspec.json.decode(note, type=PastRun)
        for note in store.notes(stack_name)
    ]

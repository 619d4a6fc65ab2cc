"""How the machines of a standing stack are, by what their agents leave in its bucket."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import obstore

from planner.errors import TonnageError
from planner.plan.account import GroupHealth, MachineEvent, StackHealth
from stacks.operate.machine import SIGNS, machines

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stacks.operate.bucket import Bucket

# Where an agent leaves why it ends its machine, by what becomes of the machine.
REASON_FOLDERS: Final = {
    "released/": "given back",
    "broken/": "moved to other hardware",
}
# The newest are read: a stack that runs for years leaves thousands.
MOST_EVENTS: Final = 3


def stack_health(bucket: Bucket, now: datetime) -> StackHealth:
    """Return which machines live, and why others have ended, the newest last.

    What cannot be asked is no error here: the rest of the status is worth showing.
    """
    try:
        with bucket.errors():
            living = machines(bucket.folder(SIGNS), now)
            events = [
                event
                for folder, outcome in REASON_FOLDERS.items()
                for event in _newest_events(bucket, folder, outcome)
            ]
    except TonnageError as error:
        problem = error.problems[0]
        return StackHealth(
            problem=": ".join(filter(None, (problem.message, problem.cause)))
        )
    groups = sorted({machine.group for machine in living})
    return StackHealth(
        groups=tuple(
            GroupHealth(
                group=group,
                alive=sum(machine.group == group for machine in living),
                heard_s=min(
                    (now - machine.seen).total_seconds()
                    for machine in living
                    if machine.group == group
                ),
            )
            for group in groups
        ),
        events=tuple(sorted(events, key=lambda event: event.at)[-MOST_EVENTS:]),
    )


def _newest_events(
    bucket: Bucket, folder: str, outcome: str
) -> Iterator[MachineEvent]:
    store = bucket.folder(folder)
    found = sorted(
        (meta for page in obstore.list(store) for meta in page),
        key=lambda meta: meta["last_modified"],
    )
    for meta in found[-MOST_EVENTS:]:
        group, _, name = meta["path"].partition("/")
        try:
            record = json.loads(bytes(obstore.get(store, meta["path"]).bytes()))
            reason = str(record["reason"])
            at = datetime.fromisoformat(record["at"]).astimezone(UTC)
        except (ValueError, KeyError, TypeError):
            # An agent of another version wrote it, or was cut off.
            continue
        yield MachineEvent(
            at=at.isoformat(timespec="seconds"),
            group=group,
            machine=name.removesuffix(".json"),
            outcome=outcome,
            reason=reason,
        )

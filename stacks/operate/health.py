"""How the machines of a standing stack are, by what their agents leave in its bucket."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import obstore

from planner.errors import TonnageError
from planner.plan.account import GroupHealth, MachineEvent, StackHealth
from planner.units import SECONDS_PER_HOUR
from stacks.operate.machine import SIGNS, Trouble, machines
from stacks.runtime.vm.node.agent import LAUNCH_FORM

if TYPE_CHECKING:
    from collections.abc import Iterator

    from obstore.store import ObjectStore

    from stacks.operate.bucket import Bucket

# Where each machine that ever lived has an object.
LIVES: Final = "lived/"
# Where an agent leaves why it ends its machine, by what becomes of the machine.
RELEASED: Final = "released/"
REASON_FOLDERS: Final = {
    RELEASED: "given back",
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
            lived_hours = _lived_hours(bucket.folder(LIVES))
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
        lived_hours=lived_hours,
        events=tuple(sorted(events, key=lambda event: event.at)[-MOST_EVENTS:]),
    )


def troubles_since(bucket: Bucket, since: datetime) -> list[Trouble]:
    """Return the machines that were given back in trouble since a time, the oldest first.

    One that was moved to other hardware is none of them: its template is not to blame. Raises the
    errors of the bucket.
    """
    with bucket.errors():
        store = bucket.folder(RELEASED)
        found = sorted(
            (
                meta
                for page in obstore.list(store)
                for meta in page
                if meta["last_modified"] >= since
            ),
            key=lambda meta: meta["last_modified"],
        )
        records = [
            (meta["path"].partition("/")[0], _record(store, meta["path"]))
            for meta in found
        ]
    return [
        Trouble(
            group=group,
            handle=str(record.get("handle", "")),
            reason=str(record.get("reason", "")),
        )
        for group, record in records
        if record.get("trouble")
    ]


def _record(store: ObjectStore, path: str) -> dict[str, Any]:
    """Return what an agent has left; nothing of what was cut off."""
    try:
        record = json.loads(bytes(obstore.get(store, path).bytes()))
    except ValueError:
        return {}
    return record if isinstance(record, dict) else {}


def _lived_hours(store: ObjectStore) -> dict[str, float]:
    """Return for how long the machines of each group have lived, hours, also of those gone.

    Each has an object that is named after its launch, and that it writes again while it lives.
    """
    hours: dict[str, float] = {}
    for page in obstore.list(store):
        for meta in page:
            group, _, name = meta["path"].partition("/")
            try:
                launched = datetime.strptime(
                    name.partition("_")[0], LAUNCH_FORM
                ).replace(tzinfo=UTC)
            except ValueError:
                continue
            lived_s = (meta["last_modified"] - launched).total_seconds()
            hours[group] = hours.get(group, 0.0) + max(0.0, lived_s) / (
                SECONDS_PER_HOUR
            )
    return hours


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
            record = _record(store, meta["path"])
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

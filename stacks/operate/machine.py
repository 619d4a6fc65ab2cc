"""The machines of a standing stack, by the signs of life that their agents leave in its bucket."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from importlib import import_module
from typing import TYPE_CHECKING, Final

import obstore
from msgspec import Struct

from planner.errors import MissingError, Problem, UsageError
from stacks.spec.stack import (
    BASTION_OUTPUT,
    GROUP_ID_OUTPUT,
    GROUP_OUTPUT,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from obstore.store import ObjectStore

    from planner.plan.status import StackStatus
    from stacks.operate.bucket import Bucket

SIGNS: Final = "alive/"
# An agent writes every five minutes, and is lost after half an hour.
LOST_AFTER: Final = timedelta(minutes=30)


class LivingMachine(Struct, frozen=True, kw_only=True):
    """A machine: its scaling group, its handle in the cloud, and when it was seen last.

    phase  what its work says of itself, such as starting or working; empty before it begins
    """

    group: str
    handle: str
    seen: datetime
    phase: str = ""

    @property
    def name(self) -> str:
        """What people call it: the last part of its handle."""
        return self.handle.rpartition("/")[2]


class Trouble(Struct, frozen=True, kw_only=True):
    """A machine that was given back because it did not do its work."""

    group: str
    handle: str
    reason: str


class Door(Struct, frozen=True, kw_only=True):
    """What a way to a machine needs to know of it.

    group           its scaling group, by the name in the cloud
    resource_group  that of the stack, on Azure alone
    group_id        its id, of a workspace on Azure
    bastion         the way in to a workspace on Azure
    """

    handle: str
    region: str
    group: str
    resource_group: str
    group_id: str = ""
    bastion: str = ""


def machines(store: ObjectStore, now: datetime) -> list[LivingMachine]:
    """Return the machines that live, by group and name; `store` is the folder `SIGNS`."""
    found = []
    for page in obstore.list(store):
        for meta in page:
            if now - meta["last_modified"] >= LOST_AFTER:
                continue
            sign = json.loads(bytes(obstore.get(store, meta["path"]).bytes()))
            found.append(
                LivingMachine(
                    group=meta["path"].partition("/")[0],
                    handle=sign["handle"],
                    seen=meta["last_modified"],
                    phase=sign.get("phase", ""),
                )
            )
    return sorted(found, key=lambda machine: (machine.group, machine.name))


def lives_in(bucket: Bucket, now: datetime) -> dict[str, dict[str, str]]:
    """Return what machines say of their work, by scaling group and handle.

    Raises the errors of the bucket.
    """
    store = bucket.folder(SIGNS)
    lives: dict[str, dict[str, str]] = {}
    with bucket.errors():
        for machine in machines(store, now):
            lives.setdefault(machine.group, {})[machine.handle] = machine.phase
    return lives


def find_machine(
    found: Sequence[LivingMachine], stack: str, name: str
) -> LivingMachine:
    """Return a machine by its name, or the only one. Raises MissingError or UsageError."""
    if not found:
        raise MissingError(
            Problem(
                code="machine",
                message=f"no machine of {stack} has given a sign of life for half an hour",
                cause="machines that boot give one after some minutes",
                next_step=f"see why: tonnage logs {stack}",
            )
        )
    names = ", ".join(machine.name for machine in found)
    if not name and len(found) > 1:
        raise UsageError(
            Problem(
                code="machine",
                message=f"{stack} has {len(found)} machines",
                cause=names,
                next_step=f"name one: tonnage connect {stack} {found[0].name}",
            )
        )
    for machine in found:
        if name in ("", machine.name, machine.handle):
            return machine
    raise MissingError(
        Problem(
            code="machine",
            message=f"no machine of {stack} is named {name}",
            cause=f"its machines: {names}",
            next_step="name one of them",
        )
    )


def door_command(
    status: StackStatus,
    machine: LivingMachine,
    remote_command: str,
    port: int | None = None,
) -> list[str]:
    """Return the words that open a shell on a machine, run a command there, or bring a port here.

    Raises UsageError where the cloud of the stack has no such way.
    """
    facts = status.facts
    assert facts is not None  # noqa: S101 - it has a bucket, so it has facts
    group = machine.group.replace("-", "_")
    door = Door(
        handle=machine.handle,
        region=facts.region,
        group=str(status.outputs.get(f"group_{group}", "")),
        resource_group=str(status.outputs.get(GROUP_OUTPUT, "")),
        group_id=str(status.outputs.get(GROUP_ID_OUTPUT, "")),
        bastion=str(status.outputs.get(BASTION_OUTPUT, "")),
    )
    way = import_module(f"stacks.{facts.provider}.door")
    words: list[str] = (
        way.command(door, remote_command)
        if port is None
        else way.tunnel(door, port)
    )
    return words

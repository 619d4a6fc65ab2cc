"""After a crash: every call whose end is not known is looked up in the cloud."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

from msgspec.structs import replace

from stacks.engine.protocol import ProgressEvent, ResourceStep
from stacks.engine.state import settle

if TYPE_CHECKING:
    from planner.plan.types import Properties
    from providers.simulated.shared import SharedWorld
    from stacks.engine.protocol import Listener
    from stacks.engine.state import PendingCall
    from stacks.engine.state_file import StateFile


def recover(
    state_file: StateFile, world: SharedWorld, listener: Listener
) -> tuple[ResourceStep, ...]:
    """Enter what came of pending calls into the state, and return those that had happened.

    An object that was created is found by the token of its call. An update has happened when the
    object has what was sent, a deletion when the object is gone.
    """
    state = state_file.state
    if not state.pending:
        return ()
    found_steps = []
    for key, call in sorted(state.pending.items()):
        settled_call = _looked_up(call, world)
        if settled_call is None:
            del state.pending[key]
            continue
        settle(state, settled_call)
        step = ResourceStep(call.action, call.record.type, key)
        found_steps.append(step)
        listener(ProgressEvent(0.0, step, "found"))
    state_file.save()
    return tuple(found_steps)


def _looked_up(call: PendingCall, world: SharedWorld) -> PendingCall | None:
    """Return a call with what came of it; nothing when it was never made, or was refused."""
    cloud = world.view(call.record.place[1])
    if call.action == "delete":
        is_gone = cloud.read(call.record.id) is None
        return call if is_gone else None
    if call.action == "update":
        cloud_object = cloud.read(call.record.id)
        if cloud_object is None or (
            inputs_digest(cloud_object["inputs"]) != call.sent_sha256
        ):
            return None
        updated_record = replace(call.record, outputs=cloud_object["outputs"])
        return replace(call, record=updated_record)
    for object_id, cloud_object in cloud.find(call.token).items():
        created_record = replace(
            call.record, id=object_id, outputs=cloud_object["outputs"]
        )
        return replace(call, record=created_record)
    return None


def inputs_digest(filled_inputs: Properties) -> str:
    """SHA-256 of what a call sends."""
    return hashlib.sha256(
        json.dumps(filled_inputs, sort_keys=True).encode()
    ).hexdigest()

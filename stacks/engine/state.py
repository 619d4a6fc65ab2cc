"""The state of a stack: what stands, and the calls to the cloud whose end is not known yet.

A call is written down before it is made and its outcome after it. Whatever ends the process, the
state names every call that may have happened, and the next run looks each of them up.
"""

from __future__ import annotations

import hashlib
from typing import Final, Literal

import msgspec
from msgspec import Struct, field

from planner.errors import Problem, UsageError
from planner.plan.part import Properties  # noqa: TC001 - msgspec reads the annotations
from planner.plan.status import (  # noqa: TC001 - msgspec reads the annotations
    Coming,
    Operation,
    StackFacts,
)

STATE_SCHEMA: Final = "tonnage.state/2"
# What reading JSON raises: text that is not UTF-8 is a ValueError.
READ_ERRORS: Final = (msgspec.MsgspecError, ValueError, RecursionError)
# Where records of replaced objects are kept until they are deleted: old:SERIAL:NAME.
REPLACED_PREFIX: Final = "old:"


class ResourceRecord(Struct, frozen=True, kw_only=True):
    """A resource as it was made.

    id       of the object in the cloud; empty while it is being created
    inputs   of the graph, with references unfilled
    outputs  of the object
    needs    names of the resources that it depends on
    place    cloud and region
    options  of the graph
    built_on  digest of what has filled each input when it was sent: outputs of others, dates
    """

    type: str
    id: str
    inputs: Properties
    outputs: Properties
    needs: tuple[str, ...]
    place: tuple[str, str]
    options: Properties = field(default_factory=dict)
    built_on: dict[str, str] = field(default_factory=dict)


class PendingCall(Struct, frozen=True, kw_only=True):
    """A call that was about to be made when the state was written.

    action  what was asked of the cloud
    key     name of the record that it changes
    token   identifies the call: a cloud that gets it twice acts once
    record  what the record becomes when the call has succeeded; its id and outputs are unknown
            for a creation
    sent_sha256  of the inputs that were sent; empty for a deletion
    """

    action: Literal["create", "update", "delete"]
    key: str
    token: str
    record: ResourceRecord
    sent_sha256: str = ""


class Refusal(Struct, frozen=True, kw_only=True):
    """A fleet of a plan that a cloud did not have.

    plan   digest of the plan
    until  when it may be asked for again, ISO 8601
    """

    plan: str
    until: str


class StackState(Struct, kw_only=True):
    """Everything that is known of a stack.

    serial     grows with every write
    plan       digest of the plan applied last
    started    first apply, ISO 8601
    account    cloud/account in which it stands
    resources  by name; what a replacement left behind has a prefix
    retained   objects that were left in the cloud because they hold data, by place, name and id
    pending    calls whose end is not known, by the key of their record
    refusals   fleets that a cloud did not have lately, by their rung in the plan
    coming     what a run brings the stack to whose new machines are waited for
    """

    schema: Literal["tonnage.state/2"] = "tonnage.state/2"
    stack: str
    serial: int = 0
    plan: str = ""
    started: str = ""
    account: str = ""
    operation: Operation = "applying"
    resources: dict[str, ResourceRecord] = field(default_factory=dict)
    retained: dict[str, ResourceRecord] = field(default_factory=dict)
    pending: dict[str, PendingCall] = field(default_factory=dict)
    refusals: dict[str, Refusal] = field(default_factory=dict)
    outputs: Properties = field(default_factory=dict)
    facts: StackFacts | None = None
    coming: Coming | None = None

    @property
    def complete(self) -> bool:
        """Whether the last run ended well, and left the stack standing."""
        return self.operation == "applied"


def resource_name(record_key: str) -> str:
    """Return the name of a resource by the key of its record, wherever that is kept."""
    if record_key.startswith(REPLACED_PREFIX):
        return record_key.rsplit(":", maxsplit=1)[-1]
    return record_key.split("/")[2] if "/" in record_key else record_key


def retained_key(name: str, place: tuple[str, str], object_id: str) -> str:
    """Return the key of a retained object: a resource may have left several."""
    return "/".join((*place, name, object_id))


def settle(stack_state: StackState, call: PendingCall) -> None:
    """Enter the outcome of a call that has succeeded into a state.

    `call.record` is the record as it is then. What was replaced stays until it is deleted.
    """
    resources = stack_state.resources
    if call.action == "delete":
        resources.pop(call.key, None)
    else:
        prior_record = resources.get(call.key)
        if call.action == "create" and prior_record is not None:
            replaced_key = f"{REPLACED_PREFIX}{stack_state.serial}:{call.key}"
            resources[replaced_key] = prior_record
        resources[call.key] = call.record
    stack_state.pending.pop(call.key, None)


def state_digest(stack_state: StackState) -> str:
    """SHA-256 of a state."""
    return hashlib.sha256(_state_bytes(stack_state)).hexdigest()


def encode_state(stack_state: StackState) -> bytes:
    """Return a state as the bytes of its file, with a checksum."""
    state_bytes = _state_bytes(stack_state)
    return msgspec.json.encode(
        StateEnvelope(
            sha256=hashlib.sha256(state_bytes).hexdigest(),
            state=msgspec.Raw(state_bytes),
        )
    )


def decode_state(content: bytes, location: str) -> StackState:
    """Return the state of a file.

    Raises UsageError for one that is damaged, or of another version.
    """
    try:
        envelope = msgspec.json.decode(content, type=StateEnvelope)
        header = msgspec.json.decode(envelope.state, type=StateHeader)
    except READ_ERRORS as read_error:
        raise _damaged_error(location) from read_error
    if envelope.sha256 != hashlib.sha256(envelope.state).hexdigest():
        raise _damaged_error(location)
    if header.schema != STATE_SCHEMA:
        message = f"the state {location} is of another version: {header.schema}"
        next_step = "use the version of tonnage that wrote it, or a newer one"
        raise UsageError(
            Problem(code="state", message=message, next_step=next_step)
        )
    try:
        return msgspec.json.decode(envelope.state, type=StackState)
    except READ_ERRORS as read_error:
        raise _damaged_error(location) from read_error


class StateEnvelope(Struct):
    """A state in its file."""

    sha256: str
    state: msgspec.Raw


class StateHeader(Struct):
    """What every version of a state has."""

    schema: str


def _state_bytes(stack_state: StackState) -> bytes:
    return msgspec.json.encode(stack_state, order="sorted")


def _damaged_error(location: str) -> UsageError:
    next_step = "restore the file from a copy; nothing was changed"
    message = f"the state {location} is damaged: its checksum differs"
    return UsageError(
        Problem(code="state", message=message, next_step=next_step)
    )

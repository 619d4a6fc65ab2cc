"""What differs between Pulumi's checkpoint and the clouds, as its own refresh sees it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stacks.engine.drift import heed_drift, moves_by_itself
from stacks.engine.protocol import DriftedResource
from stacks.engine.pulumi.event import EventRecorder
from stacks.engine.pulumi.status import name_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from stacks.engine.protocol import Listener, Permission, ResourceStep
    from stacks.engine.pulumi.stack import PulumiStack


def find_drift(pulumi_stack: PulumiStack) -> tuple[DriftedResource, ...]:
    """Return the objects that are gone, or not as the last run left them; changes nothing."""
    event_recorder = EventRecorder(lambda _: None)
    pulumi_stack.preview_refresh(event_recorder)
    drifted = []
    for step in event_recorder.changed_steps():
        if step.action == "delete":
            drifted.append(DriftedResource("gone", step.type, step.name))
            continue
        details = tuple(
            reason
            for reason in step.reasons
            if not moves_by_itself(step.type, reason)
        )
        if details or not step.reasons:
            drifted.append(
                DriftedResource("changed", step.type, step.name, details)
            )
    return tuple(drifted)


def face_drift(
    pulumi_stack: PulumiStack,
    listener: Listener,
    preview: Callable[[], tuple[ResourceStep, ...]],
    allow: Collection[Permission],
) -> None:
    """Let the checkpoint forget what somebody has deleted, so that it is made again.

    What somebody has changed is read into it where that may be undone. Raises PolicyError where
    `preview` says that an apply would change it, too, and that is not allowed.
    """
    deployment = pulumi_stack.deployment
    if not deployment.get("resources"):
        return
    drifted = find_drift(pulumi_stack)
    if any(resource.kind == "changed" for resource in drifted):
        heed_drift(preview(), drifted, allow)
    read_names = {
        resource.name
        for resource in drifted
        if resource.kind == "gone" or "drift" in allow
    }
    read_urns = [
        state_record["urn"]
        for state_record in deployment["resources"]
        if name_of(state_record) in read_names
    ]
    if read_urns:
        pulumi_stack.refresh(read_urns, EventRecorder(listener))

"""After a crash under Pulumi: operations whose end is not known."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stacks.engine.protocol import ProgressEvent, ResourceStep
from stacks.engine.pulumi.checkpoint import (
    pending_operations,
    place_of,
    resource_ids,
)
from stacks.engine.pulumi.event import EventRecorder

if TYPE_CHECKING:
    from collections.abc import Callable

    from planner.plan.types import Properties
    from stacks.engine.protocol import Action, Listener
    from stacks.engine.pulumi.finder import ObjectFinder
    from stacks.engine.pulumi.stack import PulumiStack


def recover_stack(
    pulumi_stack: PulumiStack,
    finder_of: Callable[[tuple[str, str]], ObjectFinder],
    listener: Listener,
) -> tuple[ResourceStep, ...]:
    """Make the checkpoint of a stack true again, and return what a dead run had begun.

    An object that was found takes its place in the checkpoint with its id; then it, and all that
    updates and deletions were for, are read from the cloud.
    """
    deployment = pulumi_stack.deployment
    operations = pending_operations(deployment)
    if not operations:
        return ()
    read_urns = _settle_operations(deployment, operations, finder_of)
    pulumi_stack.write_deployment(deployment)
    if read_urns:
        pulumi_stack.refresh(read_urns, EventRecorder(lambda _: None))
    steps = tuple(_step_of(operation) for operation in operations)
    for step in steps:
        listener(ProgressEvent(0.0, step, "found"))
    return steps


def _settle_operations(
    deployment: Properties,
    operations: list[Properties],
    finder_of: Callable[[tuple[str, str]], ObjectFinder],
) -> list[str]:
    """Enter created objects into a checkpoint, and return the resources that are to be read."""
    known_ids = resource_ids(deployment)
    read_urns = []
    for operation in operations:
        resource = operation["resource"]
        if operation["type"] == "creating":
            finder = finder_of(place_of(deployment, resource))
            found_id = finder.find(resource, known_ids)
            # What was never made is in no state, and cannot be read.
            if found_id is None:
                continue
            _enter_object(deployment, resource, found_id)
        read_urns.append(resource["urn"])
    deployment["pending_operations"] = []
    return sorted(set(read_urns))


def _enter_object(
    deployment: Properties, resource: Properties, found_id: str
) -> None:
    """Add an object to a checkpoint; an older one of the same resource waits for its deletion."""
    for state_record in deployment["resources"]:
        if state_record["urn"] == resource["urn"]:
            state_record["delete"] = True
    deployment["resources"].append(
        {
            **resource,
            "id": found_id,
            # Some providers read an object by more than its id, and find the rest in here.
            "outputs": {**resource.get("inputs", {}), "id": found_id},
        }
    )


def _step_of(operation: Properties) -> ResourceStep:
    actions: dict[str, Action] = {
        "creating": "create",
        "updating": "update",
        "deleting": "delete",
    }
    resource = operation["resource"]
    return ResourceStep(
        actions.get(operation["type"], "same"),
        resource["type"],
        resource["urn"].rsplit("::", 1)[-1],
    )

"""After a crash under Pulumi: dead locks, cut checkpoints, operations whose end is not known."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct

from stacks.engine.protocol import ProgressEvent, ResourceStep
from stacks.engine.pulumi.checkpoint import (
    folder_backend,
    pending_operations,
    resource_ids,
)

if TYPE_CHECKING:
    from planner.plan.types import Properties
    from providers.simulated.shared import SharedWorld
    from stacks.engine.protocol import Action, Listener
    from stacks.engine.pulumi.session import PulumiSession


class ObjectFinder(Protocol):
    """Finds what a creation made whose answer was lost."""

    def find(self, operation: Properties, known_ids: set[str]) -> str | None:
        """Return the id of the object of a pending creation; nothing when there is none.

        An object whose id is known belongs to another resource.
        """


class SimulatedFinder(Struct, frozen=True):
    """Finds objects of the simulated clouds by the resource that they were created for."""

    world: SharedWorld

    def find(self, operation: Properties, known_ids: set[str]) -> str | None:
        """Return the id of the object of a pending creation."""
        found_ids = self.world.view().find(operation["resource"]["urn"])
        return next(
            (found_id for found_id in found_ids if found_id not in known_ids),
            None,
        )


def recover_stack(
    session: PulumiSession,
    stack_name: str,
    finder: ObjectFinder,
    listener: Listener,
) -> tuple[ResourceStep, ...]:
    """Make the checkpoint of a stack true again, and return what a dead run had begun.

    Objects that were created are imported by their ids. Updates and deletions are settled by
    reading the objects that they were for.
    """
    files = folder_backend(session.backend)
    if files is not None:
        files.free_dead_locks(stack_name)
        files.restore_checkpoint(stack_name)
    pulumi_stack = session.open_stack(stack_name, create=False)
    if pulumi_stack is None:
        return ()
    deployment = pulumi_stack.export_stack().deployment or {}
    operations = pending_operations(deployment)
    if not operations:
        return ()
    known_ids = resource_ids(deployment)
    refresh_arguments = []
    for operation in operations:
        urn = operation["resource"]["urn"]
        if operation["type"] == "creating":
            found_id = finder.find(operation, known_ids)
            # What was never made is in no state, and cannot be read.
            if found_id is None:
                continue
            refresh_arguments += [
                "--import-pending-creates",
                urn,
                "--import-pending-creates",
                found_id,
            ]
        refresh_arguments += ["--target", urn]
    if refresh_arguments:
        _refresh(session, pulumi_stack, refresh_arguments)
    _clear_pending(pulumi_stack)
    steps = tuple(_step_of(operation) for operation in operations)
    for step in steps:
        listener(ProgressEvent(0.0, step, "found"))
    return steps


def _refresh(
    session: PulumiSession, pulumi_stack: Any, arguments: list[str]
) -> None:
    """Read the objects of some resources; the Automation API has no option for imports."""
    workspace = pulumi_stack.workspace
    environment = dict(workspace.env_vars)
    if workspace.pulumi_home:
        environment["PULUMI_HOME"] = workspace.pulumi_home
    session.command.run(
        [
            "refresh",
            "--yes",
            "--skip-preview",
            "--clear-pending-creates",
            "--color",
            "never",
            "--stack",
            pulumi_stack.name,
            *arguments,
        ],
        workspace.work_dir,
        environment,
    )


def _clear_pending(pulumi_stack: Any) -> None:
    """Drop operations that a refresh leaves: it has read what they were for."""
    exported = pulumi_stack.export_stack()
    if pending_operations(exported.deployment or {}):
        exported.deployment["pending_operations"] = []
        pulumi_stack.import_stack(exported)


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

"""What may be renamed, and what may be taken over: a stack, and an object of somebody else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from planner.errors import MissingError, PolicyError, Problem, UsageError
from providers.resource_type import has_same_name
from stacks.engine.fill import fill_names

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from planner.plan.types import Properties
    from stacks.engine.store import StateStore
    from stacks.graph import Resource


def refuse_rename(
    stack_name: str,
    new_name: str,
    *,
    is_taken: bool,
    pending: Collection[str],
) -> None:
    """Raise UsageError for a name that is taken, and while the end of calls is not known."""
    if is_taken:
        raise UsageError(
            Problem(
                code="stack",
                message=f"there is a stack named {new_name} already",
                next_step="take another name",
            )
        )
    if pending:
        raise UsageError(
            Problem(
                code="stack",
                message=f"a run of {stack_name} was cut off",
                cause=f"it is not known what came of: {', '.join(sorted(pending))}",
                next_step=f"look that up first: tonnage recover {stack_name}",
            )
        )


def move_notes(store: StateStore, stack_name: str, new_name: str) -> None:
    """Let the history of a stack be that of its new name too.

    The plan that was kept names its stack, so it is none of the new name.
    """
    for number, note in enumerate(store.notes(stack_name)):
        store.add_note(new_name, f"0-{number:08d}", note)
    store.forget(stack_name)


def refuse_stranger(
    resource: Resource,
    object_id: str,
    cloud_object: Properties | None,
    fill_text: Callable[[str], str],
) -> None:
    """Raise MissingError without an object, PolicyError for one that is not what a resource is.

    `fill_text` fills the name that a plan gives the resource.
    """
    if cloud_object is None:
        raise MissingError(
            Problem(
                code="object",
                message=f"there is no {object_id}",
                next_step="name the object by the id that the cloud gives it",
            )
        )
    if cloud_object["type"] != resource.type:
        raise PolicyError(
            Problem(
                code="import",
                message=f"{object_id} is a {cloud_object['type']}, "
                f"and {resource.name} a {resource.type}",
                next_step="name the resource that it is to be",
            )
        )
    if not has_same_name(
        resource.type,
        cloud_object["inputs"],
        fill_names(resource.inputs, fill_text),
    ):
        raise PolicyError(
            Problem(
                code="import",
                message=f"{object_id} has another name than the plan gives {resource.name}",
                cause="an object cannot be renamed, so the next apply would make another one",
                next_step="name an object that is called as in the plan",
            )
        )

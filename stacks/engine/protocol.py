"""The Engine protocol: what the commands ask of an engine, and what it tells them meanwhile."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

from msgspec import Struct, field

if TYPE_CHECKING:
    from collections.abc import Callable

    from planner.plan.status import StackStatus
    from planner.plan.types import Plan, Properties

Action: TypeAlias = Literal["same", "create", "update", "replace", "delete"]


class ResourceStep(Struct, frozen=True):
    """What is done to one resource, and why: the properties that changed."""

    action: Action
    type: str
    name: str
    reasons: tuple[str, ...] = ()


class ProgressEvent(Struct, frozen=True):
    """Progress: a step began, was done, or failed; seconds since the start of the run."""

    elapsed_s: float
    step: ResourceStep
    phase: Literal["begin", "done", "failed"]
    detail: str = ""


class EngineOutcome(Struct, frozen=True, kw_only=True):
    """What a run did: steps that changed something, and the outputs of the stack."""

    steps: tuple[ResourceStep, ...]
    outputs: Properties = field(default_factory=dict)
    elapsed_s: float = 0.0


Listener: TypeAlias = "Callable[[ProgressEvent], None]"


class StackEngine(Protocol):
    """Creates, changes, replaces and destroys what a graph says.

    Every method may raise LockedError while another process works on the stack.
    """

    def stack_names(self) -> list[str]:
        """Return the names of all stacks, sorted."""

    def stack_status(self, stack_name: str) -> StackStatus | None:
        """Return the stack as the state has it; nothing when it does not exist."""

    def preview(self, plan: Plan) -> tuple[ResourceStep, ...]:
        """Return what apply would do, in the order of names, without doing it."""

    def apply(self, plan: Plan, listener: Listener) -> EngineOutcome:
        """Make the stack what the plan says.

        A second call changes nothing. What was done is saved step by step, so that a failure
        (ResourceError, CapacityError) loses nothing and the next call goes on from there.
        """

    def destroy(self, stack_name: str, listener: Listener) -> EngineOutcome:
        """Delete everything of the stack, dependents first. Raises MissingError without one."""

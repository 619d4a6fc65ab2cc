"""The Engine protocol: what the commands ask of an engine, and what it tells them meanwhile."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, Protocol, TypeAlias

from msgspec import Struct, field

from stacks.engine.stop import StopRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime
    from decimal import Decimal

    from planner.plan.status import StackStatus
    from planner.plan.types import Plan, Properties
    from providers.simulated.shared import SharedWorld
    from stacks.engine.failure import RefusedCall
    from stacks.engine.store import StateStore
    from stacks.operate.machine import Trouble

# "keep" leaves an object that holds data in the cloud; "adopt" takes it back into the stack.
Action: TypeAlias = Literal[
    "same", "create", "update", "replace", "delete", "keep", "adopt"
]
# What a run may do beside what is always allowed.
Permission: TypeAlias = Literal["delete-data", "drift", "outage", "production"]


class ResourceStep(Struct, frozen=True):
    """What is done to one resource.

    reasons        properties that changed
    deletes_first  the old object goes before new ones come: it has a name that one of them needs,
                   or needs what does
    """

    action: Action
    type: str
    name: str
    reasons: tuple[str, ...] = ()
    deletes_first: bool = False


class ProgressEvent(Struct, frozen=True):
    """Progress of a step; seconds since the start of the run.

    phase  begin, done or failed; retry: it was refused and is tried again; found: an earlier run
           had begun it, and its end was looked up; fallback: a cloud does not have the fleet, so
           another one of the plan is tried; awaits: it waits for what is new to answer; advice: a
           policy pack would have it otherwise, and lets it pass
    """

    elapsed_s: float
    step: ResourceStep
    phase: Literal[
        "begin",
        "done",
        "failed",
        "retry",
        "found",
        "fallback",
        "awaits",
        "advice",
    ]
    detail: str = ""


class DriftedResource(Struct, frozen=True):
    """A resource that is not as the last apply left it.

    kind     gone: somebody has deleted it; changed: somebody has changed it
    details  properties that differ
    """

    kind: Literal["gone", "changed"]
    type: str
    name: str
    details: tuple[str, ...] = ()


class EngineOutcome(Struct, frozen=True, kw_only=True):
    """What a run did: steps that changed something, and the outputs of the stack."""

    steps: tuple[ResourceStep, ...]
    outputs: Properties = field(default_factory=dict)
    elapsed_s: float = 0.0


Listener: TypeAlias = "Callable[[ProgressEvent], None]"
# What machines that live say of their work, by scaling group and handle of the machine.
Lives: TypeAlias = "Mapping[str, Mapping[str, str]]"

# Asks who gives signs of life in a bucket: cloud, name of the bucket, region.
LifeProbe: TypeAlias = "Callable[[str, str, str], Lives]"
# Asks a bucket which machines were given back in trouble since a time.
TroubleProbe: TypeAlias = (
    "Callable[[str, str, str, datetime], Sequence[Trouble]]"
)


def accept_any(status: StackStatus | None) -> None:
    """Accept a stack as it is."""


def see_nobody(
    provider: str,  # noqa: ARG001 - a probe
    bucket: str,  # noqa: ARG001
    region: str,  # noqa: ARG001
) -> Lives:
    """See no machine."""
    return {}


def see_no_trouble(
    provider: str,  # noqa: ARG001 - a probe
    bucket: str,  # noqa: ARG001
    region: str,  # noqa: ARG001
    since: datetime,  # noqa: ARG001
) -> Sequence[Trouble]:
    """See no machine in trouble."""
    return ()


class RunControl(Struct, frozen=True, kw_only=True):
    """What a run has to heed.

    stop   whether it was asked to end
    check  is called with the stack as it is under the lock, and raises where it may not go on
    allow  what it may do beside what is always allowed
    most_usd_hour  fallbacks that cost more are left out, USD an hour; none: no limit
    lives  says which machines of real clouds live and work
    troubles    says which of them were given back in trouble
    first_rung  of a plan that is tried first; none: the one that stands
    """

    stop: StopRequest = field(default_factory=StopRequest)
    check: Callable[[StackStatus | None], None] = accept_any
    allow: frozenset[Permission] = frozenset()
    most_usd_hour: Decimal | None = None
    lives: LifeProbe = see_nobody
    troubles: TroubleProbe = see_no_trouble
    first_rung: int | None = None


UNCONTROLLED: Final = RunControl()


class StackEngine(Protocol):
    """Creates, changes, replaces and destroys what a graph says.

    Every method may raise LockedError while another process works on the stack.
    """

    store: StateStore

    def simulated_world(self) -> SharedWorld | None:
        """The simulated clouds that it works on; none for real ones."""

    def stack_names(self) -> list[str]:
        """Return the names of all stacks, sorted."""

    def stack_status(self, stack_name: str) -> StackStatus | None:
        """Return the stack as the state has it; nothing when it does not exist."""

    def preview(self, plan: Plan) -> tuple[ResourceStep, ...]:
        """Return what apply would do, in the order of names, without doing it."""

    def preflight(self, plan: Plan) -> list[RefusedCall]:
        """Return what would be refused of an apply, as far as the engine itself can tell."""

    def apply(
        self,
        plan: Plan,
        listener: Listener,
        control: RunControl = UNCONTROLLED,
    ) -> EngineOutcome:
        """Make the stack what the plan says.

        A second call changes nothing. Every call to the cloud is written down before it is made,
        so that whatever ends the run (ResourceError, CapacityError, CancelledError, a crash), the
        next one goes on from there. Objects that hold data are left in the cloud, unless
        delete-data is allowed.
        """

    def destroy(
        self,
        stack_name: str,
        listener: Listener,
        control: RunControl = UNCONTROLLED,
    ) -> EngineOutcome:
        """Delete everything of the stack, dependents first. Raises MissingError without one.

        What holds data stays, and the stack with it, unless delete-data is allowed.
        """

    def recover(self, stack_name: str, listener: Listener) -> EngineOutcome:
        """Look up every call whose end is not known. Raises MissingError without a stack."""

    def drift(self, stack_name: str) -> tuple[DriftedResource, ...]:
        """Compare the stack with the cloud, changing neither. Raises MissingError without one."""

    def rename(self, stack_name: str, new_name: str) -> None:
        """Let a stack have another name; in the cloud nothing changes.

        Raises UsageError for a name that another stack has, and while calls are open.
        """

    def take_over(self, plan: Plan, resource_name: str, object_id: str) -> None:
        """Let the next apply take an object as a resource of a plan, instead of making one.

        Raises MissingError without such an object, PolicyError for one of another type or name.
        """

    def object_ids(self, stack_name: str) -> set[str]:
        """Return the ids of everything that is known of a stack, also of what was left."""

    def unlock(self, stack_name: str) -> bool:
        """Free the lock that a dead run has left; return whether there was one.

        Raises LockedError while its holder lives.
        """

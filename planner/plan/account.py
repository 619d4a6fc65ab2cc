"""What a stack has cost, how it is, and what was done with it, as types."""

from __future__ import annotations

from decimal import Decimal  # noqa: TC003 - msgspec reads the annotations
from typing import Literal, TypeAlias

from msgspec import Struct, field

from planner.plan.prepaid import (
    PrepaidMachines,  # noqa: TC001 - msgspec reads the annotations
)

Basis: TypeAlias = Literal["metered", "machines", "plan"]


class StackAccount(Struct, frozen=True, kw_only=True):
    """The cost of a stack.

    age_s     time since the first apply, seconds; none where nobody wrote it down
    usd_hour  what it costs now, USD an hour; none where that is not known
    spent_usd  since the first apply, USD
    planned_usd  what the plan says for that time, USD; none where it ends by itself
    nodes     machines that there are; none where that is not known
    left_s    until the time to live ends, seconds, below 0 afterwards; none without one
    basis     of what it costs now: metered: what there is; machines: those that give signs of
              life; plan: all of it as it was planned
    spent_basis  of what it has cost: metered: hours of what there was; machines: hours for which
              each machine has lived; plan: all of it as it was planned
    prepaid   machines that a person pays for beside the stack: prices count on it that all of
              them were bought as planned
    unbought_usd_hour  what it would cost now had nobody bought them, USD an hour; none where that
              is not known, and where there are none
    """

    age_s: float | None
    usd_hour: Decimal | None
    spent_usd: Decimal | None
    planned_usd: Decimal | None
    nodes: int | None
    left_s: float | None
    basis: Basis
    spent_basis: Basis
    prepaid: tuple[PrepaidMachines, ...] = ()
    unbought_usd_hour: Decimal | None = None

    @property
    def prepaid_text(self) -> str:
        """What is prepaid, such as "1 x g6e.xlarge reserved_3y"; empty for nothing."""
        return ", ".join(part.text for part in self.prepaid)


class GroupHealth(Struct, frozen=True, kw_only=True):
    """The machines of a scaling group that have given a sign of life in the last half hour.

    heard_s  since the newest of these signs, seconds
    """

    group: str
    alive: int
    heard_s: float


class MachineEvent(Struct, frozen=True, kw_only=True):
    """Something that happened to a machine, and the reason that its agent gave.

    at  when, ISO 8601 in UTC
    """

    at: str
    group: str
    machine: str
    outcome: str
    reason: str


class StackHealth(Struct, frozen=True, kw_only=True):
    """How the machines of a stack are.

    lived_hours  of all machines that there were, by scaling group
    problem  why they could not be asked; empty when they could
    """

    groups: tuple[GroupHealth, ...] = ()
    lived_hours: dict[str, float] = field(default_factory=dict)
    events: tuple[MachineEvent, ...] = ()
    problem: str = ""


class PastRun(Struct, frozen=True, kw_only=True):
    """A run of an engine.

    began, ended  when, ISO 8601 in UTC; the end is empty while it runs, and of one that died
    by            who, as user@host
    verb          what was done
    plan          digest of the plan; empty for a destroy
    outcome       done, or the code of the error that ended it; "no end" without one
    changes       how many resources were changed
    usd_hour      what the stack costs afterwards, USD an hour; none where that is not known
    """

    schema: Literal["tonnage.run/1"] = "tonnage.run/1"
    began: str
    ended: str
    by: str
    verb: Literal["apply", "destroy"]
    plan: str
    outcome: str
    changes: int
    usd_hour: Decimal | None = None

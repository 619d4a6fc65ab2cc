"""The plan with which the machines of a stack were well: kept beside its state, to go back to."""

from __future__ import annotations

from datetime import datetime  # noqa: TC003 - msgspec reads the annotations
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from planner.errors import Problem, UsageError
from planner.plan.change import Rolling  # noqa: TC001 - msgspec reads the annotations
from planner.plan.types import Plan  # noqa: TC001
from stacks.engine.state import READ_ERRORS

if TYPE_CHECKING:
    from stacks.engine.store import StateStore


class Roll(Struct, frozen=True, kw_only=True):
    """A new template on its way to the machines of a service.

    plan   digest of the plan that has it
    began  when it was begun
    pools  whose machines are made anew, and how
    old    handles of the machines that lived then, by scaling group
    """

    plan: str
    began: datetime
    pools: tuple[Rolling, ...]
    old: dict[str, tuple[str, ...]]


class KeptPlan(Struct, frozen=True, kw_only=True):
    """What is kept: a plan, the rung on which it stood, and a roll that has begun since."""

    plan: Plan
    rung: int
    roll: Roll | None = None

    def is_before(self, standing: str) -> bool:
        """Whether it is the last one before the plan that stands, or that plan itself.

        A roll that was cut or refused leaves its plan standing, and its machines were never well.
        `standing` is the digest of that plan. What another version applied is not known here.
        """
        rolled = self.roll.plan if self.roll is not None else ""
        return standing in (self.plan.digest, rolled)


def read_kept(store: StateStore, stack_name: str) -> KeptPlan | None:
    """Return what is kept of a stack; nothing where nothing is. Raises UsageError when damaged."""
    content = store.kept(stack_name)
    if content is None:
        return None
    try:
        return msgspec.json.decode(content, type=KeptPlan)
    except READ_ERRORS as read_error:
        raise UsageError(
            Problem(
                code="kept",
                message=f"the plan that is kept of {stack_name} is damaged",
                cause=str(read_error),
                next_step=f"remove {stack_name}.kept beside the states; nothing else needs it",
            )
        ) from read_error


def keep_plan(store: StateStore, kept: KeptPlan) -> None:
    """Keep a plan in place of the one before."""
    content = msgspec.json.encode(kept)
    if store.kept(kept.plan.stack.name) != content:
        store.keep(kept.plan.stack.name, content)

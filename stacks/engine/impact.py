"""What the steps of an engine mean for a plan: changes, outage, data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from planner.plan.types import Changes, ResourceChange
from stacks.engine.keep import held_data
from stacks.engine.rolling import is_machine_group, rolling_pools

if TYPE_CHECKING:
    from collections.abc import Iterable

    from planner.plan.change import Rolling
    from planner.plan.status import StackStatus
    from planner.plan.types import Plan
    from stacks.engine.protocol import Action, ResourceStep

# What brings requests to the machines.
BALANCER_NAME: Final = "balancer"


def changes_of(
    plan: Plan, steps: Iterable[ResourceStep], status: StackStatus
) -> Changes:
    """Return what steps do to a stack that stands."""
    all_steps = tuple(steps)
    rolling = rolling_pools(plan, all_steps, status)
    facts = status.facts
    return Changes(
        create=_changes(all_steps, "create"),
        update=_changes(all_steps, "update"),
        replace=_changes(all_steps, "replace"),
        replace_first=_changes(all_steps, "replace", deletes_first=True),
        delete=_changes(all_steps, "delete"),
        keep=_changes(all_steps, "keep"),
        unchanged=sum(step.action == "same" for step in all_steps),
        outage_s=_outage_s(plan, all_steps, status, rolling),
        rolling=rolling,
        deletes_data=tuple(
            f"{step.name} ({held_data(step.type)})"
            for step in all_steps
            if held_data(step.type)
            and (step.action in ("keep", "delete") or step.deletes_first)
        ),
        empty_data=tuple(
            f"{step.name} ({held_data(step.type)})"
            for step in all_steps
            if held_data(step.type)
            and step.action == "replace"
            and not step.deletes_first
        ),
        usd_before=facts.total if facts else None,
        period_before=facts.cost_period if facts else None,
    )


def _changes(
    steps: tuple[ResourceStep, ...],
    action: Action,
    *,
    deletes_first: bool = False,
) -> tuple[ResourceChange, ...]:
    return tuple(
        ResourceChange(
            type=step.type, name=step.name, reason=", ".join(step.reasons)
        )
        for step in steps
        if step.action == action and step.deletes_first == deletes_first
    )


def _outage_s(
    plan: Plan,
    steps: tuple[ResourceStep, ...],
    status: StackStatus,
    rolling: tuple[Rolling, ...],
) -> int | float:
    """Return the time in which nothing answers, seconds.

    outage = start-up of the slowest new machine, when all old ones go before the new ones answer.
    Machines that are replaced go when the new group stands; whether it answers is not waited for.
    """
    is_serving = status.facts is not None and any(
        pool.role == "serve" for pool in status.facts.pools
    )
    is_replaced = any(
        step.action == "replace"
        and (is_machine_group(step.name) or step.name == BALANCER_NAME)
        for step in steps
    )
    all_roll = any(
        pool.at_once == pool.nodes and pool.peak_share is not None
        for pool in rolling
    )
    if not (is_serving and (is_replaced or all_roll)):
        return 0
    return max((pool.startup_s for pool in plan.solution.pools), default=0)

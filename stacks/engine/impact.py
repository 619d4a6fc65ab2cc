"""What the steps of an engine mean for a plan: changes, outage, data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from planner.plan.change import spec_changes
from planner.plan.types import Changes, ResourceChange
from stacks.engine.handover import handover_of, machines_go
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
    is_serving = facts is not None and any(
        pool.role == "serve" for pool in facts.pools
    )
    place = (plan.graph.provider, plan.graph.region)
    moves = facts is not None and (facts.provider, facts.region) != place
    return Changes(
        create=_changes(all_steps, "create"),
        update=_changes(all_steps, "update"),
        replace=_changes(all_steps, "replace", deletes_first=False),
        replace_first=_changes(all_steps, "replace", deletes_first=True),
        delete=_changes(all_steps, "delete"),
        keep=_changes(all_steps, "keep"),
        unchanged=sum(step.action == "same" for step in all_steps),
        outage_s=_outage_s(plan, all_steps, rolling, moves=moves)
        if is_serving
        else 0,
        new_address=is_serving and moves and _replaces_balancer(all_steps),
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
        is_partial_before=facts.is_partial if facts else False,
        period_before=facts.cost_period if facts else None,
        since=status.started,
        because=spec_changes(facts.spec, plan.spec.normalized)
        if facts and facts.spec
        else (),
    )


def _changes(
    steps: tuple[ResourceStep, ...],
    action: Action,
    *,
    deletes_first: bool | None = None,
) -> tuple[ResourceChange, ...]:
    """Return the steps of an action; `deletes_first` tells replacements apart."""
    return tuple(
        ResourceChange(
            type=step.type, name=step.name, reason=", ".join(step.reasons)
        )
        for step in steps
        if step.action == action and deletes_first in (None, step.deletes_first)
    )


def _outage_s(
    plan: Plan,
    steps: tuple[ResourceStep, ...],
    rolling: tuple[Rolling, ...],
    *,
    moves: bool,
) -> int | float:
    """Return the time in which nothing answers, seconds.

    outage = start-up of the slowest new machine, when all old ones go before the new ones answer.
    """
    groups = [step for step in steps if is_machine_group(step.name)]
    is_awaited = (
        machines_go(steps) and handover_of(plan, moves=moves) is not None
    )
    none_stays = not any(step.action in ("same", "update") for step in groups)
    goes = any(
        step.action == "replace" or (step.action == "delete" and none_stays)
        for step in groups
    )
    goes_unawaited = goes and (
        not is_awaited or any(step.deletes_first for step in groups)
    )
    all_roll = any(
        pool.at_once == pool.nodes and pool.peak_share is not None
        for pool in rolling
    )
    loses_address = not moves and _replaces_balancer(steps)
    if not (goes_unawaited or all_roll or loses_address):
        return 0
    return max((pool.startup_s for pool in plan.solution.pools), default=0)


def _replaces_balancer(steps: tuple[ResourceStep, ...]) -> bool:
    return any(
        step.action == "replace" and step.name == BALANCER_NAME
        for step in steps
    )

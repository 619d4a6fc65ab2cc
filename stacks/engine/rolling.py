"""Machines that are made anew by a new template of their group, some at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from planner.plan.change import Rolling
from stacks.spec.rolling import RECREATE, rolling_rule, work_of

if TYPE_CHECKING:
    from planner.plan.status import StackStatus
    from planner.plan.types import Plan
    from stacks.engine.protocol import ResourceStep
    from stacks.spec.rolling import RollingRule

GROUP_SUFFIX: Final = "-nodes"


def is_machine_group(resource_name: str) -> bool:
    """Whether a resource is a group of machines."""
    return resource_name.endswith(GROUP_SUFFIX)


def goes_first(plan: Plan) -> bool:
    """Whether the spec lets old machines go before new ones come."""
    return bool(plan.spec.normalized.get("update") == RECREATE)


def rolling_pools(
    plan: Plan, steps: tuple[ResourceStep, ...], status: StackStatus
) -> tuple[Rolling, ...]:
    """Return the pools whose running machines are made anew by a new template.

    share of the peak = nodes that stay / (nodes of the plan * share of them that the peak needs)
    """
    facts = status.facts
    if facts is None:
        return ()
    new_pools = {pool.name: pool for pool in plan.solution.pools}
    found = []
    for pool in facts.pools:
        rule = rolling_rule(
            facts.provider,
            work_of(
                pool.role,
                spans_nodes=pool.nodes > pool.replicas > 0,
                recreates=goes_first(plan),
            ),
        )
        rolled_count = sum(
            _rolls(step, pool.name, rule) for step in steps if rule
        )
        if not rolled_count or rule is None or not pool.nodes:
            continue
        # Groups of a pool are about as large, and roll side by side.
        at_once = min(
            pool.nodes,
            rolled_count * rule.nodes_away(-(-pool.nodes // rolled_count)),
        )
        new_pool = new_pools.get(pool.name, pool)
        busy = plan.solution.predicted.get("busy_fraction")
        needed_nodes = new_pool.nodes * (float(busy.value) if busy else 1.0)
        found.append(
            Rolling(
                pool=pool.name,
                nodes=pool.nodes,
                at_once=at_once,
                surge=rolled_count * rule.surge_nodes,
                peak_share=(
                    round(min(1.0, (pool.nodes - at_once) / needed_nodes), 4)
                    if pool.role == "serve" and needed_nodes
                    else None
                ),
            )
        )
    return tuple(found)


def _rolls(step: ResourceStep, pool_name: str, rule: RollingRule) -> bool:
    """Whether a step gives a new template to a group of a pool."""
    return (
        step.action == "update"
        and is_machine_group(step.name)
        and step.name.startswith(f"{pool_name}-")
        and any(reason.startswith(rule.properties) for reason in step.reasons)
    )

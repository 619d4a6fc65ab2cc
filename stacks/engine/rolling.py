"""Machines that are made anew by a new template of their group, some at a time."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from planner.facts import table
from planner.plan.change import Rolling

if TYPE_CHECKING:
    from planner.plan.status import StackStatus
    from planner.plan.types import Plan
    from stacks.engine.protocol import ResourceStep


GROUP_SUFFIX: Final = "-nodes"


def is_machine_group(resource_name: str) -> bool:
    """Whether a resource is a group of machines."""
    return resource_name.endswith(GROUP_SUFFIX)


class RollingRule(Struct, frozen=True, kw_only=True):
    """How a cloud brings a new template to the machines of a group.

    properties     of a group, which hold its template
    share_at_once  of the machines that are away at a time, rounded down
    nodes_at_once  that are away at least; 0 with a share of 0: none is touched
    """

    properties: tuple[str, ...]
    share_at_once: float
    nodes_at_once: int

    def nodes_away(self, nodes: int) -> int:
        """Return how many machines of a group are away at a time."""
        return min(
            nodes, max(self.nodes_at_once, int(nodes * self.share_at_once))
        )


@cache
def rolling_rules() -> dict[str, RollingRule]:
    """Return by cloud how a new template reaches running machines."""
    columns: table.Columns = {
        "cloud": table.nonempty_text,
        "properties": lambda cell: tuple(cell.split("|")),
        "share_at_once": table.real_between(0, 1),
        "nodes_at_once": table.integer_between(0, 1000),
        "meaning": table.nonempty_text,
        **table.SOURCE_COLUMNS,
    }
    return {
        row["cloud"]: RollingRule(
            properties=row["properties"],
            share_at_once=row["share_at_once"],
            nodes_at_once=row["nodes_at_once"],
        )
        for row in table.load_rows("stacks", "rolling.csv", columns)
    }


def rolling_pools(
    plan: Plan, steps: tuple[ResourceStep, ...], status: StackStatus
) -> tuple[Rolling, ...]:
    """Return the pools whose running machines are made anew by a new template.

    share of the peak = nodes that stay / (nodes of the plan * share of them that the peak needs)
    """
    facts = status.facts
    if facts is None:
        return ()
    rule = rolling_rules().get(facts.provider)
    new_pools = {pool.name: pool for pool in plan.solution.pools}
    found = []
    for pool in facts.pools:
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

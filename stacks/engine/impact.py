"""What the steps of an engine mean for a plan: changes, outage, data."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from planner.facts import table
from planner.plan.change import Rolling
from planner.plan.types import Changes, ResourceChange
from stacks.engine.keep import held_data

if TYPE_CHECKING:
    from collections.abc import Iterable

    from planner.plan.status import StackStatus
    from planner.plan.types import Plan
    from stacks.engine.protocol import Action, ResourceStep

# Without these nothing answers: the machines, and what brings requests to them.
SERVING_SUFFIX: Final = "-nodes"
BALANCER_NAME: Final = "balancer"


def is_machine_group(resource_name: str) -> bool:
    """Whether a resource is a group of machines."""
    return resource_name.endswith(SERVING_SUFFIX)


def changes_of(
    plan: Plan, steps: Iterable[ResourceStep], status: StackStatus
) -> Changes:
    """Return what steps do to a stack that stands."""
    all_steps = tuple(steps)
    rolling = _rolling(plan, all_steps, status)
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

    outage = start-up of the slowest new machine, when the old ones go before the new ones come
    """
    is_serving = status.facts is not None and any(
        pool.role == "serve" for pool in status.facts.pools
    )
    goes_first = any(
        step.deletes_first
        and (is_machine_group(step.name) or step.name == BALANCER_NAME)
        for step in steps
    )
    all_roll = any(
        pool.at_once == pool.nodes and pool.peak_share is not None
        for pool in rolling
    )
    if not (is_serving and (goes_first or all_roll)):
        return 0
    return max((pool.startup_s for pool in plan.solution.pools), default=0)


def _rolling(
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

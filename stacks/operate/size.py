"""How many machines the scaling groups of a standing stack have, and how that is changed."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from msgspec import Struct

from planner.errors import MissingError, Problem, UsageError
from planner.solve.capacity import most_nodes
from providers.live.access import cloud_errors
from stacks.spec.stack import GROUP_OUTPUT

if TYPE_CHECKING:
    from collections.abc import Sequence
    from decimal import Decimal

    from planner.plan.pool import Pool
    from planner.plan.status import StackStatus


class GroupSize(Struct, frozen=True, kw_only=True):
    """A scaling group, and how many machines it is to have.

    name            in the plan: that of the pool, with -spot for spot machines
    group           in the cloud
    resource_group  that of the stack, on Azure alone
    most            that it may have when it follows the load; 0 where it does not
    step            machines that work together; the number is a multiple of it
    usd_hour        of one machine
    committed       machines, where all are committed to; a further one costs more. Else 0
    """

    name: str
    group: str
    region: str
    resource_group: str
    nodes: int
    most: int = 0
    step: int
    usd_hour: Decimal
    committed: int = 0

    @property
    def is_beyond_commitment(self) -> bool:
        """Whether it has machines that nobody committed to, at a price that no plan knows."""
        return 0 < self.committed < self.nodes


def planned_sizes(status: StackStatus) -> list[GroupSize]:
    """Return the groups of a stack with the machines that its plan has at the peak.

    Raises UsageError for a stack that is not complete.
    """
    facts = status.facts
    if facts is None:
        raise UsageError(
            Problem(
                code="size",
                message=f"{status.stack} has no machines yet",
                next_step="complete the stack: tonnage apply",
            )
        )
    sizes = []
    for pool in facts.pools:
        for is_spot in (False, True):
            parts = [
                part
                for part in pool.purchases
                if (part.purchase == "spot") == is_spot
            ]
            name = f"{pool.name}-spot" if is_spot else pool.name
            group = status.outputs.get(f"group_{name}".replace("-", "_"))
            if not parts or group is None:
                continue
            sizes.append(
                GroupSize(
                    name=name,
                    group=str(group),
                    region=facts.region,
                    resource_group=str(status.outputs.get(GROUP_OUTPUT, "")),
                    nodes=(nodes := sum(part.nodes for part in parts)),
                    most=most_nodes(nodes, float(pool.elastic.most_share))
                    if pool.elastic is not None
                    else 0,
                    step=_nodes_per_replica(pool),
                    # Which way to buy the next one takes depends on the hour: the dearest.
                    usd_hour=max(part.running_usd_hour for part in parts),
                    committed=nodes if all(part.term for part in parts) else 0,
                )
            )
    return sizes


def find_group(
    sizes: Sequence[GroupSize], stack: str, name: str, nodes: int
) -> GroupSize:
    """Return a group by its name, or the only one. Raises MissingError or UsageError.

    `nodes` is how many machines it shall have.
    """
    names = ", ".join(size.name for size in sizes)
    if not name and len(sizes) != 1:
        raise UsageError(
            Problem(
                code="size",
                message=f"{stack} has {len(sizes)} pools",
                cause=names,
                next_step="name one: --pool NAME",
            )
        )
    for size in sizes:
        if name not in ("", size.name):
            continue
        if nodes % size.step:
            raise UsageError(
                Problem(
                    code="size",
                    message=f"{nodes} machines are no whole replicas of {size.step}",
                    next_step=f"name a multiple of {size.step}",
                )
            )
        return size
    raise MissingError(
        Problem(
            code="size",
            message=f"{stack} has no pool {name}",
            cause=f"its pools: {names}",
            next_step="name one of them: --pool NAME",
        )
    )


def set_size(provider: str, size: GroupSize) -> None:
    """Let a group have so many machines. Raises TonnageError."""
    message = f"the size of {size.name} cannot be set"
    with cloud_errors(provider, message):
        import_module(f"stacks.{provider}.size").set_size(size)


def _nodes_per_replica(pool: Pool) -> int:
    """Return how many machines a replica spans; a job is trained by any number of machines."""
    if pool.role == "train" or pool.nodes <= pool.replicas or not pool.replicas:
        return 1
    return pool.nodes // pool.replicas

"""InfiniBand: the scale set is the isolation boundary, so it must be one placement group.

The interfaces themselves come with the machine type and are not declared.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stacks.stack_spec import lookup_table, stack_error

if TYPE_CHECKING:
    from planner.plan.types import Properties
    from stacks.graph import Resource
    from stacks.stack_spec import StackSpec


def has_infiniband(stack: StackSpec) -> bool:
    """Whether the machines are joined by InfiniBand."""
    return stack.fabric_attached and stack.instance.fabric == "infiniband"


def resources(stack: StackSpec) -> list[Resource]:
    """Nothing is created; a fleet that InfiniBand cannot hold is refused."""
    max_nodes = int(
        lookup_table("limits.csv", "limit", "value")[
            "azure_placement_group_nodes"
        ]
    )
    if has_infiniband(stack) and stack.nodes > max_nodes:
        message = f"{stack.nodes} nodes do not fit one InfiniBand placement group of {max_nodes}"
        raise stack_error(
            message, "split the workload, or ask Azure support for 300"
        )
    return []


def orchestration(stack: StackSpec) -> Properties:
    """How the scale set is run: Uniform in one placement group for InfiniBand, else Flexible.

    Extra machines that are created and deleted again (overprovisioning) would block GPU quota.
    """
    shared_inputs = {
        "platformFaultDomainCount": 1,
        "upgradePolicy": {"mode": "Manual"},
    }
    if has_infiniband(stack):
        return {
            **shared_inputs,
            "orchestrationMode": "Uniform",
            "singlePlacementGroup": True,
            "overprovision": False,
        }
    return {**shared_inputs, "orchestrationMode": "Flexible"}

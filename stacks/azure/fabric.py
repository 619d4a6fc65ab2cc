"""InfiniBand: the scale set is the isolation boundary, so it must be one placement group.

The interfaces themselves come with the machine type and are not declared.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from planner.solve.cloud_rule import max_group_nodes
from stacks.spec.table import stack_error

if TYPE_CHECKING:
    from planner.plan.types import Properties
    from stacks.graph import Resource
    from stacks.spec.fleet import FleetSpec
    from stacks.spec.stack import StackSpec


def has_infiniband(fleet: FleetSpec) -> bool:
    """Whether the machines of a fleet are joined by InfiniBand."""
    return fleet.fabric_attached and fleet.instance.fabric == "infiniband"


def resources(stack: StackSpec) -> list[Resource]:
    """Nothing is created; a fleet that InfiniBand cannot hold is refused."""
    for fleet in stack.fleets:
        if (
            fleet.spans_nodes
            and has_infiniband(fleet)
            and len(fleet.scaling_groups) > 1
        ):
            raise stack_error(
                f"pool {fleet.name} is bought in two ways, and InfiniBand ends at a scale set",
                "buy its nodes in one way",
            )
    for fleet, group in stack.scaling_groups:
        max_nodes = max_group_nodes(
            fleet.instance, spans_nodes=fleet.spans_nodes
        )
        if max_nodes is not None and group.nodes > max_nodes:
            raise stack_error(
                f"{group.nodes} nodes do not fit one InfiniBand placement group of {max_nodes}",
                "split the workload, or ask Azure support for 300",
            )
    return []


def orchestration(fleet: FleetSpec) -> Properties:
    """How the scale set is run: Uniform in one placement group for InfiniBand, else Flexible.

    Extra machines that are created and deleted again (overprovisioning) would block GPU quota.
    """
    if has_infiniband(fleet):
        return {
            "platformFaultDomainCount": 1,
            "orchestrationMode": "Uniform",
            "singlePlacementGroup": True,
            "overprovision": False,
        }
    return {"platformFaultDomainCount": 1, "orchestrationMode": "Flexible"}

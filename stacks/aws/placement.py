"""Where machines are: together in a placement group, spread by zone, or in what is reserved.

A capacity block is bought, its machines come when it begins, and they go before it ends. A
reservation of the stack holds machines of one type in one zone until the stack goes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from stacks.graph import Resource, ref
from stacks.spec.fleet import reservation_resource

if TYPE_CHECKING:
    from planner.plan.types import Properties
    from planner.spec.block import CapacityBlock
    from stacks.spec.fleet import FleetSpec
    from stacks.spec.stack import StackSpec

BLOCK_NAME: Final = "block"


def resources(stack: StackSpec) -> list[Resource]:
    """A group for each fleet whose replicas span nodes, and what is reserved for it."""
    return [
        *(
            _placement_group(stack, fleet)
            for fleet in stack.fleets
            if fleet.is_placed
        ),
        *(
            _bought_block(stack, fleet.block)
            for fleet in stack.fleets
            # One that was bought needs nothing.
            if fleet.block is not None and fleet.block.is_offered
        ),
        *(
            _made_reservation(stack, fleet)
            for fleet in stack.fleets
            if fleet.is_reserved
        ),
    ]


def _placement_group(stack: StackSpec, fleet: FleetSpec) -> Resource:
    return Resource(
        type="aws:ec2/placementGroup:PlacementGroup",
        name=group_resource(fleet),
        inputs={
            "strategy": "cluster",
            "tags": {
                **stack.fleet_tags(fleet),
                "Name": f"{stack.name}-{group_resource(fleet)}",
            },
        },
    )


def _bought_block(stack: StackSpec, block: CapacityBlock) -> Resource:
    return Resource(
        type="aws:ec2/capacityBlockReservation:CapacityBlockReservation",
        name=BLOCK_NAME,
        inputs={
            "capacityBlockOfferingId": block.id,
            "instancePlatform": "Linux/UNIX",
            "tags": stack.tags,
        },
    )


def _made_reservation(stack: StackSpec, fleet: FleetSpec) -> Resource:
    """What keeps the machines of a fleet; those that work together are close to each other."""
    inputs: Properties = {
        "availabilityZone": fleet.zones[0],
        "instanceCount": fleet.nodes,
        "instancePlatform": "Linux/UNIX",
        "instanceType": fleet.instance.instance_type,
        # Machines of others do not take from it, also where they are of the same type.
        "instanceMatchCriteria": "targeted",
        "endDateType": "unlimited",
        "tags": {
            **stack.fleet_tags(fleet),
            "Name": f"{stack.name}-{reservation_resource(fleet)}",
        },
    }
    if fleet.is_placed:
        inputs["placementGroupArn"] = ref(group_resource(fleet), "arn")
    return Resource(
        type="aws:ec2/capacityReservation:CapacityReservation",
        name=reservation_resource(fleet),
        inputs=inputs,
    )


def group_resource(fleet: FleetSpec) -> str:
    """The name of the resource that keeps the nodes of a fleet together."""
    return f"{fleet.name}-together"


def reservation(fleet: FleetSpec) -> Any:
    """What the machines of a fleet are taken from; empty where nothing is reserved."""
    if fleet.is_reserved:
        return ref(reservation_resource(fleet))
    if fleet.block is not None and fleet.block.is_offered:
        return ref(BLOCK_NAME)
    return fleet.reservation

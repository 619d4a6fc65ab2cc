"""Where machines are: together in a placement group, spread by zone, or in a capacity block.

A block is bought, its machines come when it begins, and they go before it ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from stacks.graph import Resource, ref

if TYPE_CHECKING:
    from planner.spec.block import CapacityBlock
    from stacks.spec.fleet import FleetSpec
    from stacks.spec.stack import StackSpec

BLOCK_NAME: Final = "block"


def resources(stack: StackSpec) -> list[Resource]:
    """A group for each fleet whose replicas span nodes, and the purchase of a block."""
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


def group_resource(fleet: FleetSpec) -> str:
    """The name of the resource that keeps the nodes of a fleet together."""
    return f"{fleet.name}-together"


def reservation(fleet: FleetSpec) -> Any:
    """What the machines of a fleet are taken from."""
    if fleet.block is not None and fleet.block.is_offered:
        return ref(BLOCK_NAME)
    return fleet.reservation

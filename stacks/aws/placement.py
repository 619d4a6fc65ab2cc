"""Cluster placement for nodes that hold one replica together; else they are spread by zone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stacks.graph import Resource

if TYPE_CHECKING:
    from stacks.spec.fleet import FleetSpec
    from stacks.spec.stack import StackSpec


def resources(stack: StackSpec) -> list[Resource]:
    """A cluster placement group for each fleet whose replicas span nodes."""
    return [
        Resource(
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
        for fleet in stack.fleets
        if fleet.is_placed
    ]


def group_resource(fleet: FleetSpec) -> str:
    """The name of the resource that keeps the nodes of a fleet together."""
    return f"{fleet.name}-together"

"""Cluster placement for nodes that hold one replica together; else they are spread by zone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stacks.graph import Resource

if TYPE_CHECKING:
    from stacks.stack_spec import StackSpec


def resources(stack: StackSpec) -> list[Resource]:
    """A cluster placement group when a replica spans nodes."""
    if not stack.spans_nodes:
        return []
    placement_inputs = {
        "strategy": "cluster",
        "tags": {**stack.tags, "Name": f"{stack.name}-together"},
    }
    return [
        Resource(
            type="aws:ec2/placementGroup:PlacementGroup",
            name="together",
            inputs=placement_inputs,
        )
    ]

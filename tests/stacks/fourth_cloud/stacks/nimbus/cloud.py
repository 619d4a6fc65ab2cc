"""Nimbus as a cloud on which stacks are built: a net, a shelf for weights, a flock of machines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stacks.cloud import group_outputs
from stacks.graph import Reference, Resource, ref
from stacks.user_data import NodeCloud

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stacks.cloud import Cloud
    from stacks.spec.fleet import FleetSpec
    from stacks.spec.stack import StackSpec
    from stacks.user_data import NodeBoot


class NimbusCloud:
    """Builds the least that a service needs."""

    name = "nimbus"

    def node_cloud(self, stack: StackSpec, fleet: FleetSpec) -> NodeCloud:
        return NodeCloud(
            {"shelf": stack.name}, ("stacks.nimbus.node",), 1_000_000
        )

    def resources(
        self, stack: StackSpec, node_boots: Mapping[str, NodeBoot]
    ) -> list[Resource]:
        return [
            Resource(
                type="nimbus:network:Net",
                name="net",
                inputs={"name": f"{stack.name}-net", "tags": stack.tags},
            ),
            Resource(
                type="nimbus:storage:Shelf",
                name="models",
                inputs={"tags": stack.tags},
            ),
            *(
                Resource(
                    type="nimbus:compute:Flock",
                    name=f"{group.name}-nodes",
                    inputs={
                        "net": ref("net"),
                        "machine": fleet.instance.instance_type,
                        "purchase": "spot" if group.is_spot else "on_demand",
                        "size": group.nodes,
                        "boot": node_boots[group.name].script,
                        "deadline": "${deadline.rfc3339}"
                        if stack.ttl_s
                        else "",
                        "tags": stack.node_tags(fleet, group),
                    },
                    depends_on=("models",),
                )
                for fleet, group in stack.scaling_groups
            ),
        ]

    def outputs(
        self,
        stack: StackSpec,
    ) -> dict[str, Reference]:
        return {**group_outputs(stack), "models": ref("models")}

    def backstop(self, stack: StackSpec) -> str:
        return "the flock ends at its deadline" if stack.ttl_s else ""


CLOUD: Cloud = NimbusCloud()

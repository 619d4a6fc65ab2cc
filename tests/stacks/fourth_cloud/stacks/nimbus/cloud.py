"""Nimbus as a cloud on which stacks are built: a net, a shelf for weights, a flock of machines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stacks.cloud import NodeCommands, group_outputs
from stacks.graph import Reference, Resource, ref

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stacks.cloud import Cloud
    from stacks.spec.fleet import FleetSpec, ScalingGroup
    from stacks.spec.stack import StackSpec


class NimbusCloud:
    """Builds the least that a service needs."""

    name = "nimbus"

    def node_commands(
        self, stack: StackSpec, fleet: FleetSpec, group: ScalingGroup
    ) -> NodeCommands:
        return NodeCommands(
            give_back=f"nimbus leave {stack.group_name(group)}",
            list_peers=f"nimbus peers {stack.name} {fleet.name}",
            fetch_models=f"nimbus copy shelf://{stack.name} /models",
            save_checkpoints=f"nimbus copy /models/checkpoints shelf://{stack.name}",
            list_checkpoints=f"nimbus list shelf://{stack.name}/checkpoints",
            fetch_checkpoint=f'nimbus fetch "shelf://{stack.name}/checkpoints/$1"',
            drop_checkpoint=f'nimbus drop "shelf://{stack.name}/checkpoints/$1"',
            is_done=f'nimbus list "shelf://{stack.name}/checkpoints/done-$1"',
            notice="nimbus notice",
            mount_files="true",
            fill_files="true",
        )

    def resources(
        self, stack: StackSpec, boot_scripts: Mapping[str, str]
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
                        "boot": boot_scripts[group.name],
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

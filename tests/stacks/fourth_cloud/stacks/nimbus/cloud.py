"""Nimbus as a cloud on which stacks are built: a net, a shelf for weights, a flock of machines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stacks.cloud import NodeCommands
from stacks.graph import Reference, Resource, ref

if TYPE_CHECKING:
    from stacks.cloud import Cloud
    from stacks.stack_spec import StackSpec


class NimbusCloud:
    """Builds the least that a service needs."""

    name = "nimbus"

    def node_commands(self, stack: StackSpec) -> NodeCommands:
        return NodeCommands(
            give_back=f"nimbus leave {stack.name}",
            list_peers=f"nimbus peers {stack.name}",
            fetch_models=f"nimbus copy shelf://{stack.name} /models",
            save_checkpoints=f"nimbus copy /models/checkpoints shelf://{stack.name}",
            notice="nimbus notice",
            mount_files="true",
            fill_files="true",
        )

    def resources(self, stack: StackSpec, boot_script: str) -> list[Resource]:
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
            Resource(
                type="nimbus:compute:Flock",
                name="nodes",
                inputs={
                    "net": ref("net"),
                    "machine": stack.instance.instance_type,
                    "purchase": stack.purchase,
                    "size": stack.nodes,
                    "boot": boot_script,
                    "deadline": "${deadline.rfc3339}" if stack.ttl_s else "",
                    "tags": stack.tags,
                },
                depends_on=("models",),
            ),
        ]

    def outputs(
        self,
        stack: StackSpec,
    ) -> dict[str, Reference]:
        return {"group": ref("nodes"), "models": ref("models")}

    def backstop(self, stack: StackSpec) -> str:
        return "the flock ends at its deadline" if stack.ttl_s else ""


CLOUD: Cloud = NimbusCloud()

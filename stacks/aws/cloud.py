"""Amazon Web Services as a cloud on which stacks are built."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stacks.aws import (
    fabric,
    files,
    fleet,
    identity,
    network,
    observe,
    placement,
    shutdown,
    storage,
)

if TYPE_CHECKING:
    from stacks.cloud import Cloud, NodeCommands
    from stacks.graph import Reference, Resource
    from stacks.stack_spec import StackSpec


class AwsCloud:
    """Joins the parts of a stack on Amazon Web Services."""

    name = "aws"

    def node_commands(self, stack: StackSpec) -> NodeCommands:
        """Return what a node says to Amazon Web Services."""
        return fleet.node_commands(stack)

    def resources(self, stack: StackSpec, boot_script: str) -> list[Resource]:
        """Return every resource of the stack."""
        return [
            *network.resources(stack),
            *fabric.resources(stack),
            *placement.resources(stack),
            *storage.resources(stack),
            *files.resources(stack),
            *identity.resources(stack),
            *fleet.resources(stack, boot_script),
            *shutdown.resources(stack),
            *observe.resources(stack),
        ]

    def outputs(self, stack: StackSpec) -> dict[str, Reference]:
        """Return the group, where it answers, and where the weights go."""
        return fleet.outputs(stack)

    def backstop(self, stack: StackSpec) -> str:
        """Say what ends machines from outside."""
        return shutdown.backstop(stack)


CLOUD: Cloud = AwsCloud()

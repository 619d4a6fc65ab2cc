"""The protocol of a cloud: how a stack becomes resources, and what its nodes know of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct

from stacks.graph import ref
from stacks.user_data import NodeCloud

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stacks.graph import Reference, Resource
    from stacks.spec.fleet import FleetSpec
    from stacks.spec.stack import StackSpec
    from stacks.user_data import NodeBoot


class Cloud(Protocol):
    """A cloud on which stacks are built. All methods are pure functions of the stack.

    A cloud knows machines, networks and storage; what runs on the machines is the runtime's.
    """

    @property
    def name(self) -> str:
        """The name of the cloud in the table of clouds."""

    def node_cloud(self, stack: StackSpec, fleet: FleetSpec) -> NodeCloud:
        """Return what a node of a fleet is given of this cloud."""

    def resources(
        self, stack: StackSpec, node_boots: Mapping[str, NodeBoot]
    ) -> list[Resource]:
        """Return every resource of the stack, in any order.

        `node_boots` has by scaling group what its machines are given when they first start.
        The machines of a group are `<group>-nodes`; what belongs to one fleet is named after it,
        so that it stays when others come and go. Every name is unique in the stack, every
        reference names a resource of the list, and everything that can carry tags has the
        stack's. Raises SpecError when the stack cannot be built as asked.
        """

    def outputs(self, stack: StackSpec) -> dict[str, Reference]:
        """Return what a user needs to know of the standing stack, with all `group_outputs`."""

    def backstop(self, stack: StackSpec) -> str:
        """Say in a line what gives machines back when they are wedged; empty when nothing does."""


def group_outputs(stack: StackSpec) -> dict[str, Reference]:
    """Return the name of each scaling group in its cloud, as `group_<group>`."""
    return {
        f"group_{group.name}".replace("-", "_"): ref(
            f"{group.name}-nodes", "name"
        )
        for _, group in stack.scaling_groups
    }


class StackPart(Protocol):
    """A module of a cloud's room that gives some of the resources of a stack."""

    def resources(self, stack: StackSpec) -> list[Resource]:
        """Return the resources of this part."""


class FleetPart(Protocol):
    """The module of a cloud's room that gives its machines."""

    def node_settings(
        self, stack: StackSpec, fleet: FleetSpec
    ) -> dict[str, Any]:
        """Return what a node needs to know to speak to its cloud."""

    def resources(
        self, stack: StackSpec, node_boots: Mapping[str, NodeBoot]
    ) -> list[Resource]:
        """Return the machines, and what they are given when they first start."""

    def outputs(self, stack: StackSpec) -> dict[str, Reference]:
        """Return what a user needs to know of the standing stack."""


class ShutdownPart(StackPart, Protocol):
    """The module of a cloud's room that ends machines from outside."""

    def backstop(self, stack: StackSpec) -> str:
        """Say in a line what gives machines back when they are wedged."""


class JoinedCloud(Struct, frozen=True, kw_only=True):
    """A cloud whose resources are those of the modules of its room."""

    name: str
    user_data_bytes: int
    fleet: FleetPart
    shutdown: ShutdownPart
    parts: tuple[StackPart, ...]

    def node_cloud(self, stack: StackSpec, fleet: FleetSpec) -> NodeCloud:
        """Return what a node of a fleet is given of this cloud."""
        return NodeCloud(
            self.fleet.node_settings(stack, fleet),
            (f"stacks.{self.name}.node",),
            self.user_data_bytes,
        )

    def resources(
        self, stack: StackSpec, node_boots: Mapping[str, NodeBoot]
    ) -> list[Resource]:
        """Return every resource of the stack."""
        return [
            *(
                resource
                for part in (*self.parts, self.shutdown)
                for resource in part.resources(stack)
            ),
            *self.fleet.resources(stack, node_boots),
        ]

    def outputs(self, stack: StackSpec) -> dict[str, Reference]:
        """Return what a user needs to know of the standing stack."""
        return self.fleet.outputs(stack)

    def backstop(self, stack: StackSpec) -> str:
        """Say in a line what gives machines back when they are wedged."""
        return self.shutdown.backstop(stack)

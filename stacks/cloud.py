"""The protocol of a cloud: how a stack becomes resources, and what nodes can say to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from stacks.graph import ref
from stacks.shell import fill_script, without_header

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from stacks.graph import Reference, Resource
    from stacks.spec.fleet import FleetSpec, ScalingGroup
    from stacks.spec.stack import StackSpec


class NodeCommands(Struct, frozen=True, kw_only=True):
    """Shell commands that a node gives to its cloud. Each ends with 0 when it has done its work.

    give_back         ends this node and lowers the wished number of nodes by one
    list_peers        prints the addresses of the running nodes that work together, sorted, one a
                      line: those of the pool in a training job, else of the scaling group
    fetch_models      copies what lies in the stack's bucket to /models, but no checkpoints
    save_checkpoints  copies the checkpoints of this node to the bucket
    list_checkpoints  prints the names of the checkpoints in the bucket, one a line
    fetch_checkpoint  copies the checkpoint whose name is $1 from the bucket
    drop_checkpoint   deletes the checkpoint whose name is $1 from the bucket
    is_done           succeeds once the bucket has the mark that the job named $1 is done
    notice            succeeds once the cloud has said that it takes this machine back
    mount_files       mounts the parallel file system at /data
    fill_files        brings the dataset into it; does nothing where the cloud does so by itself
    """

    give_back: str
    list_peers: str
    fetch_models: str
    save_checkpoints: str
    list_checkpoints: str
    fetch_checkpoint: str
    drop_checkpoint: str
    is_done: str
    notice: str
    mount_files: str
    fill_files: str


def read_node_commands(
    package: str, values: Mapping[str, str | Sequence[str]]
) -> NodeCommands:
    """Fill the commands of a cloud, each from the script of its name in `commands`.

    Raises KeyError for a placeholder that `values` does not fill.
    """
    return NodeCommands(
        **{
            command: without_header(
                fill_script(package, f"commands/{command}.sh", values)
            )
            for command in NodeCommands.__struct_fields__
        }
    )


class Cloud(Protocol):
    """A cloud on which stacks are built. All methods are pure functions of the stack.

    A cloud knows machines, networks and storage; what runs on the machines is the runtime's.
    """

    @property
    def name(self) -> str:
        """The name of the cloud in the table of clouds."""

    def node_commands(
        self, stack: StackSpec, fleet: FleetSpec, group: ScalingGroup
    ) -> NodeCommands:
        """Return what a node of a scaling group says to this cloud."""

    def resources(
        self, stack: StackSpec, boot_scripts: Mapping[str, str]
    ) -> list[Resource]:
        """Return every resource of the stack, in any order.

        `boot_scripts` has by scaling group what its machines run as root when they first start.
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

    def node_commands(
        self, stack: StackSpec, fleet: FleetSpec, group: ScalingGroup
    ) -> NodeCommands:
        """Return what a node of a scaling group says to its cloud."""

    def resources(
        self, stack: StackSpec, boot_scripts: Mapping[str, str]
    ) -> list[Resource]:
        """Return the machines, which run the scripts when they first start."""

    def outputs(self, stack: StackSpec) -> dict[str, Reference]:
        """Return what a user needs to know of the standing stack."""


class ShutdownPart(StackPart, Protocol):
    """The module of a cloud's room that ends machines from outside."""

    def backstop(self, stack: StackSpec) -> str:
        """Say in a line what gives machines back when they are wedged."""


class JoinedCloud(Struct, frozen=True, kw_only=True):
    """A cloud whose resources are those of the modules of its room."""

    name: str
    fleet: FleetPart
    shutdown: ShutdownPart
    parts: tuple[StackPart, ...]

    def node_commands(
        self, stack: StackSpec, fleet: FleetSpec, group: ScalingGroup
    ) -> NodeCommands:
        """Return what a node of a scaling group says to this cloud."""
        return self.fleet.node_commands(stack, fleet, group)

    def resources(
        self, stack: StackSpec, boot_scripts: Mapping[str, str]
    ) -> list[Resource]:
        """Return every resource of the stack."""
        return [
            *(
                resource
                for part in (*self.parts, self.shutdown)
                for resource in part.resources(stack)
            ),
            *self.fleet.resources(stack, boot_scripts),
        ]

    def outputs(self, stack: StackSpec) -> dict[str, Reference]:
        """Return what a user needs to know of the standing stack."""
        return self.fleet.outputs(stack)

    def backstop(self, stack: StackSpec) -> str:
        """Say in a line what gives machines back when they are wedged."""
        return self.shutdown.backstop(stack)

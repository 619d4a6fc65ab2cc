"""The protocol of a runtime: what runs on the machines of a stack."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from planner.plan.types import Launch
    from stacks.cloud import NodeCommands
    from stacks.spec.fleet import FleetSpec, ScalingGroup
    from stacks.spec.stack import StackSpec


class Runtime(Protocol):
    """Turns machines into a service, a training job or a workspace. All methods are pure."""

    name: str

    def boot_script(
        self,
        stack: StackSpec,
        fleet: FleetSpec,
        group: ScalingGroup,
        commands: NodeCommands,
    ) -> str:
        """Return the script that every machine of a group runs as root when it first starts.

        It holds no secret, is at most 16 KiB, and may run again: a second run changes nothing.
        """

    def launch(self, stack: StackSpec) -> Launch | None:
        """Return how the job is started on a cluster of one's own; nothing without a job."""

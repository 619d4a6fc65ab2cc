"""The protocol of a runtime: what runs on the machines of a stack."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from planner.plan.types import Launch
    from stacks.spec.fleet import FleetSpec, ScalingGroup
    from stacks.spec.stack import StackSpec
    from stacks.user_data import NodeBoot, NodeCloud


class Runtime(Protocol):
    """Turns machines into a service, a training job or a workspace. All methods are pure."""

    name: str

    def node_boot(
        self,
        stack: StackSpec,
        fleet: FleetSpec,
        group: ScalingGroup,
        node_cloud: NodeCloud,
    ) -> NodeBoot:
        """Return what the machines of a group are given; the cloud has room for their script.

        It holds no secret, and may run again: a second run changes nothing.
        """

    def launch(self, stack: StackSpec) -> Launch | None:
        """Return how the job is started on a cluster of one's own; nothing without a job."""

"""The runtime of plain machines: units of systemd that run containers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stacks.runtime.vm import boot, launch

if TYPE_CHECKING:
    from planner.plan.types import Launch
    from stacks.runtime.base import Runtime
    from stacks.spec.fleet import FleetSpec, ScalingGroup
    from stacks.spec.stack import StackSpec
    from stacks.user_data import NodeBoot, NodeCloud


class VmRuntime:
    """Machines that serve, train or wait for people by themselves."""

    name = "vm"

    def node_boot(
        self,
        stack: StackSpec,
        fleet: FleetSpec,
        group: ScalingGroup,
        node_cloud: NodeCloud,
    ) -> NodeBoot:
        """Return the script that installs the program of a node."""
        return boot.node_boot(stack, fleet, group, node_cloud)

    def launch(self, stack: StackSpec) -> Launch | None:
        """Return the ranks, variables and arguments of a training job."""
        return launch.training_launch(stack)


RUNTIME: Runtime = VmRuntime()

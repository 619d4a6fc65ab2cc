"""The runtime of plain machines: units of systemd that run containers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stacks.runtime.vm import boot, launch

if TYPE_CHECKING:
    from planner.plan.types import Launch
    from stacks.cloud import NodeCommands
    from stacks.runtime.base import Runtime
    from stacks.spec.fleet import FleetSpec, ScalingGroup
    from stacks.spec.stack import StackSpec


class VmRuntime:
    """Machines that serve, train or wait for people by themselves."""

    name = "vm"

    def boot_script(
        self,
        stack: StackSpec,
        fleet: FleetSpec,
        group: ScalingGroup,
        commands: NodeCommands,
    ) -> str:
        """Return the script of the first boot."""
        return boot.boot_script(stack, fleet, group, commands)

    def launch(self, stack: StackSpec) -> Launch | None:
        """Return the ranks, variables and arguments of a training job."""
        return launch.training_launch(stack)


RUNTIME: Runtime = VmRuntime()

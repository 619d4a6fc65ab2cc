"""Microsoft Azure as far as tonnage reads it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from providers.base import NodeGroup, ProjectIdentity

if TYPE_CHECKING:
    from collections.abc import Mapping

    from planner.plan.types import Properties
    from providers.base import IdentitySource, Provider


class AzureProvider:
    """Reads virtual machine scale sets."""

    name = "azure"

    def identity(self, environment: Mapping[str, str]) -> IdentitySource:  # noqa: ARG002 - there are no projects
        """Return an identity without a project."""
        return ProjectIdentity()

    def node_group(
        self,
        resource_type: str,
        inputs: Properties,
        objects: dict[str, Properties],  # noqa: ARG002 - a scale set names its type itself
        region: str,
    ) -> NodeGroup | None:
        """Return the nodes of a scale set."""
        if resource_type != "azure-native:compute:VirtualMachineScaleSet":
            return None
        sku = inputs["sku"]
        is_spot = inputs["virtualMachineProfile"].get("priority") == "Spot"
        purchase = "spot" if is_spot else "on_demand"
        return NodeGroup(
            (self.name, region, sku["name"], purchase), int(sku["capacity"])
        )


PROVIDER: Provider = AzureProvider()

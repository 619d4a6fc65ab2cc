"""Google Cloud as far as tonnage reads it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from providers.base import NodeGroup

if TYPE_CHECKING:
    from planner.plan.types import Properties
    from providers.base import Provider


class GcpProvider:
    """Reads managed instance groups."""

    name = "gcp"

    def node_group(
        self,
        resource_type: str,
        inputs: Properties,
        objects: dict[str, Properties],
        region: str,
    ) -> NodeGroup | None:
        """Return the nodes of a managed instance group."""
        if (
            resource_type
            != "gcp:compute/instanceGroupManager:InstanceGroupManager"
        ):
            return None
        # The link contains the id of the template; a group has one version.
        template_link = str(inputs["versions"][0]["instanceTemplate"])
        template_inputs: Properties = next(
            (
                cloud_object["inputs"]
                for object_id, cloud_object in objects.items()
                if object_id in template_link
            ),
            {},
        )
        scheduling = template_inputs.get("scheduling") or {}
        is_spot = scheduling.get("provisioningModel") == "SPOT"
        purchase = "spot" if is_spot else "on_demand"
        machine_type = template_inputs.get("machineType", "")
        return NodeGroup(
            (self.name, region, machine_type, purchase),
            int(inputs["targetSize"]),
        )


PROVIDER: Provider = GcpProvider()

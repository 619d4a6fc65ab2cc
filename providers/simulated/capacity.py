"""Number and type of the nodes that a group of machines requests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """The nodes that a group requests.

    offer_key   provider, region, machine type and purchase option
    node_count  requested nodes
    """

    offer_key: tuple[str, str, str, str]
    node_count: int


def node_group(
    resource_type: str,
    inputs: dict[str, Any],
    objects: dict[str, dict[str, Any]],
    region: str,
) -> NodeGroup | None:
    """Return the nodes that a resource requests, or `None` for other resources.

    Groups are Auto Scaling groups, managed instance groups and virtual machine scale sets.
    """
    if resource_type == "aws:autoscaling/group:Group":
        mixed_policy = inputs.get("mixedInstancesPolicy")
        launch_template = inputs.get("launchTemplate") or {}
        # On AWS the stack uses a mixed instances policy for spot only.
        if mixed_policy:
            launch_template = mixed_policy["launchTemplate"][
                "launchTemplateSpecification"
            ]
        template_object = objects.get(
            str(
                launch_template.get("id")
                or launch_template.get("launchTemplateId")
            ),
            {},
        )
        instance_type = template_object.get("inputs", {}).get(
            "instanceType", ""
        )
        purchase = "spot" if mixed_policy else "on_demand"
        return NodeGroup(
            ("aws", region, instance_type, purchase),
            int(inputs["desiredCapacity"]),
        )
    if resource_type == "gcp:compute/instanceGroupManager:InstanceGroupManager":
        # The link contains the id of the template; a group has one version.
        template_link = str(inputs["versions"][0]["instanceTemplate"])
        template_object = next(
            (
                cloud_object
                for object_id, cloud_object in objects.items()
                if object_id in template_link
            ),
            {},
        )
        instance_type = template_object.get("inputs", {}).get("machineType", "")
        provisioning_model = (
            template_object.get("inputs", {})
            .get("scheduling", {})
            .get("provisioningModel")
        )
        purchase = "spot" if provisioning_model == "SPOT" else "on_demand"
        return NodeGroup(
            ("gcp", region, instance_type, purchase), int(inputs["targetSize"])
        )
    if resource_type == "azure-native:compute:VirtualMachineScaleSet":
        # A scale set states its machine type itself.
        machine_sku = inputs["sku"]
        is_spot = inputs["virtualMachineProfile"].get("priority") == "Spot"
        purchase = "spot" if is_spot else "on_demand"
        return NodeGroup(
            ("azure", region, machine_sku["name"], purchase),
            int(machine_sku["capacity"]),
        )
    return None

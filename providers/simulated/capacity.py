"""How many nodes of which type a group of machines asks for, read from its inputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Fleet:
    """The nodes of a group; `key` is provider, region, instance type and purchase."""

    key: tuple[str, str, str, str]
    nodes: int


def fleet(
    kind: str,
    inputs: dict[str, Any],
    objects: dict[str, dict[str, Any]],
    region: str,
) -> Fleet | None:
    """Return the fleet of an Auto Scaling group, a managed group or a scale set."""
    if kind == "aws:autoscaling/group:Group":
        mixed = inputs.get("mixedInstancesPolicy")
        launch = inputs.get("launchTemplate") or {}
        if mixed:
            launch = mixed["launchTemplate"]["launchTemplateSpecification"]
        template = objects.get(
            str(launch.get("id") or launch.get("launchTemplateId")), {}
        )
        machine = template.get("inputs", {}).get("instanceType", "")
        purchase = "spot" if mixed else "on_demand"
        return Fleet(
            ("aws", region, machine, purchase), int(inputs["desiredCapacity"])
        )
    if kind == "gcp:compute/instanceGroupManager:InstanceGroupManager":
        link = str(inputs["versions"][0]["instanceTemplate"])
        template = next((o for key, o in objects.items() if key in link), {})
        machine = template.get("inputs", {}).get("machineType", "")
        model = (
            template.get("inputs", {})
            .get("scheduling", {})
            .get("provisioningModel")
        )
        purchase = "spot" if model == "SPOT" else "on_demand"
        return Fleet(
            ("gcp", region, machine, purchase), int(inputs["targetSize"])
        )
    if kind == "azure-native:compute:VirtualMachineScaleSet":
        sku = inputs["sku"]
        spot = inputs["virtualMachineProfile"].get("priority") == "Spot"
        purchase = "spot" if spot else "on_demand"
        return Fleet(
            ("azure", region, sku["name"], purchase), int(sku["capacity"])
        )
    return None

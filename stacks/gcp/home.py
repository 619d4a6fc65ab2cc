"""The disks that users of a workspace keep; the role of the machines lets them attach disks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stacks.gcp import network, storage
from stacks.graph import Resource
from stacks.spec.stack import POOL_TAG

if TYPE_CHECKING:
    from stacks.spec.stack import StackSpec

DISK_TYPE = "pd-balanced"


def resources(stack: StackSpec) -> list[Resource]:
    """A disk for each user, in the zone of the machines."""
    return [
        Resource(
            type="gcp:compute/disk:Disk",
            name=name,
            inputs={
                "name": disk_name,
                "zone": network.fleet_zone(fleet),
                "size": fleet.home_gb,
                "type": DISK_TYPE,
                "labels": {
                    **storage.resource_labels(stack),
                    **storage.labels_of({POOL_TAG: fleet.name}),
                },
            },
        )
        for (name, fleet), disk_name in zip(
            stack.homes.items(), disk_names(stack), strict=True
        )
    ]


def disk_names(stack: StackSpec) -> list[str]:
    """The names by which machines ask for the disks."""
    return [f"{stack.name}-{name}" for name in stack.homes]

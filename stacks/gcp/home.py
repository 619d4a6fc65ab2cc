"""The disks that users of a workspace keep; the role of the machines lets them attach disks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stacks.gcp import network, storage
from stacks.graph import Resource, ref
from stacks.spec.stack import POOL_TAG
from stacks.spec.table import lookup_table

if TYPE_CHECKING:
    from stacks.spec.stack import StackSpec

# Which disks machines take, where they do not take all.
DEFAULT_DISK_TYPE: Final = "pd-balanced"
PERMISSIONS: Final = (
    "compute.disks.get",
    "compute.disks.use",
    "compute.instances.attachDisk",
)


def resources(stack: StackSpec) -> list[Resource]:
    """A disk for each user, in the zone of the machines, and the role that attaches them."""
    if not stack.homes:
        return []
    return [
        Resource(
            type="gcp:projects/iAMCustomRole:IAMCustomRole",
            name="home-role",
            inputs={
                "roleId": f"tonnage_{stack.short_name.replace('-', '_')}_home",
                "title": f"{stack.name}: to attach the disks that are kept",
                "stage": "GA",
                "permissions": list(PERMISSIONS),
            },
        ),
        Resource(
            type="gcp:projects/iAMMember:IAMMember",
            name="node-home",
            inputs={
                "project": "${project}",
                "role": ref("home-role", "name"),
                "member": ref("node-account", "member"),
                "condition": {
                    "title": "machines and disks of the stack",
                    "expression": _own_names(stack),
                },
            },
        ),
        *(
            Resource(
                type="gcp:compute/disk:Disk",
                name=name,
                inputs={
                    "name": disk_name,
                    "zone": network.fleet_zone(fleet),
                    "size": fleet.home_gb,
                    "type": disk_type(fleet.instance.instance_type),
                    **storage.disk_key(stack),
                    "labels": {
                        **storage.resource_labels(stack),
                        **storage.labels_of({POOL_TAG: fleet.name}),
                    },
                },
                # A disk with files keeps the size and the key that it was made with.
                options={
                    "ignore_changes": [
                        "diskEncryptionKey",
                        "size",
                        "type",
                    ]
                },
            )
            for (name, fleet), disk_name in zip(
                stack.homes.items(), disk_names(stack), strict=True
            )
        ),
    ]


def _own_names(stack: StackSpec) -> str:
    """The condition, in the language of Google, that a machine or a disk is of the stack."""
    return " || ".join(
        f'resource.name.extract("{kind}/{{name}}").startsWith("{stack.name}-")'
        for kind in ("disks", "instances")
    )


def disk_type(machine_type: str) -> str:
    """The type of disk that a machine takes."""
    for family, family_disk in lookup_table(
        "boot_disks.csv", "family", "disk"
    ).items():
        if machine_type.startswith(family):
            return family_disk
    return DEFAULT_DISK_TYPE


def disk_names(stack: StackSpec) -> list[str]:
    """The names by which machines ask for the disks."""
    return [f"{stack.name}-{name}" for name in stack.homes]


def prerequisites(stack: StackSpec) -> tuple[str, ...]:
    """What a machine attaches, and must leave before it is deleted."""
    return (*stack.homes, "node-home") if stack.homes else ()

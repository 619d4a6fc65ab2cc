"""The disks that users of a workspace keep, and the right of machines to attach them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stacks.azure import placement
from stacks.azure.identity import common_inputs, custom_role, role_grant
from stacks.graph import Resource, ref

if TYPE_CHECKING:
    from planner.plan.types import Properties
    from stacks.spec.stack import StackSpec

PERMISSIONS = (
    "Microsoft.Compute/disks/read",
    "Microsoft.Compute/disks/write",
    "Microsoft.Compute/virtualMachines/attachDetachDataDisks/action",
    "Microsoft.Compute/virtualMachineScaleSets/virtualMachines/attachDetachDataDisks/action",
)


def _key_inputs(stack: StackSpec) -> Properties:
    """What brings the key of the customer to a disk; nothing where that of Azure does."""
    if not stack.customer_key:
        return {}
    return {
        "encryption": {
            "type": "EncryptionAtRestWithCustomerKey",
            "diskEncryptionSetId": stack.customer_key,
        }
    }


def resources(stack: StackSpec) -> list[Resource]:
    """A disk for each user, where the machines are."""
    if not stack.homes:
        return []
    disks = []
    for (name, fleet), disk_name in zip(
        stack.homes.items(), disk_names(stack), strict=True
    ):
        zone_inputs = placement.zone_inputs(fleet)
        # The newer kind of disk is one of a zone.
        kind = "PremiumV2_LRS" if zone_inputs else "Premium_LRS"
        disks.append(
            Resource(
                type="azure-native:compute:Disk",
                name=name,
                inputs={
                    **common_inputs(stack),
                    **zone_inputs,
                    "diskName": disk_name,
                    "diskSizeGB": fleet.home_gb,
                    "creationData": {"createOption": "Empty"},
                    "sku": {"name": kind},
                    **_key_inputs(stack),
                },
                # A disk with files keeps the size and the key that it was made with.
                options={
                    "ignore_changes": [
                        "diskSizeGB",
                        "encryption",
                        "sku",
                    ],
                    # Azure changes no zone, and its provider would ask it to.
                    "replace_on_changes": ["zones"],
                },
            )
        )
    return [
        *disks,
        custom_role(
            stack,
            "home",
            "lets nodes attach the disks that are kept",
            PERMISSIONS,
        ),
        role_grant(
            stack,
            "node-home",
            ref("group"),
            ref("home-role"),
            "node-identity",
        ),
    ]


def disk_names(stack: StackSpec) -> list[str]:
    """The names by which machines ask for the disks."""
    return [f"{stack.name}-{name}" for name in stack.homes]


def prerequisites(stack: StackSpec) -> tuple[str, ...]:
    """What a machine attaches, and must leave before it is deleted."""
    return (*stack.homes, "node-home") if stack.homes else ()

"""The parallel file system of a training job: Azure Managed Lustre in a subnet of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from stacks.azure.identity import SUBNET_POLICIES, common_inputs
from stacks.graph import Resource, ref
from stacks.spec.table import stack_error

if TYPE_CHECKING:
    from planner.plan.types import Properties
    from stacks.spec.stack import StackSpec

FILES_END: Final = "16.0/22"  # of up to 400 TiB
IMMUTABLE_INPUTS: Final = [
    "sku",
    "storageCapacityTiB",
    "zones",
    "filesystemSubnet",
]


def resources(stack: StackSpec) -> list[Resource]:
    """The subnet and the file system; it is in one zone, and so are its nodes."""
    job_fleet = stack.job_fleet
    if stack.file_system is None or job_fleet is None:
        return []
    if stack.given_network is not None:
        raise stack_error(
            "Azure Managed Lustre needs a subnet, which tonnage makes in no network of others",
            "read the data from objects: data: {storage: object}",
        )
    if stack.has_addresses:
        raise stack_error(
            "Azure Managed Lustre goes out by a NAT, and this stack has none",
            "read the data from objects (data: {storage: object}), or leave "
            "network.public_addresses out",
        )
    zone_inputs = {"zones": list(job_fleet.zones)} if job_fleet.zones else {}
    return [
        Resource(
            type="azure-native:network:Subnet",
            name="files-subnet",
            inputs={
                "resourceGroupName": ref("group", "name"),
                "virtualNetworkName": ref("network", "name"),
                "subnetName": "files",
                "addressPrefix": stack.addresses(FILES_END),
                "defaultOutboundAccess": False,
                # The service speaks to other services of Azure from this subnet.
                "natGateway": {"id": ref("nat")},
                **SUBNET_POLICIES,
            },
            depends_on=("subnet",),
        ),
        Resource(
            type="azure-native:storagecache:AmlFilesystem",
            name="data-files",
            inputs={
                "amlFilesystemName": file_system_name(stack),
                "filesystemSubnet": ref("files-subnet"),
                "sku": {
                    "name": f"AMLFS-Durable-Premium-{stack.file_system.mb_s_per_tib}"
                },
                "storageCapacityTiB": stack.file_system.capacity_gib // 1024,
                "maintenanceWindow": {
                    "dayOfWeek": "Sunday",
                    "timeOfDayUTC": "03:00",
                },
                **zone_inputs,
                **common_inputs(stack),
            },
            options={"replace_on_changes": IMMUTABLE_INPUTS},
        ),
    ]


def security_rules(stack: StackSpec) -> list[Properties]:
    """Servers of the file system open connections to its clients too."""
    return (
        []
        if stack.file_system is None
        else [
            {
                "name": "files",
                "priority": 105,
                "direction": "Inbound",
                "access": "Allow",
                "protocol": "Tcp",
                "sourceAddressPrefix": stack.addresses(FILES_END),
                "sourcePortRange": "*",
                "destinationAddressPrefix": "*",
                "destinationPortRange": "988",
            }
        ]
    )


def prerequisites(stack: StackSpec) -> tuple[str, ...]:
    """What must exist before nodes are paid for."""
    return ("data-files",) if stack.file_system is not None else ()


def file_system_name(stack: StackSpec) -> str:
    """Return the name of the file system of a stack."""
    return f"{stack.name}-data"


def dataset_url(dataset_uri: str) -> str:
    """abfss://container@account.dfs.core.windows.net/path as azcopy takes it."""
    location_parts = urlsplit(dataset_uri)
    return f"https://{location_parts.hostname}/{location_parts.username}{location_parts.path}".rstrip(
        "/"
    )

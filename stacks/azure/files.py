"""The parallel file system of a training job: Azure Managed Lustre in a subnet of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from stacks.azure.identity import common_inputs
from stacks.graph import Resource, ref

if TYPE_CHECKING:
    from planner.plan.types import Properties
    from stacks.stack_spec import StackSpec

FILES_CIDR: Final = "10.42.16.0/22"  # of up to 400 TiB
IMMUTABLE_INPUTS: Final = [
    "sku",
    "storageCapacityTiB",
    "zones",
    "filesystemSubnet",
]
MOUNT_SCRIPT: Final = """
command -v mount.lustre || {{
  curl -fsSL https://packages.microsoft.com/keys/microsoft.asc \\
    | gpg --dearmor > /usr/share/keyrings/amlfs.gpg
  release=$(lsb_release -cs)
  echo "deb [arch=amd64 signed-by=/usr/share/keyrings/amlfs.gpg] \\
https://packages.microsoft.com/repos/amlfs-$release/ $release main" \\
    > /etc/apt/sources.list.d/amlfs.list
  apt-get update -q
  newest=$(apt-cache pkgnames amlfs-lustre-client | sort -V | tail -n 1)
  apt-get install -qy "$newest=$(uname -r)"
}}
az login --identity --only-show-errors >/dev/null
mount -t lustre -o noatime,flock "$(az resource show --resource-group {group} --name {name} \\
  --resource-type Microsoft.StorageCache/amlFilesystems \\
  --query properties.clientInfo.mgsAddress --output tsv)@tcp:/lustrefs" /data"""


def resources(stack: StackSpec) -> list[Resource]:
    """The subnet and the file system; it is in one zone, and so are its nodes."""
    if stack.file_system is None:
        return []
    zone_inputs = {"zones": list(stack.zones[:1])} if stack.zones else {}
    return [
        Resource(
            type="azure-native:network:Subnet",
            name="files-subnet",
            inputs={
                "resourceGroupName": ref("group", "name"),
                "virtualNetworkName": ref("network", "name"),
                "subnetName": "files",
                "addressPrefix": FILES_CIDR,
                "defaultOutboundAccess": False,
            },
            depends_on=("subnet",),
        ),
        Resource(
            type="azure-native:storagecache:AmlFilesystem",
            name="data-files",
            inputs={
                "amlFilesystemName": _file_system_name(stack),
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
                "sourceAddressPrefix": FILES_CIDR,
                "sourcePortRange": "*",
                "destinationAddressPrefix": "*",
                "destinationPortRange": "988",
            }
        ]
    )


def prerequisites(stack: StackSpec) -> tuple[str, ...]:
    """What must exist before nodes are paid for."""
    return ("data-files",) if stack.file_system is not None else ()


def mount_command(stack: StackSpec) -> str:
    """How a node mounts it."""
    resource_group = f"{stack.name}-{stack.digest}"
    return MOUNT_SCRIPT.format(
        group=resource_group, name=_file_system_name(stack)
    )


def fill_command(stack: StackSpec) -> str:
    """How the first node copies the dataset into it."""
    copy_command = (
        "AZCOPY_AUTO_LOGIN_TYPE=MSI azcopy copy "
        f"'{_dataset_url(stack.dataset_uri)}/*' /data/dataset"
    )
    return f"mkdir -p /data/dataset && {copy_command} --recursive"


def _file_system_name(stack: StackSpec) -> str:
    return f"{stack.name}-data"


def _dataset_url(dataset_uri: str) -> str:
    """abfss://container@account.dfs.core.windows.net/path as azcopy takes it."""
    location_parts = urlsplit(dataset_uri)
    return f"https://{location_parts.hostname}/{location_parts.username}{location_parts.path}".rstrip(
        "/"
    )

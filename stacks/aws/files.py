"""The parallel file system of a training job, in the zone of its nodes, linked to the dataset."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stacks.aws import network
from stacks.graph import Resource, ref

if TYPE_CHECKING:
    from stacks.stack_spec import StackSpec

# The address is known only once it exists, so nodes look it up by the tag of the stack.
MOUNT_SCRIPT = """
command -v mount.lustre || {{
  keys=https://fsx-lustre-client-repo-public-keys.s3.amazonaws.com
  curl -fsSL $keys/fsx-ubuntu-public-key.asc | gpg --dearmor > /usr/share/keyrings/fsx.gpg
  echo "deb [signed-by=/usr/share/keyrings/fsx.gpg] \\
https://fsx-lustre-client-repo.s3.amazonaws.com/ubuntu $(lsb_release -cs) main" \\
    > /etc/apt/sources.list.d/fsx.list
  apt-get update -q && apt-get install -qy lustre-client-modules-$(uname -r)
}}
read -r host name <<< "$(aws --region {region} fsx describe-file-systems --output text --query \\
  "FileSystems[?Tags[?Key=='tonnage-stack'&&Value=='{stack}']]|[0]\
.[DNSName,LustreConfiguration.MountName]")"
mount -t lustre -o relatime,flock "$host@tcp:/$name" /data"""


def resources(stack: StackSpec) -> list[Resource]:
    """The file system, and what loads objects of the dataset when they are first read."""
    if stack.file_system is None:
        return []
    resource_tags = {**stack.tags, "Name": f"{stack.name}-data"}
    file_resources = [
        Resource(
            type="aws:fsx/lustreFileSystem:LustreFileSystem",
            name="data-files",
            inputs={
                "deploymentType": "PERSISTENT_2",
                "storageType": "SSD",
                "storageCapacity": stack.file_system.capacity_gib,
                "perUnitStorageThroughput": stack.file_system.mb_s_per_tib,
                "fileSystemTypeVersion": "2.15",
                "dataCompressionType": "LZ4",
                "subnetIds": network.subnet_refs(stack)[0],
                "securityGroupIds": [ref("nodes-group")],
                "tags": resource_tags,
            },
            depends_on=("nodes-in", "nodes-out"),
        )
    ]
    if stack.dataset_linked:
        file_resources.append(
            Resource(
                type="aws:fsx/dataRepositoryAssociation:DataRepositoryAssociation",
                name="data-source",
                inputs={
                    "fileSystemId": ref("data-files"),
                    "fileSystemPath": "/dataset",
                    "dataRepositoryPath": stack.dataset_uri,
                    "batchImportMetaDataOnCreate": True,
                    "tags": resource_tags,
                },
            )
        )
    return file_resources


def prerequisites(stack: StackSpec) -> tuple[str, ...]:
    """What must exist before nodes are paid for."""
    return tuple(resource.name for resource in resources(stack))


def mount_command(stack: StackSpec) -> str:
    """How a node mounts it."""
    return MOUNT_SCRIPT.format(region=stack.region, stack=stack.name)


def fill_command(stack: StackSpec) -> str:  # noqa: ARG001 - the same in each cloud
    """Objects of the dataset come by themselves when they are first read."""
    return "true"

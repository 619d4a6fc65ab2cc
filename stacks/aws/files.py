"""The parallel file system of a training job, in the zone of its nodes, linked to the dataset."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stacks.aws import network
from stacks.graph import Resource, ref

if TYPE_CHECKING:
    from stacks.site import Site

# The address is known only once it exists, so nodes look it up by the tag of the stack.
MOUNT = """
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


def resources(site: Site) -> list[Resource]:
    """The file system, and what loads objects of the dataset when they are first read."""
    if site.files is None:
        return []
    tags = {**site.tags, "Name": f"{site.name}-data"}
    found = [
        Resource(
            type="aws:fsx/lustreFileSystem:LustreFileSystem",
            name="data-files",
            inputs={
                "deploymentType": "PERSISTENT_2",
                "storageType": "SSD",
                "storageCapacity": site.files.gib,
                "perUnitStorageThroughput": site.files.mb_s_tib,
                "fileSystemTypeVersion": "2.15",
                "dataCompressionType": "LZ4",
                "subnetIds": network.subnets(site)[0],
                "securityGroupIds": [ref("nodes-group")],
                "tags": tags,
            },
            depends_on=("nodes-in", "nodes-out"),
        )
    ]
    if site.linked:
        found.append(
            Resource(
                type="aws:fsx/dataRepositoryAssociation:DataRepositoryAssociation",
                name="data-source",
                inputs={
                    "fileSystemId": ref("data-files"),
                    "fileSystemPath": "/dataset",
                    "dataRepositoryPath": site.location,
                    "batchImportMetaDataOnCreate": True,
                    "tags": tags,
                },
            )
        )
    return found


def ready(site: Site) -> tuple[str, ...]:
    """What must exist before nodes are paid for."""
    return tuple(r.name for r in resources(site))


def commands(site: Site) -> dict[str, str]:
    """How a node mounts it; objects come by themselves."""
    return {
        "mount": MOUNT.format(region=site.region, stack=site.name),
        "fill": "true",
    }

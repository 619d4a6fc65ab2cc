"""The parallel file system of a training job, in the zone of its nodes, linked to the dataset."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stacks.aws import identity, network
from stacks.graph import Resource, ref

if TYPE_CHECKING:
    from stacks.spec.stack import StackSpec


def resources(stack: StackSpec) -> list[Resource]:
    """The file system, and what loads objects of the dataset when they are first read."""
    job_fleet = stack.job_fleet
    if stack.file_system is None or job_fleet is None:
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
                "subnetIds": network.subnets(stack, [job_fleet])[0],
                "securityGroupIds": [ref("nodes-group")],
                **identity.key_inputs(stack),
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

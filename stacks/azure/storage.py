"""The storage account of the model weights: no public blobs and no keys, only signed-in callers.

It is reachable from outside, or nobody could upload weights; roles decide who may.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stacks.azure.identity import common
from stacks.graph import Resource, ref

if TYPE_CHECKING:
    from stacks.site import Site


def account(site: Site) -> str:
    """Its name: 3 to 24 of a-z and 0-9, unique in the world."""
    letters = "".join(c for c in site.name if c.isalnum())[:14]
    return f"{letters}{site.digest}"


def _lifecycle() -> Resource:
    """Checkpoints are kept for a month; what is to stay is copied elsewhere in the container."""
    old = {"delete": {"daysAfterModificationGreaterThan": 30}}
    rule = {
        "name": "checkpoints",
        "type": "Lifecycle",
        "enabled": True,
        "definition": {
            "actions": {"baseBlob": old},
            "filters": {
                "blobTypes": ["blockBlob"],
                "prefixMatch": ["models/checkpoints/"],
            },
        },
    }
    return Resource(
        type="azure-native:storage:ManagementPolicy",
        name="checkpoints-expire",
        inputs={
            "resourceGroupName": ref("group", "name"),
            "accountName": ref("store", "name"),
            "managementPolicyName": "default",
            "policy": {"rules": [rule]},
        },
    )


def resources(site: Site) -> list[Resource]:
    """The account and its container."""
    if site.layout is None:
        return []
    rules = {
        "defaultAction": "Allow",
        "bypass": "AzureServices",
        "virtualNetworkRules": [
            {"virtualNetworkResourceId": ref("subnet"), "action": "Allow"}
        ],
    }
    return [
        *([_lifecycle()] if site.trains else []),
        Resource(
            type="azure-native:storage:StorageAccount",
            name="store",
            inputs={
                "accountName": account(site),
                "kind": "StorageV2",
                "sku": {"name": "Standard_LRS"},
                "allowBlobPublicAccess": False,
                "allowSharedKeyAccess": False,
                "minimumTlsVersion": "TLS1_2",
                "enableHttpsTrafficOnly": True,
                "networkRuleSet": rules,
                **common(site),
            },
        ),
        Resource(
            type="azure-native:storage:BlobContainer",
            name="models",
            inputs={
                "resourceGroupName": ref("group", "name"),
                "accountName": ref("store", "name"),
                "containerName": "models",
                "publicAccess": "None",
            },
        ),
    ]

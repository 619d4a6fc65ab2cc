"""The storage account of the model weights: no public blobs and no keys, only signed-in callers.

It is reachable from outside, or nobody could upload weights; roles decide who may.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stacks.azure.identity import common_inputs
from stacks.graph import Resource, ref
from stacks.runtime.vm.node.unique import unique_place

if TYPE_CHECKING:
    from planner.plan.types import Properties
    from planner.spec.encryption import StoreKey
    from stacks.spec.stack import StackSpec


def account_name(stack: StackSpec) -> str:
    """Its name: 3 to 24 of a-z and 0-9, unique in the world."""
    name_letters = "".join(letter for letter in stack.name if letter.isalnum())[
        :14
    ]
    return f"{name_letters}{unique_place(stack.digest)}"


def _checkpoint_expiry(stack: StackSpec) -> Resource:
    """Checkpoints go a month after the run, unless the stack is protected.

    The rule stands in both cases: what would be taken away may be kept beside its account.
    """
    delete_action = {
        "delete": {
            "daysAfterModificationGreaterThan": stack.checkpoint_expiry_days
        }
    }
    expiry_rule = {
        "name": "checkpoints",
        "type": "Lifecycle",
        "enabled": stack.expires_checkpoints,
        "definition": {
            "actions": {"baseBlob": delete_action},
            "filters": {
                "blobTypes": ["blockBlob"],
                "prefixMatch": ["work/checkpoints/"],
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
            "policy": {"rules": [expiry_rule]},
        },
    )


def _key_inputs(key: StoreKey | None) -> Properties:
    """What brings the key of the customer to the account; nothing where that of Azure does.

    Without a version the account takes each new one by itself.
    """
    if key is None:
        return {}
    return {
        "identity": {
            "type": "UserAssigned",
            "userAssignedIdentities": [key.identity],
        },
        "encryption": {
            "keySource": "Microsoft.Keyvault",
            "keyVaultProperties": {
                "keyVaultUri": key.vault,
                "keyName": key.name,
            },
            "encryptionIdentity": {
                "encryptionUserAssignedIdentity": key.identity
            },
        },
    }


def resources(stack: StackSpec) -> list[Resource]:
    """The account and its containers."""
    network_rules: Properties = {
        "defaultAction": "Allow",
        "bypass": "AzureServices",
    }
    # A subnet that there is already may have no way of its own to storage.
    if stack.given_network is None:
        network_rules["virtualNetworkRules"] = [
            {"virtualNetworkResourceId": ref("subnet"), "action": "Allow"}
        ]
    return [
        *([_checkpoint_expiry(stack)] if stack.is_training else []),
        Resource(
            type="azure-native:storage:StorageAccount",
            name="store",
            inputs={
                "accountName": account_name(stack),
                "kind": "StorageV2",
                "sku": {"name": "Standard_LRS"},
                "allowBlobPublicAccess": False,
                "allowSharedKeyAccess": False,
                "minimumTlsVersion": "TLS1_2",
                "enableHttpsTrafficOnly": True,
                "networkRuleSet": network_rules,
                **_key_inputs(stack.store_key),
                **common_inputs(stack),
            },
        ),
        # Nodes read the one and write the other.
        *(
            Resource(
                type="azure-native:storage:BlobContainer",
                name=container,
                inputs={
                    "resourceGroupName": ref("group", "name"),
                    "accountName": ref("store", "name"),
                    "containerName": container,
                    "publicAccess": "None",
                },
            )
            for container in ("models", "work")
        ),
    ]

"""The resource group, who nodes are, and what they may do: leave, move to a new host, and tell.

Role names and assignments are GUIDs, derived from the stack so that they never change.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any, Final

from stacks.graph import Resource, ref
from stacks.runtime.vm.node.unique import UNIQUE_DIGITS, unique_place

if TYPE_CHECKING:
    from collections.abc import Sequence

    from planner.plan.types import Properties
    from stacks.spec.stack import StackSpec

# Built-in role "Storage Blob Data Reader": the same GUID in every tenant.
BLOB_READER: Final = "2a2b9908-6ea1-4ae2-8e65-a410df84e7d1"
# Storage Blob Data Contributor.
BLOB_WRITER: Final = "ba92f5b4-2d11-453d-a403-e96b0029c9fe"
# Monitoring Metrics Publisher.
METRICS_PUBLISHER: Final = "3913510d-42f4-4e42-8a64-420c390055eb"
ASSIGNMENT_TYPE: Final = "azure-native:authorization:RoleAssignment"
# Of every subnet, as the typed SDK of Pulumi sends it.
SUBNET_POLICIES: Final = {
    "privateEndpointNetworkPolicies": "Disabled",
    "privateLinkServiceNetworkPolicies": "Enabled",
}


def common_inputs(stack: StackSpec) -> Properties:
    """The inputs that every resource of the group shares."""
    return {
        "resourceGroupName": ref("group", "name"),
        "location": stack.region,
        "tags": stack.tags,
    }


def stable_guid(stack: StackSpec, name_part: str) -> str:
    """A GUID that is always the same for a part of a stack in a subscription.

    Those of roles are of the tenant, which may have several subscriptions: the last digits are
    those of one of them.
    """
    guid_seed = f"tonnage/{stack.name}/{stack.digest}/{name_part}"
    guid = uuid.uuid5(uuid.NAMESPACE_URL, guid_seed)
    return f"{str(guid)[:-UNIQUE_DIGITS]}{unique_place(guid.hex)}"


def resources(stack: StackSpec) -> list[Resource]:
    """The group, the identity of the nodes, its role and its assignments."""
    resource_group = Resource(
        type="azure-native:resources:ResourceGroup",
        name="group",
        inputs={
            "resourceGroupName": f"{stack.name}-{stack.digest}",
            "location": stack.region,
            "tags": stack.tags,
        },
    )
    group_names = [group.name for _, group in stack.scaling_groups]
    # Machines ask for the address that Azure gave to what they may read.
    read_names = ["log-endpoint", "log-rule"]
    if stack.file_system is not None:
        read_names.append("data-files")
    leave_role = ref("leave-role")
    metrics_role = built_in_role(METRICS_PUBLISHER)
    grants = [
        *(
            (f"{name}-leave", f"{name}-nodes", leave_role)
            for name in group_names
        ),
        *(
            (f"{name}-metrics", f"{name}-nodes", metrics_role)
            for name in group_names
        ),
        ("node-models", "models", built_in_role(BLOB_READER)),
        ("node-work", "work", built_in_role(BLOB_WRITER)),
        ("node-logs", "log-rule", metrics_role),
        ("node-move", "group", ref("move-role")),
        *((f"{name}-read", name, leave_role) for name in read_names),
    ]
    return [
        resource_group,
        user_identity(stack, "node"),
        _leave_role(stack),
        custom_role(
            stack,
            "move",
            "lets nodes move to other hardware when theirs is broken",
            [
                "Microsoft.Compute/virtualMachines/redeploy/action",
                "Microsoft.Compute/virtualMachineScaleSets/virtualMachines/redeploy/action",
            ],
        ),
        *(
            role_grant(stack, grant_name, ref(scope), role, "node-identity")
            for grant_name, scope, role in grants
        ),
        _caller_grant(stack),
    ]


def _caller_grant(stack: StackSpec) -> Resource:
    """What whoever applies first may do with the files of the stack.

    The account takes no keys, so its owner could neither upload nor read them. Who applies later
    does not take the grant over.
    """
    return Resource(
        type=ASSIGNMENT_TYPE,
        name="caller-files",
        inputs={
            "scope": ref("store"),
            "roleDefinitionId": built_in_role(BLOB_WRITER),
            "principalId": "${caller}",
            "principalType": "${caller.kind}",
            "roleAssignmentName": stable_guid(stack, "caller-files"),
        },
        options={"ignore_changes": ["principalId", "principalType"]},
    )


def user_identity(stack: StackSpec, principal_name: str) -> Resource:
    """Someone who acts in the name of the stack."""
    return Resource(
        type="azure-native:managedidentity:UserAssignedIdentity",
        name=f"{principal_name}-identity",
        inputs={
            "resourceName": f"{stack.name}-{principal_name}",
            **common_inputs(stack),
        },
    )


def built_in_role(role_guid: str) -> str:
    """The id of a role that every tenant has."""
    return f"/providers/Microsoft.Authorization/roleDefinitions/{role_guid}"


def _leave_role(stack: StackSpec) -> Resource:
    """Deleting instances needs no right to write the scale set, so nodes cannot rewrite it.

    Those of an elastic service may: Azure has no right of its own for the size.
    """
    allowed_actions = [
        "Microsoft.Compute/virtualMachineScaleSets/read",
        "Microsoft.Compute/virtualMachineScaleSets/delete/action",
        "Microsoft.Insights/dataCollectionEndpoints/read",
        "Microsoft.Insights/dataCollectionRules/read",
    ]
    if stack.is_elastic:
        allowed_actions.append(
            "Microsoft.Compute/virtualMachineScaleSets/write"
        )
    if stack.file_system is not None:
        allowed_actions.append("Microsoft.StorageCache/amlFilesystems/read")
    return custom_role(
        stack,
        "leave",
        "lets nodes delete instances of their own scale set",
        allowed_actions,
    )


def custom_role(
    stack: StackSpec,
    role_name: str,
    description: str,
    allowed_actions: Sequence[str],
) -> Resource:
    """A role of the stack, which is given within its resource group."""
    role_permission = {
        "actions": list(allowed_actions),
        "notActions": [],
        "dataActions": [],
        "notDataActions": [],
    }
    return Resource(
        type="azure-native:authorization:RoleDefinition",
        name=f"{role_name}-role",
        inputs={
            "scope": ref("group"),
            "assignableScopes": [ref("group")],
            "roleDefinitionId": stable_guid(stack, f"{role_name}-role"),
            "roleType": "CustomRole",
            "roleName": f"tonnage {stack.name} "
            f"{unique_place(stack.digest)} {role_name}",
            "description": description,
            "permissions": [role_permission],
        },
    )


def role_grant(
    stack: StackSpec,
    resource_name: str,
    scope_ref: Any,
    role_definition: Any,
    identity_name: str,
) -> Resource:
    """What an identity of the stack may do within a scope."""
    return Resource(
        type=ASSIGNMENT_TYPE,
        name=resource_name,
        inputs={
            "scope": scope_ref,
            "roleDefinitionId": role_definition,
            "principalId": ref(identity_name, "principalId"),
            "principalType": "ServicePrincipal",
            "roleAssignmentName": stable_guid(stack, resource_name),
        },
    )

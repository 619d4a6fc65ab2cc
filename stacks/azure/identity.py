"""The resource group, who nodes are, and what they may do: leave their own scale set, and tell.

Role names and assignments are GUIDs, derived from the stack so that they never change.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any, Final

from stacks.graph import Resource, ref

if TYPE_CHECKING:
    from planner.plan.types import Properties
    from stacks.spec.stack import StackSpec

# Built-in role "Storage Blob Data Reader": the same GUID in every tenant.
BLOB_READER: Final = "2a2b9908-6ea1-4ae2-8e65-a410df84e7d1"
# Storage Blob Data Contributor.
BLOB_WRITER: Final = "ba92f5b4-2d11-453d-a403-e96b0029c9fe"
# Monitoring Metrics Publisher.
METRICS_PUBLISHER: Final = "3913510d-42f4-4e42-8a64-420c390055eb"
ASSIGNMENT_TYPE: Final = "azure-native:authorization:RoleAssignment"


def common_inputs(stack: StackSpec) -> Properties:
    """The inputs that every resource of the group shares."""
    return {
        "resourceGroupName": ref("group", "name"),
        "location": stack.region,
        "tags": stack.tags,
    }


def stable_guid(stack: StackSpec, name_part: str) -> str:
    """A GUID that is always the same for a part of a stack."""
    guid_seed = f"tonnage/{stack.name}/{stack.digest}/{name_part}"
    return str(uuid.uuid5(uuid.NAMESPACE_URL, guid_seed))


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
    return [
        resource_group,
        Resource(
            type="azure-native:managedidentity:UserAssignedIdentity",
            name="node-identity",
            inputs={
                "resourceName": f"{stack.name}-node",
                **common_inputs(stack),
            },
        ),
        _leave_role(stack),
        *(
            _role_grant(
                stack,
                f"{group.name}-leave",
                ref(f"{group.name}-nodes"),
                ref("leave-role"),
            )
            for _, group in stack.scaling_groups
        ),
        *(
            _role_grant(
                stack,
                f"{group.name}-metrics",
                ref(f"{group.name}-nodes"),
                _built_in(METRICS_PUBLISHER),
            )
            for _, group in stack.scaling_groups
        ),
        _role_grant(
            stack, "node-models", ref("models"), _built_in(BLOB_READER)
        ),
        _role_grant(stack, "node-work", ref("work"), _built_in(BLOB_WRITER)),
        _role_grant(
            stack, "node-logs", ref("log-rule"), _built_in(METRICS_PUBLISHER)
        ),
        # Machines ask for the address that Azure gave to what they may read.
        *(
            _role_grant(stack, f"{name}-read", ref(name), ref("leave-role"))
            for name in (
                "log-endpoint",
                "log-rule",
                *(["data-files"] if stack.file_system is not None else []),
            )
        ),
    ]


def _built_in(role_guid: str) -> str:
    return f"/providers/Microsoft.Authorization/roleDefinitions/{role_guid}"


def _leave_role(stack: StackSpec) -> Resource:
    """Deleting instances needs no right to write the scale set, so nodes cannot rewrite it."""
    allowed_actions = [
        "Microsoft.Compute/virtualMachineScaleSets/read",
        "Microsoft.Compute/virtualMachineScaleSets/delete/action",
        "Microsoft.Insights/dataCollectionEndpoints/read",
        "Microsoft.Insights/dataCollectionRules/read",
    ]
    if stack.file_system is not None:
        allowed_actions.append("Microsoft.StorageCache/amlFilesystems/read")
    role_permission = {
        "actions": allowed_actions,
        "notActions": [],
        "dataActions": [],
        "notDataActions": [],
    }
    return Resource(
        type="azure-native:authorization:RoleDefinition",
        name="leave-role",
        inputs={
            "scope": ref("group"),
            "assignableScopes": [ref("group")],
            "roleDefinitionId": stable_guid(stack, "leave-role"),
            "roleType": "CustomRole",
            "roleName": f"tonnage {stack.name} {stack.digest} leave",
            "description": "lets nodes delete instances of their own scale set",
            "permissions": [role_permission],
        },
    )


def _role_grant(
    stack: StackSpec, resource_name: str, scope_ref: Any, role_definition: Any
) -> Resource:
    return Resource(
        type=ASSIGNMENT_TYPE,
        name=resource_name,
        inputs={
            "scope": scope_ref,
            "roleDefinitionId": role_definition,
            "principalId": ref("node-identity", "principalId"),
            "principalType": "ServicePrincipal",
            "roleAssignmentName": stable_guid(stack, resource_name),
        },
    )

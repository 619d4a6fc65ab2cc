"""The resource group, who nodes are, and what they may do: leave their own scale set.

Role names and assignments are GUIDs, derived from the stack so that they never change.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any, Final

from stacks.graph import Resource, ref

if TYPE_CHECKING:
    from stacks.site import Site

# Built-in role "Storage Blob Data Reader": the same GUID in every tenant.
BLOB_READER: Final = "2a2b9908-6ea1-4ae2-8e65-a410df84e7d1"
BLOB_WRITER: Final = (
    "ba92f5b4-2d11-453d-a403-e96b0029c9fe"  # Storage Blob Data Contributor
)
ASSIGNMENT: Final = "azure-native:authorization:RoleAssignment"


def common(site: Site) -> dict[str, Any]:
    """The inputs that every resource of the group shares."""
    return {
        "resourceGroupName": ref("group", "name"),
        "location": site.region,
        "tags": site.tags,
    }


def guid(site: Site, part: str) -> str:
    """A GUID that is always the same for a part of a stack."""
    seed = f"tonnage/{site.name}/{site.digest}/{part}"
    return str(uuid.uuid5(uuid.NAMESPACE_URL, seed))


def resources(site: Site) -> list[Resource]:
    """The group, the identity of the nodes, its role and its assignments."""
    group = Resource(
        type="azure-native:resources:ResourceGroup",
        name="group",
        inputs={
            "resourceGroupName": f"{site.name}-{site.digest}",
            "location": site.region,
            "tags": site.tags,
        },
    )
    found = [
        group,
        Resource(
            type="azure-native:managedidentity:UserAssignedIdentity",
            name="node-identity",
            inputs={"resourceName": f"{site.name}-node", **common(site)},
        ),
        _leave_role(site),
        _assign(site, "node-leave", ref("nodes"), ref("leave-role")),
    ]
    if site.layout is not None:
        blob = BLOB_WRITER if site.trains else BLOB_READER
        role = f"/providers/Microsoft.Authorization/roleDefinitions/{blob}"
        found.append(_assign(site, "node-models", ref("models"), role))
    return found


def _leave_role(site: Site) -> Resource:
    """Deleting instances needs no right to write the scale set, so nodes cannot rewrite it."""
    actions = [
        "Microsoft.Compute/virtualMachineScaleSets/read",
        "Microsoft.Compute/virtualMachineScaleSets/virtualMachines/read",
        "Microsoft.Compute/virtualMachineScaleSets/delete/action",
        "Microsoft.Compute/virtualMachineScaleSets/networkInterfaces/read",
    ]
    if site.files is not None:
        actions.append("Microsoft.StorageCache/amlFilesystems/read")
    permission = {
        "actions": actions,
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
            "roleDefinitionId": guid(site, "leave-role"),
            "roleType": "CustomRole",
            "roleName": f"tonnage {site.name} {site.digest} leave",
            "description": "lets nodes delete instances of their own scale set",
            "permissions": [permission],
        },
    )


def _assign(site: Site, name: str, scope: Any, role: Any) -> Resource:
    return Resource(
        type=ASSIGNMENT,
        name=name,
        inputs={
            "scope": scope,
            "roleDefinitionId": role,
            "principalId": ref("node-identity", "principalId"),
            "principalType": "ServicePrincipal",
            "roleAssignmentName": guid(site, name),
        },
    )

"""Who nodes are and what they may do: leave their own group, write logs and metrics.

Instance groups take no conditional policies, so one role in the project holds what nodes and
the scheduler may do to groups, their jobs and the file system.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from stacks.graph import Resource, ref

if TYPE_CHECKING:
    from stacks.spec.stack import StackSpec

ACCOUNT_TYPE: Final = "gcp:serviceaccount/account:Account"
MEMBER_TYPE: Final = "gcp:projects/iAMMember:IAMMember"
LOG_WRITER: Final = "roles/logging.logWriter"
FILES_PERMISSIONS: Final = (  # to find the file system of the data, and to fill it
    "lustre.instances.get",
    "lustre.instances.importData",
    "lustre.operations.get",
)
METRIC_WRITER: Final = "roles/monitoring.metricWriter"


def resources(stack: StackSpec) -> list[Resource]:
    """The accounts of nodes and of the scheduler, with their roles."""
    identity_resources = [
        service_account(stack, "node", "nodes"),
        _resize_role(stack),
        role_grant("node-resize", "node-account", ref("resize-role", "name")),
        role_grant("node-logs", "node-account", LOG_WRITER),
        role_grant("node-metrics", "node-account", METRIC_WRITER),
    ]
    identity_resources += [
        Resource(
            type="gcp:secretmanager/secretIamMember:SecretIamMember",
            name=f"node-{part}",
            inputs={
                "secretId": name,
                "role": "roles/secretmanager.secretAccessor",
                "member": ref("node-account", "member"),
            },
        )
        for part, name in stack.secrets.items()
    ]
    if stack.ttl_s or stack.changes_capacity or stack.has_block:
        identity_resources.append(
            service_account(stack, "clock", "schedule and deadline")
        )
        identity_resources.append(
            role_grant(
                "clock-resize", "clock-account", ref("resize-role", "name")
            )
        )
    return identity_resources


def prerequisites() -> tuple[str, ...]:
    """What must exist before a node can boot and do its duty."""
    return (
        "node-logs",
        "node-metrics",
        "node-resize",
        "models-read",
        "models-write",
    )


def service_account(
    stack: StackSpec, principal_name: str, account_purpose: str
) -> Resource:
    """A service account; its id has 6 to 30 characters."""
    return Resource(
        type=ACCOUNT_TYPE,
        name=f"{principal_name}-account",
        inputs={
            "accountId": f"{stack.short_name}-{principal_name}",
            "displayName": f"{stack.name} {account_purpose}",
        },
    )


def _resize_role(stack: StackSpec) -> Resource:
    return Resource(
        type="gcp:projects/iAMCustomRole:IAMCustomRole",
        name="resize-role",
        inputs={
            "roleId": f"tonnage_{stack.short_name.replace('-', '_')}_resize",
            "title": f"{stack.name}: size of its groups",
            "stage": "GA",
            "permissions": [
                "cloudscheduler.jobs.pause",
                "compute.instanceGroupManagers.get",
                "compute.instanceGroupManagers.update",
                "compute.instances.delete",
                "compute.instances.get",
                *(FILES_PERMISSIONS if stack.file_system is not None else ()),
            ],
        },
    )


def role_grant(
    resource_name: str, account_name: str, role_name: Any
) -> Resource:
    """A role in the project for an account of the stack."""
    return Resource(
        type=MEMBER_TYPE,
        name=resource_name,
        inputs={
            "project": "${project}",
            "role": role_name,
            "member": ref(account_name, "member"),
        },
    )

"""Who nodes are and what they may do: leave their own group, write logs and metrics.

Instance groups take no conditional policies, so the role that changes the size of a group is
the smallest that Google Cloud allows: two permissions, in the project.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from stacks.graph import Resource, ref

if TYPE_CHECKING:
    from stacks.site import Site

ACCOUNT: Final = "gcp:serviceaccount/account:Account"
MEMBER: Final = "gcp:projects/iAMMember:IAMMember"
LOG_WRITER: Final = "roles/logging.logWriter"
FILES: Final = (  # to find the file system of the data, and to fill it
    "lustre.instances.get",
    "lustre.instances.importData",
    "lustre.operations.get",
)
METRIC_WRITER: Final = "roles/monitoring.metricWriter"


def resources(site: Site) -> list[Resource]:
    """The accounts of nodes and of the scheduler, with their roles."""
    found = [
        _account(site, "node", "nodes"),
        _resize_role(site),
        _grant("node-resize", "node-account", ref("resize-role", "name")),
        _grant("node-logs", "node-account", LOG_WRITER),
        _grant("node-metrics", "node-account", METRIC_WRITER),
    ]
    if site.ttl or site.changes:
        found.append(_account(site, "clock", "schedule and deadline"))
        found.append(
            _grant("clock-resize", "clock-account", ref("resize-role", "name"))
        )
    return found


def ready(site: Site) -> tuple[str, ...]:
    """What must exist before a node can boot and do its duty."""
    read = ["models-read"] if site.layout is not None else []
    return ("node-logs", "node-metrics", "node-resize", *read)


def _account(site: Site, part: str, purpose: str) -> Resource:
    """A service account; its id has 6 to 30 characters."""
    return Resource(
        type=ACCOUNT,
        name=f"{part}-account",
        inputs={
            "accountId": f"{site.short}-{part}",
            "displayName": f"{site.name} {purpose}",
        },
    )


def _resize_role(site: Site) -> Resource:
    return Resource(
        type="gcp:projects/iAMCustomRole:IAMCustomRole",
        name="resize-role",
        inputs={
            "roleId": f"tonnage_{site.short.replace('-', '_')}_resize",
            "title": f"{site.name}: size of its group",
            "stage": "GA",
            "permissions": [
                "cloudscheduler.jobs.pause",
                "compute.instanceGroupManagers.get",
                "compute.instanceGroupManagers.update",
                "compute.instances.delete",
                "compute.instances.list",
                *(FILES if site.files is not None else ()),
            ],
        },
    )


def _grant(name: str, account: str, role: Any) -> Resource:
    return Resource(
        type=MEMBER,
        name=name,
        inputs={
            "project": "${project}",
            "role": role,
            "member": ref(account, "member"),
        },
    )

"""What gives machines back when their agents cannot: a workflow that looks at them by the clock.

The workflow is `watch.yaml`. For each scaling group Cloud Scheduler starts it every ten minutes.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from planner.cost.lifetime import release_time
from stacks.gcp import network, observe, storage
from stacks.gcp.identity import role_grant, service_account
from stacks.gcp.shutdown import scheduler_job
from stacks.graph import Resource, ref
from stacks.runtime.shell import read_script
from stacks.spec.stack import GROUP_TAG, STACK_TAG
from stacks.user_data import base64_text

if TYPE_CHECKING:
    from planner.plan.types import Properties
    from stacks.spec.fleet import FleetSpec, ScalingGroup
    from stacks.spec.stack import StackSpec

EVERY_TEN_MINUTES: Final = ("*/10 * * * *", "Etc/UTC")
PERMISSIONS: Final = (
    "compute.instanceGroupManagers.update",
    "compute.instances.delete",
    "compute.instances.list",
    "monitoring.timeSeries.create",
    "monitoring.timeSeries.list",
    "workflows.executions.create",
)


def resources(stack: StackSpec) -> list[Resource]:
    """The workflow, who it is and what it may do, and for each scaling group its clock."""
    return [
        service_account(stack, "watch", "lost machines"),
        Resource(
            type="gcp:projects/iAMCustomRole:IAMCustomRole",
            name="watch-role",
            inputs={
                "roleId": f"tonnage_{stack.short_name.replace('-', '_')}_watch",
                "title": f"{stack.name}: to give lost machines back",
                "stage": "GA",
                "permissions": list(PERMISSIONS),
            },
        ),
        role_grant(
            "watch-machines", "watch-account", ref("watch-role", "name")
        ),
        Resource(
            type="gcp:storage/bucketIAMMember:BucketIAMMember",
            name="watch-signs",
            inputs={
                "bucket": ref("models", "name"),
                # It lists names and times, and reads no content.
                "role": "roles/storage.legacyBucketReader",
                "member": ref("watch-account", "member"),
            },
        ),
        Resource(
            type="gcp:workflows/workflow:Workflow",
            name="watch",
            inputs={
                "name": _workflow_name(stack),
                "region": stack.region,
                "description": "gives back machines whose agents cannot",
                "serviceAccount": ref("watch-account"),
                "sourceContents": read_script("stacks.gcp", "watch.yaml"),
                "callLogLevel": "LOG_ERRORS_ONLY",
                "labels": storage.resource_labels(stack),
                # Otherwise `destroy` is refused.
                "deletionProtection": False,
            },
            depends_on=("watch-machines", "watch-signs"),
        ),
        *(_clock(stack, fleet, group) for fleet, group in stack.scaling_groups),
    ]


def _clock(stack: StackSpec, fleet: FleetSpec, group: ScalingGroup) -> Resource:
    """The job that starts the workflow for a group. Its argument is JSON in JSON."""
    execution = {
        "argument": json.dumps(_argument(stack, fleet, group), sort_keys=True)
    }
    return scheduler_job(
        stack,
        group,
        "watch",
        EVERY_TEN_MINUTES,
        {
            "uri": "https://workflowexecutions.googleapis.com/v1/projects/${project}"
            f"/locations/{stack.region}/workflows/{_workflow_name(stack)}/executions",
            "headers": {"Content-Type": "application/json"},
            "body": base64_text(json.dumps(execution)),
        },
        account="watch-account",
        depends_on=("watch",),
    )


def _argument(
    stack: StackSpec, fleet: FleetSpec, group: ScalingGroup
) -> Properties:
    """What the workflow knows of a group. Times are in seconds; 0 is no idle limit."""
    labels = storage.labels_of({STACK_TAG: stack.name, GROUP_TAG: group.name})
    conditions = [
        *(f'(labels.{key} = "{label}")' for key, label in labels.items()),
        '(status = "RUNNING")',
    ]
    return {
        "zone": network.fleet_zone(fleet),
        "group": stack.group_name(group),
        "machines": " AND ".join(conditions),
        "bucket": storage.bucket_name(stack),
        "alive": f"alive/{group.name}/",
        "metrics": observe.metric_prefix(stack),
        "young_s": int(release_time("young_limit_s")),
        "silent_s": int(release_time("silent_limit_s")),
        "idle_s": stack.outside_idle_s(fleet) or 0,
    }


def _workflow_name(stack: StackSpec) -> str:
    return f"{stack.name}-watch"

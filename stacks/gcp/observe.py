"""An alert when every GPU of a pool has been idle for twice the idle time.

Google Cloud's alerts notify and do not act: the agent on the node and the scheduler do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stacks.gcp.storage import resource_labels
from stacks.graph import Resource
from stacks.spec.stack import POOL_TAG

if TYPE_CHECKING:
    from stacks.spec.fleet import FleetSpec
    from stacks.spec.stack import StackSpec


def resources(stack: StackSpec) -> list[Resource]:
    """An idle alert for each fleet, when the spec asks for idle shutdown."""
    if not stack.idle_s:
        return []
    return [_idle_alert(stack, fleet, stack.idle_s) for fleet in stack.fleets]


def _idle_alert(stack: StackSpec, fleet: FleetSpec, idle_s: int) -> Resource:
    idle_duration_s = min(82_800, -(-2 * idle_s // 60) * 60)
    idle_condition = {
        "filter": 'resource.type = "gce_instance" AND '
        'metric.type = "agent.googleapis.com/gpu/utilization" AND '
        f'metadata.user_labels."tonnage-stack" = "{stack.name}" AND '
        f'metadata.user_labels."{POOL_TAG}" = "{fleet.name}"',
        "comparison": "COMPARISON_LT",
        "thresholdValue": 5,
        "duration": f"{idle_duration_s}s",
        "trigger": {"count": 1},
        "aggregations": [
            {
                "alignmentPeriod": "300s",
                "perSeriesAligner": "ALIGN_MAX",
                "crossSeriesReducer": "REDUCE_MAX",
            }
        ],
    }
    return Resource(
        type="gcp:monitoring/alertPolicy:AlertPolicy",
        name=f"{fleet.name}-idle-alert",
        inputs={
            "displayName": f"{stack.name} {fleet.name}: all GPUs idle",
            "combiner": "OR",
            "userLabels": resource_labels(stack),
            "conditions": [
                {
                    "displayName": "GPU use below 5 %",
                    "conditionThreshold": idle_condition,
                }
            ],
        },
    )

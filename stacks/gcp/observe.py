"""An alert when every GPU of the fleet has been idle for twice the idle time.

Google Cloud's alerts notify and do not act: the agent on the node and the scheduler do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stacks.gcp.storage import resource_labels
from stacks.graph import Resource

if TYPE_CHECKING:
    from stacks.spec.stack import StackSpec


def resources(stack: StackSpec) -> list[Resource]:
    """The idle alert, when the spec asks for idle shutdown."""
    if not stack.idle_s:
        return []
    idle_duration_s = min(82_800, -(-2 * stack.idle_s // 60) * 60)
    idle_condition = {
        "filter": 'resource.type = "gce_instance" AND '
        'metric.type = "agent.googleapis.com/gpu/utilization" AND '
        f'metadata.user_labels."tonnage-stack" = "{stack.name}"',
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
    return [
        Resource(
            type="gcp:monitoring/alertPolicy:AlertPolicy",
            name="idle-alert",
            inputs={
                "displayName": f"{stack.name}: all GPUs idle",
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
    ]

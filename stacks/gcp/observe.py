"""An alert when every GPU of the fleet has been idle for twice the idle time.

Google Cloud's alerts notify and do not act: the agent on the node and the scheduler do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stacks.gcp.storage import labels
from stacks.graph import Resource

if TYPE_CHECKING:
    from stacks.site import Site


def resources(site: Site) -> list[Resource]:
    """The idle alert, when the spec asks for idle shutdown."""
    if not site.idle:
        return []
    seconds = min(82_800, -(-2 * site.idle // 60) * 60)
    condition = {
        "filter": 'resource.type = "gce_instance" AND '
        'metric.type = "agent.googleapis.com/gpu/utilization" AND '
        f'metadata.user_labels."tonnage-stack" = "{site.name}"',
        "comparison": "COMPARISON_LT",
        "thresholdValue": 5,
        "duration": f"{seconds}s",
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
                "displayName": f"{site.name}: all GPUs idle",
                "combiner": "OR",
                "userLabels": labels(site),
                "conditions": [
                    {
                        "displayName": "GPU use below 5 %",
                        "conditionThreshold": condition,
                    }
                ],
            },
        )
    ]

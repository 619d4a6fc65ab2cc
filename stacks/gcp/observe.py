"""Alerts on machines without work, and on machines without an agent, by what their agents tell.

Google Cloud's alerts notify and do not act: the agent on the node and the scheduler do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stacks.gcp.storage import resource_labels
from stacks.graph import Resource

if TYPE_CHECKING:
    from planner.plan.types import Properties
    from stacks.spec.fleet import ScalingGroup
    from stacks.spec.stack import StackSpec

# What an agent tells once a minute, in lower case.
METRICS: Final = {
    "busy": "1 while the machine has work",
    "heartbeat": "1 while the agent of the machine lives",
}
# Seconds without any agent after which a group has lost all of them.
DEAD_S: Final = 1800
MAX_DURATION_S: Final = 82_800


def metric_prefix(stack: StackSpec) -> str:
    """Metrics belong to the project, so their names hold that of the stack."""
    return f"custom.googleapis.com/tonnage/{stack.name}"


def resources(stack: StackSpec) -> list[Resource]:
    """The metrics of the agents, and for each scaling group the alerts on them."""
    return [
        *(
            Resource(
                type="gcp:monitoring/metricDescriptor:MetricDescriptor",
                name=f"{metric}-metric",
                inputs={
                    "type": f"{metric_prefix(stack)}/{metric}",
                    "metricKind": "GAUGE",
                    "valueType": "DOUBLE",
                    "description": meaning,
                    "labels": [{"key": "group", "valueType": "STRING"}],
                },
            )
            for metric, meaning in METRICS.items()
        ),
        *(
            alert
            for _, group in stack.scaling_groups
            for alert in (
                _dead_alert(stack, group),
                *_idle_alerts(stack, group),
            )
        ),
    ]


def _dead_alert(stack: StackSpec, group: ScalingGroup) -> Resource:
    """An alert on an agent that was there and has gone without its machine."""
    return _alert(
        stack,
        group,
        "dead",
        {
            "displayName": "an agent has fallen silent",
            "conditionAbsent": {
                "filter": _filter(stack, group, "heartbeat"),
                "duration": f"{DEAD_S}s",
                "aggregations": [
                    {
                        "alignmentPeriod": "300s",
                        "perSeriesAligner": "ALIGN_MAX",
                        "crossSeriesReducer": "REDUCE_MAX",
                    }
                ],
            },
        },
    )


def _idle_alerts(stack: StackSpec, group: ScalingGroup) -> list[Resource]:
    """An alert on agents that for twice the idle limit have seen no work, and stayed."""
    if not stack.idle_s:
        return []
    idle_duration_s = min(MAX_DURATION_S, -(-2 * stack.idle_s // 60) * 60)
    idle_condition = {
        "filter": _filter(stack, group, "busy"),
        "comparison": "COMPARISON_LT",
        "thresholdValue": 1,
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
        _alert(
            stack,
            group,
            "idle",
            {
                "displayName": "no machine has work",
                "conditionThreshold": idle_condition,
            },
        )
    ]


def _alert(
    stack: StackSpec, group: ScalingGroup, name: str, condition: Properties
) -> Resource:
    return Resource(
        type="gcp:monitoring/alertPolicy:AlertPolicy",
        name=f"{group.name}-{name}-alert",
        inputs={
            "displayName": f"{stack.group_name(group)}: "
            f"{condition['displayName']}",
            "combiner": "OR",
            "userLabels": resource_labels(stack),
            "conditions": [condition],
        },
        # A policy on a metric that nobody has described yet is refused.
        depends_on=tuple(f"{metric}-metric" for metric in METRICS),
    )


def _filter(stack: StackSpec, group: ScalingGroup, metric: str) -> str:
    return (
        'resource.type = "gce_instance" AND '
        f'metric.type = "{metric_prefix(stack)}/{metric}" AND '
        f'metric.labels.group = "{stack.group_name(group)}"'
    )

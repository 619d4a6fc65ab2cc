"""Logs, and alarms that end machines from outside, by what their agents tell CloudWatch.

An agent tells once a minute that it lives, and whether there is work. It gives its machine back by
itself; the alarms are for agents that cannot.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stacks.aws import identity
from stacks.graph import Resource, ref

if TYPE_CHECKING:
    from planner.plan.types import Properties
    from stacks.spec.fleet import ScalingGroup
    from stacks.spec.stack import StackSpec

RETENTION_DAYS: Final = 30
PERIOD_S: Final = 300
# Seconds that an alarm of five-minute periods can look back.
MAX_LOOKBACK_S: Final = 86_400
# Seconds without any agent after which a group has lost all of them.
DEAD_S: Final = 1800
NAMESPACE: Final = "tonnage"


def resources(stack: StackSpec) -> list[Resource]:
    """The log group, and for each scaling group what ends it from outside."""
    return [
        Resource(
            type="aws:cloudwatch/logGroup:LogGroup",
            name="logs",
            inputs={
                "name": identity.log_group_name(stack),
                "retentionInDays": RETENTION_DAYS,
                "tags": stack.tags,
            },
        ),
        *(
            resource
            for _, group in stack.scaling_groups
            for resource in (
                _zero_policy(group),
                _dead_alarm(stack, group),
                *_idle_alarms(stack, group),
            )
        ),
    ]


def _zero_policy(group: ScalingGroup) -> Resource:
    """What an alarm does: no machine is wanted any more."""
    return Resource(
        type="aws:autoscaling/policy:Policy",
        name=f"{group.name}-to-zero",
        inputs={
            "name": "to-zero",
            "autoscalingGroupName": ref(f"{group.name}-nodes", "name"),
            "policyType": "SimpleScaling",
            "adjustmentType": "ExactCapacity",
            "scalingAdjustment": 0,
            "cooldown": PERIOD_S,
        },
    )


def _dead_alarm(stack: StackSpec, group: ScalingGroup) -> Resource:
    """An alarm on a group that has machines and for half an hour no agent.

    A group without machines has no agent either, and is left alone.
    """
    dimensions = {"AutoScalingGroupName": stack.group_name(group)}
    return Resource(
        type="aws:cloudwatch/metricAlarm:MetricAlarm",
        name=f"{group.name}-dead-alarm",
        inputs={
            "name": f"{stack.group_name(group)}-dead",
            "metricQueries": [
                {
                    "id": "dead",
                    "expression": "IF(FILL(agents, 0) < 1 AND FILL(nodes, 0) > 0, 1, 0)",
                    "label": "machines without any agent",
                    "returnData": True,
                },
                _query("agents", NAMESPACE, "Heartbeat", dimensions),
                _query(
                    "nodes",
                    "AWS/AutoScaling",
                    "GroupInServiceInstances",
                    dimensions,
                ),
            ],
            "evaluationPeriods": DEAD_S // PERIOD_S,
            "threshold": 1,
            "comparisonOperator": "GreaterThanOrEqualToThreshold",
            "treatMissingData": "notBreaching",
            "alarmActions": [ref(f"{group.name}-to-zero", "arn")],
            "tags": stack.tags,
        },
    )


def _query(
    name: str, namespace: str, metric: str, dimensions: dict[str, str]
) -> Properties:
    return {
        "id": name,
        "metric": {
            "namespace": namespace,
            "metricName": metric,
            "dimensions": dimensions,
            "period": PERIOD_S,
            "stat": "Maximum",
        },
    }


def _idle_alarms(stack: StackSpec, group: ScalingGroup) -> list[Resource]:
    """An alarm on agents that for twice the idle limit have seen no work, and stayed."""
    if not stack.idle_s or 2 * stack.idle_s > MAX_LOOKBACK_S:
        return []
    idle_periods = max(1, -(-stack.idle_s // PERIOD_S))
    return [
        Resource(
            type="aws:cloudwatch/metricAlarm:MetricAlarm",
            name=f"{group.name}-idle-alarm",
            inputs={
                "name": f"{stack.group_name(group)}-idle",
                "namespace": NAMESPACE,
                "metricName": "Busy",
                "dimensions": {"AutoScalingGroupName": stack.group_name(group)},
                "statistic": "Maximum",
                "period": PERIOD_S,
                "evaluationPeriods": 2 * idle_periods,
                "threshold": 1,
                "comparisonOperator": "LessThanThreshold",
                # Without agents nothing is known: that is the other alarm.
                "treatMissingData": "notBreaching",
                "alarmActions": [ref(f"{group.name}-to-zero", "arn")],
                "tags": stack.tags,
            },
        )
    ]

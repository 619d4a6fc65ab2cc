"""What gives machines back when their agents cannot: alarms on what agents tell CloudWatch.

An agent tells once a minute that it lives, and whether there is work. It gives its machine back by
itself; the alarms are for agents that cannot.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from planner.cost.lifetime import release_time
from stacks.aws import alarm
from stacks.graph import Resource, ref
from stacks.spec.metric import NAMESPACE

if TYPE_CHECKING:
    from planner.plan.types import Properties
    from stacks.spec.fleet import FleetSpec, ScalingGroup
    from stacks.spec.stack import StackSpec

PERIOD_S: Final = 300
# Seconds that an alarm of five-minute periods can look back.
MAX_LOOKBACK_S: Final = 86_400


def resources(stack: StackSpec) -> list[Resource]:
    """For each scaling group its alarms, and what they do."""
    return [
        resource
        for fleet, group in stack.scaling_groups
        for resource in (
            _zero_policy(group),
            _dead_alarm(stack, group),
            *_idle_alarms(stack, fleet, group),
        )
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
            "evaluationPeriods": int(release_time("silent_limit_s"))
            // PERIOD_S,
            "threshold": 1,
            "comparisonOperator": "GreaterThanOrEqualToThreshold",
            "treatMissingData": "notBreaching",
            "alarmActions": _actions(stack, group),
            "tags": stack.tags,
        },
    )


def _actions(stack: StackSpec, group: ScalingGroup) -> list[Any]:
    """No machine is wanted any more, and people are told."""
    return [ref(f"{group.name}-to-zero", "arn"), *alarm.targets(stack)]


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


def _idle_alarms(
    stack: StackSpec, fleet: FleetSpec, group: ScalingGroup
) -> list[Resource]:
    """An alarm on agents that saw no work for long, and stayed."""
    idle_s = stack.outside_idle_s(fleet)
    if idle_s is None or idle_s > MAX_LOOKBACK_S:
        return []
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
                "evaluationPeriods": -(-idle_s // PERIOD_S),
                "threshold": 1,
                "comparisonOperator": "LessThanThreshold",
                # Without agents nothing is known: that is the other alarm.
                "treatMissingData": "notBreaching",
                "alarmActions": _actions(stack, group),
                "tags": stack.tags,
            },
        )
    ]

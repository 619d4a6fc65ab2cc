"""Logs, and an alarm that ends the machines of a service to which nobody sends anything."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stacks.aws import identity
from stacks.graph import Resource, ref

if TYPE_CHECKING:
    from stacks.spec.fleet import ScalingGroup
    from stacks.spec.stack import StackSpec

RETENTION_DAYS: Final = 30
# Seconds that an alarm of five-minute periods can look back.
MAX_LOOKBACK_S: Final = 86_400


def resources(stack: StackSpec) -> list[Resource]:
    """The log group, and for each scaling group that serves an alarm on missing traffic.

    EC2 has no GPU metric of its own. A service without work also has no traffic, which the cloud
    can see from outside; other work may be silent, so there the agent decides alone.
    """
    alert_resources = [
        Resource(
            type="aws:cloudwatch/logGroup:LogGroup",
            name="logs",
            inputs={
                "name": identity.log_group_name(stack),
                "retentionInDays": RETENTION_DAYS,
                "tags": stack.tags,
            },
        ),
    ]
    if stack.idle_s and 2 * stack.idle_s <= MAX_LOOKBACK_S:
        for fleet, group in stack.scaling_groups:
            if fleet.is_serving:
                alert_resources += _idle_alert(stack, group, stack.idle_s)
    return alert_resources


def _idle_alert(
    stack: StackSpec, group: ScalingGroup, idle_s: int
) -> list[Resource]:
    idle_periods = max(1, -(-idle_s // 300))
    return [
        Resource(
            type="aws:autoscaling/policy:Policy",
            name=f"{group.name}-to-zero",
            inputs={
                "name": "idle-to-zero",
                "autoscalingGroupName": ref(f"{group.name}-nodes", "name"),
                "policyType": "SimpleScaling",
                "adjustmentType": "ExactCapacity",
                "scalingAdjustment": 0,
                "cooldown": 300,
            },
        ),
        Resource(
            type="aws:cloudwatch/metricAlarm:MetricAlarm",
            name=f"{group.name}-idle-alarm",
            inputs={
                "name": f"{stack.group_name(group)}-idle",
                "namespace": "AWS/EC2",
                "metricName": "NetworkIn",
                "dimensions": {"AutoScalingGroupName": stack.group_name(group)},
                # Twice the idle time: the agent on the node decides first, this only backs it up.
                "statistic": "Maximum",
                "period": 300,
                "evaluationPeriods": 2 * idle_periods,
                "threshold": 1_000_000,
                "comparisonOperator": "LessThanThreshold",
                "treatMissingData": "notBreaching",
                "alarmActions": [ref(f"{group.name}-to-zero", "arn")],
                "tags": stack.tags,
            },
        ),
    ]

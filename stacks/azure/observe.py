"""Logs, and an alert on machines without work, by what their agents tell Azure Monitor.

Azure's alerts notify and do not act: the agent on the node and the autoscale setting do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stacks.azure.identity import common_inputs
from stacks.graph import Resource, ref

if TYPE_CHECKING:
    from stacks.spec.fleet import ScalingGroup
    from stacks.spec.stack import StackSpec


def resources(stack: StackSpec) -> list[Resource]:
    """The workspace of the logs, and the idle alert when the spec asks for idle shutdown."""
    alert_resources = [
        Resource(
            type="azure-native:operationalinsights:Workspace",
            name="logs",
            inputs={
                "workspaceName": f"{stack.name}-logs",
                "sku": {"name": "PerGB2018"},
                "retentionInDays": 30,
                **common_inputs(stack),
            },
        )
    ]
    if stack.idle_s:
        alert_resources += [
            _idle_alert(stack, group) for _, group in stack.scaling_groups
        ]
    return alert_resources


def _idle_alert(stack: StackSpec, group: ScalingGroup) -> Resource:
    idle_criterion = {
        "criterionType": "StaticThresholdCriterion",
        "name": "busy",
        "metricName": "Busy",
        "operator": "LessThan",
        "threshold": 1,
        "timeAggregation": "Maximum",
        "metricNamespace": "tonnage",
        # Nobody has told it yet when the alert is made.
        "skipMetricValidation": True,
    }
    return Resource(
        type="azure-native:monitor:MetricAlert",
        name=f"{group.name}-idle-alert",
        inputs={
            **common_inputs(stack),
            "ruleName": f"{stack.group_name(group)}-idle",
            "location": "global",
            "enabled": True,
            "severity": 2,
            "scopes": [ref(f"{group.name}-nodes")],
            "evaluationFrequency": "PT15M",
            "windowSize": "PT1H",
            "autoMitigate": True,
            "criteria": {
                "odataType": "Microsoft.Azure.Monitor.SingleResourceMultipleMetricCriteria",
                "allOf": [idle_criterion],
            },
        },
    )

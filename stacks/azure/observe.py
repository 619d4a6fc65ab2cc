"""Logs, and an alert when the fleet does nothing for longer than it should.

Azure has no GPU metric of its own; processors under 2 % are what it can see from outside.
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
        "name": "cpu",
        "metricName": "Percentage CPU",
        "operator": "LessThan",
        "threshold": 2,
        "timeAggregation": "Average",
        "metricNamespace": "Microsoft.Compute/virtualMachineScaleSets",
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

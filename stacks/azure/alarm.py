"""Who is told of trouble and cost: an action group, an alert on failures, and a budget."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stacks.azure.identity import common_inputs
from stacks.graph import Resource, ref
from stacks.spec.metric import NAMESPACE, TROUBLE

if TYPE_CHECKING:
    from planner.facts.receiver import Receiver
    from stacks.spec.fleet import ScalingGroup
    from stacks.spec.stack import StackSpec

# Alerts and action groups are of no region.
GLOBAL_LOCATION = "Global"
SHORT_NAME_LETTERS = 12


def resources(stack: StackSpec) -> list[Resource]:
    """The action group, the alert of each scaling group, and the budget."""
    return [
        *_action_group(stack),
        *(_trouble_alert(stack, group) for _, group in stack.scaling_groups),
        *_budget(stack),
    ]


def _targets(stack: StackSpec) -> list[Any]:
    """The action groups that are told: that of the stack, and those that there are already."""
    own_group = [ref("alarms")] if _told(stack, "mail", "webhook") else []
    return own_group + [receiver.address for receiver in _told(stack, "topic")]


def _told(stack: StackSpec, *kinds: str) -> list[Receiver]:
    return [receiver for receiver in stack.receivers if receiver.kind in kinds]


def _action_group(stack: StackSpec) -> list[Resource]:
    if not _told(stack, "mail", "webhook"):
        return []
    return [
        Resource(
            type="azure-native:monitor:ActionGroup",
            name="alarms",
            inputs={
                **common_inputs(stack),
                "actionGroupName": f"{stack.name}-alarms",
                "location": GLOBAL_LOCATION,
                # What messages on a telephone begin with.
                "groupShortName": stack.name[:SHORT_NAME_LETTERS],
                "enabled": True,
                "emailReceivers": [
                    {
                        "name": f"mail-{number}",
                        "emailAddress": receiver.mail_address,
                        "useCommonAlertSchema": True,
                    }
                    for number, receiver in enumerate(_told(stack, "mail"))
                ],
                "webhookReceivers": [
                    {
                        "name": f"webhook-{number}",
                        "serviceUri": receiver.address,
                        "useCommonAlertSchema": True,
                    }
                    for number, receiver in enumerate(_told(stack, "webhook"))
                ],
            },
        )
    ]


def _trouble_alert(stack: StackSpec, group: ScalingGroup) -> Resource:
    """An alert on a machine that has failed, or whose work has."""
    trouble = {
        "criterionType": "StaticThresholdCriterion",
        "name": "trouble",
        "metricNamespace": NAMESPACE,
        "metricName": TROUBLE,
        "operator": "GreaterThan",
        "threshold": 0,
        "timeAggregation": "Maximum",
        "dimensions": [],
        # Before the first machine has told anything there is no such metric.
        "skipMetricValidation": True,
    }
    return Resource(
        type="azure-native:monitor:MetricAlert",
        name=f"{group.name}-trouble-alert",
        inputs={
            **common_inputs(stack),
            "ruleName": f"{stack.group_name(group)}-trouble",
            "location": GLOBAL_LOCATION,
            "description": f"a machine or its work has failed: tonnage logs {stack.name}",
            "severity": 1,
            "enabled": True,
            "scopes": [ref(f"{group.name}-nodes")],
            "evaluationFrequency": "PT5M",
            "windowSize": "PT5M",
            "criteria": {
                "odataType": "Microsoft.Azure.Monitor.SingleResourceMultipleMetricCriteria",
                "allOf": [trouble],
            },
            "actions": [
                {"actionGroupId": target} for target in _targets(stack)
            ],
        },
    )


def _budget(stack: StackSpec) -> list[Resource]:
    """What the plan says of a month, of all that is in the resource group."""
    if not stack.receivers:
        return []
    return [
        Resource(
            type="azure-native:consumption:Budget",
            name="budget",
            inputs={
                "budgetName": f"{stack.name}-cost",
                "scope": ref("group"),
                "category": "Cost",
                "timeGrain": "Monthly",
                "amount": stack.planned_usd,
                # It may not be before this month, and may never change.
                "timePeriod": {"startDate": "${started.month}"},
                "notifications": {
                    "all": {
                        "enabled": True,
                        "operator": "GreaterThan",
                        "threshold": 100,
                        "thresholdType": "Actual",
                        "contactEmails": [],
                        "contactGroups": _targets(stack),
                    }
                },
            },
        )
    ]

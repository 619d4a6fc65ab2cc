"""Logs, and an alert when the fleet does nothing for longer than it should.

Azure has no GPU metric of its own; processors under 2 % are what it can see from outside.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stacks.azure.identity import common
from stacks.graph import Resource, ref

if TYPE_CHECKING:
    from stacks.site import Site


def resources(site: Site) -> list[Resource]:
    """The workspace of the logs, and the idle alert when the spec asks for idle shutdown."""
    found = [
        Resource(
            type="azure-native:operationalinsights:Workspace",
            name="logs",
            inputs={
                "workspaceName": f"{site.name}-logs",
                "sku": {"name": "PerGB2018"},
                "retentionInDays": 30,
                **common(site),
            },
        )
    ]
    if site.idle:
        found.append(_alert(site))
    return found


def _alert(site: Site) -> Resource:
    criterion = {
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
        name="idle-alert",
        inputs={
            **common(site),
            "ruleName": f"{site.name}-idle",
            "location": "global",
            "enabled": True,
            "severity": 2,
            "scopes": [ref("nodes")],
            "evaluationFrequency": "PT15M",
            "windowSize": "PT1H",
            "autoMitigate": True,
            "criteria": {
                "odataType": "Microsoft.Azure.Monitor.SingleResourceMultipleMetricCriteria",
                "allOf": [criterion],
            },
        },
    )

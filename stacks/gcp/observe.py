"""The metrics of the agents, described before machines tell them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stacks.graph import Resource
from stacks.spec.metric import told_metrics

if TYPE_CHECKING:
    from stacks.spec.stack import StackSpec


def metric_prefix(stack: StackSpec) -> str:
    """Metrics belong to the project, so their names hold those of stack and region."""
    return f"custom.googleapis.com/tonnage/{stack.name}/{stack.region}"


def resources(stack: StackSpec) -> list[Resource]:
    """The metrics of the agents."""
    return [
        Resource(
            type="gcp:monitoring/metricDescriptor:MetricDescriptor",
            name=f"{metric.name.lower()}-metric",
            inputs={
                "type": f"{metric_prefix(stack)}/{metric.name.lower()}",
                "metricKind": "GAUGE",
                "valueType": "DOUBLE",
                "unit": metric.unit,
                "description": metric.meaning,
                "labels": [{"key": "group", "valueType": "STRING"}],
            },
        )
        for metric in told_metrics(stack)
    ]

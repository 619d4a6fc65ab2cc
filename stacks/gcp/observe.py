"""The metrics of the agents, described before machines tell them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stacks.graph import Resource

if TYPE_CHECKING:
    from stacks.spec.stack import StackSpec

# What an agent tells once a minute, in lower case.
METRICS: Final = {
    "busy": "1 while the machine has work",
    "heartbeat": "1 while the agent of the machine lives",
    "trouble": "1 when the machine or its work has failed",
}


def metric_prefix(stack: StackSpec) -> str:
    """Metrics belong to the project, so their names hold that of the stack."""
    return f"custom.googleapis.com/tonnage/{stack.name}"


def resources(stack: StackSpec) -> list[Resource]:
    """The metrics of the agents."""
    return [
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
    ]

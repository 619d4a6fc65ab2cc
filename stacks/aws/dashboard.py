"""One page of CloudWatch that shows a stack: what its machines tell, and have written."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from stacks.aws.identity import log_group_name
from stacks.graph import Resource
from stacks.spec.metric import NAMESPACE, charts

if TYPE_CHECKING:
    from stacks.spec.metric import Metric
    from stacks.spec.stack import StackSpec

# A page is 24 columns wide.
PAGE_WIDTH: Final = 24
CHART_WIDTH: Final = 12
CHART_HEIGHT: Final = 6
LOG_HEIGHT: Final = 9


def resources(stack: StackSpec) -> list[Resource]:
    """The dashboard."""
    shown = charts(stack)
    widgets: list[dict[str, Any]] = [
        {
            "type": "metric",
            "x": number % 2 * CHART_WIDTH,
            "y": number // 2 * CHART_HEIGHT,
            "width": CHART_WIDTH,
            "height": CHART_HEIGHT,
            "properties": {
                "region": stack.region,
                "title": title,
                "view": "timeSeries",
                "period": 60,
                "stat": "Average",
                "metrics": _lines(stack, metrics),
                "yAxis": {"left": {"min": 0}},
            },
        }
        for number, (title, metrics) in enumerate(shown.items())
    ]
    widgets.append(
        {
            "type": "log",
            "x": 0,
            "y": -(-len(shown) // 2) * CHART_HEIGHT,
            "width": PAGE_WIDTH,
            "height": LOG_HEIGHT,
            "properties": {
                "region": stack.region,
                "title": "what machines have written",
                "view": "table",
                "query": f"SOURCE '{log_group_name(stack)}' "
                "| fields @timestamp, @logStream, @message "
                "| sort @timestamp desc | limit 200",
            },
        }
    )
    body = {"start": "-PT6H", "periodOverride": "inherit", "widgets": widgets}
    return [
        Resource(
            type="aws:cloudwatch/dashboard:Dashboard",
            name="dashboard",
            inputs={
                "dashboardName": f"{stack.name}-{stack.region}",
                "dashboardBody": json.dumps(body, sort_keys=True),
            },
        )
    ]


def _lines(stack: StackSpec, metrics: list[Metric]) -> list[list[Any]]:
    """A line for each metric of each scaling group."""
    return [
        [
            NAMESPACE,
            metric.name,
            "AutoScalingGroupName",
            stack.group_name(group),
            {"label": f"{metric.name} {group.name}"},
        ]
        for metric in metrics
        for _, group in stack.scaling_groups
    ]

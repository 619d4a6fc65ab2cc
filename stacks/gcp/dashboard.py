"""One page of Cloud Monitoring that shows a stack: what its machines tell, and have written."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from stacks.gcp import observe
from stacks.graph import Resource
from stacks.spec.metric import charts

if TYPE_CHECKING:
    from stacks.spec.metric import Metric
    from stacks.spec.stack import StackSpec

# A page is 12 columns wide.
PAGE_WIDTH: Final = 12
CHART_WIDTH: Final = 6
CHART_HEIGHT: Final = 4
LOG_HEIGHT: Final = 6


def resources(stack: StackSpec) -> list[Resource]:
    """The dashboard."""
    shown = charts(stack)
    tiles: list[dict[str, Any]] = [
        {
            "xPos": number % 2 * CHART_WIDTH,
            "yPos": number // 2 * CHART_HEIGHT,
            "width": CHART_WIDTH,
            "height": CHART_HEIGHT,
            "widget": {
                "title": title,
                "xyChart": {
                    "dataSets": [_line(stack, metric) for metric in metrics],
                    "yAxis": {"scale": "LINEAR"},
                },
            },
        }
        for number, (title, metrics) in enumerate(shown.items())
    ]
    tiles.append(
        {
            "xPos": 0,
            "yPos": -(-len(shown) // 2) * CHART_HEIGHT,
            "width": PAGE_WIDTH,
            "height": LOG_HEIGHT,
            "widget": {
                "title": "what machines have written",
                "logsPanel": {
                    "filter": 'logName="projects/${project}/logs/tonnage" '
                    f'labels.stack="{stack.name}"',
                    "resourceNames": ["projects/${project}"],
                },
            },
        }
    )
    body = {
        "displayName": f"{stack.name} (tonnage)",
        "mosaicLayout": {"columns": PAGE_WIDTH, "tiles": tiles},
    }
    return [
        Resource(
            type="gcp:monitoring/dashboard:Dashboard",
            name="dashboard",
            inputs={"dashboardJson": json.dumps(body, sort_keys=True)},
            # A chart of a metric that nobody has described yet is refused.
            depends_on=tuple(
                sorted(
                    f"{metric.name.lower()}-metric"
                    for metrics in shown.values()
                    for metric in metrics
                )
            ),
        )
    ]


def _line(stack: StackSpec, metric: Metric) -> dict[str, Any]:
    """The mean of a metric over the machines of each scaling group."""
    metric_filter = (
        f'metric.type="{observe.metric_prefix(stack)}/{metric.name.lower()}" '
        'resource.type="gce_instance"'
    )
    return {
        "timeSeriesQuery": {
            "timeSeriesFilter": {
                "filter": metric_filter,
                "aggregation": {
                    "alignmentPeriod": "60s",
                    "perSeriesAligner": "ALIGN_MEAN",
                    "crossSeriesReducer": "REDUCE_MEAN",
                    "groupByFields": ["metric.label.group"],
                },
            }
        },
        "legendTemplate": f"{metric.name} ${{metric.labels.group}}",
        "plotType": "LINE",
        "targetAxis": "Y1",
    }

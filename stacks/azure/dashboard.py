"""One page of the portal that shows a stack: what its machines tell, and what they have written.

It is a dashboard, not a workbook: the text of a workbook cannot refer to other resources.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from stacks.azure.identity import common_inputs
from stacks.azure.observe import LOG_TABLE
from stacks.graph import Resource, ref
from stacks.spec.metric import NAMESPACE, charts

if TYPE_CHECKING:
    from stacks.spec.metric import Metric
    from stacks.spec.stack import StackSpec

CHART_PART: Final = "Extension/HubsExtension/PartType/MonitorChartPart"
LOG_PART: Final = (
    "Extension/Microsoft_OperationsManagementSuite_Workspace/PartType/"
    "LogsDashboardPart"
)
CHART_WIDTH: Final = 6
CHART_HEIGHT: Final = 4
LOG_HEIGHT: Final = 6
# Numbers of the portal: the mean of a metric, and a chart of lines.
AVERAGE: Final = 4
LINE_CHART: Final = 2


def resources(stack: StackSpec) -> list[Resource]:
    """The dashboard."""
    shown = charts(stack)
    parts = [
        {
            "position": {
                "x": number % 2 * CHART_WIDTH,
                "y": number // 2 * CHART_HEIGHT,
                "colSpan": CHART_WIDTH,
                "rowSpan": CHART_HEIGHT,
            },
            "metadata": _chart(stack, title, metrics),
        }
        for number, (title, metrics) in enumerate(shown.items())
    ]
    parts.append(
        {
            "position": {
                "x": 0,
                "y": -(-len(shown) // 2) * CHART_HEIGHT,
                "colSpan": 2 * CHART_WIDTH,
                "rowSpan": LOG_HEIGHT,
            },
            "metadata": _log_lines(),
        }
    )
    inputs = common_inputs(stack)
    return [
        Resource(
            type="azure-native:portal:Dashboard",
            name="dashboard",
            inputs={
                **inputs,
                "dashboardName": f"{stack.name}-dashboard",
                "tags": {
                    **stack.tags,
                    "hidden-title": f"{stack.name} (tonnage)",
                },
                "properties": {"lenses": [{"order": 0, "parts": parts}]},
            },
        )
    ]


def _chart(
    stack: StackSpec, title: str, metrics: list[Metric]
) -> dict[str, Any]:
    """A line for each metric of each scaling group."""
    lines = [
        {
            "resourceMetadata": {"id": ref(f"{group.name}-nodes")},
            "name": metric.name,
            "namespace": NAMESPACE,
            "aggregationType": AVERAGE,
            "metricVisualization": {
                "displayName": f"{metric.name} {group.name}"
            },
        }
        for metric in metrics
        for _, group in stack.scaling_groups
    ]
    chart = {
        "title": title,
        "titleKind": 1,
        "metrics": lines,
        "visualization": {"chartType": LINE_CHART},
    }
    return {
        "type": CHART_PART,
        "inputs": [
            {"name": "options", "isOptional": True},
            {"name": "sharedTimeRange", "isOptional": True},
        ],
        "settings": {"content": {"options": {"chart": chart}}},
    }


def _log_lines() -> dict[str, Any]:
    """The newest lines of the table of logs."""
    unset = (
        "resourceTypeMode",
        "ComponentId",
        "DashboardId",
        "DraftRequestParameters",
    )
    texts = {
        "Scope": {"resourceIds": [ref("logs")]},
        "Version": "2.0",
        "TimeRange": "P1D",
        "Query": f"{LOG_TABLE} | top 200 by TimeGenerated desc "
        "| project TimeGenerated, Pool, Machine, Source, Level, Line",
        "ControlType": "AnalyticsGrid",
        "PartTitle": "what machines have written",
        "IsQueryContainTimeRange": False,
    }
    return {
        "type": LOG_PART,
        "inputs": [
            *({"name": name, "isOptional": True} for name in unset),
            *(
                {"name": name, "value": text, "isOptional": True}
                for name, text in texts.items()
            ),
        ],
        "settings": {"content": {}},
    }

"""Where the logs of the machines go."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stacks.azure.identity import common_inputs
from stacks.graph import Resource, ref

if TYPE_CHECKING:
    from planner.plan.types import Properties
    from stacks.spec.stack import StackSpec

# What `stacks.azure.node` sends.
LOG_TABLE: Final = "Tonnage_CL"
LOG_STREAM: Final = "Custom-Tonnage"
LOG_COLUMNS: Final = ("Pool", "Machine", "Source", "Level", "Line", "Key")


def resources(stack: StackSpec) -> list[Resource]:
    """The workspace of the logs, its table, and how lines come there."""
    return [
        Resource(
            type="azure-native:operationalinsights:Workspace",
            name="logs",
            inputs={
                "workspaceName": log_name(stack),
                "sku": {"name": "PerGB2018"},
                "retentionInDays": 30,
                **common_inputs(stack),
            },
        ),
        *_log_resources(stack),
    ]


def log_name(stack: StackSpec) -> str:
    """The name of workspace, endpoint and rule; machines ask for the last two by it."""
    # One character less than Azure allows: the longest name of a stack is too long for it.
    return f"{stack.name[:39].rstrip('-')}-logs"


def _log_resources(stack: StackSpec) -> list[Resource]:
    """The table of the lines, where machines send them, and the rule that brings them there."""
    return [
        Resource(
            type="azure-native:operationalinsights:Table",
            name="log-table",
            inputs={
                "resourceGroupName": ref("group", "name"),
                "workspaceName": ref("logs", "name"),
                "tableName": LOG_TABLE,
                "plan": "Analytics",
                "schema": {
                    "name": LOG_TABLE,
                    "columns": _log_columns("dateTime"),
                },
            },
        ),
        Resource(
            type="azure-native:monitor:DataCollectionEndpoint",
            name="log-endpoint",
            inputs={
                "dataCollectionEndpointName": log_name(stack),
                "networkAcls": {"publicNetworkAccess": "Enabled"},
                **common_inputs(stack),
            },
        ),
        Resource(
            type="azure-native:monitor:DataCollectionRule",
            name="log-rule",
            inputs={
                "dataCollectionRuleName": log_name(stack),
                "dataCollectionEndpointId": ref("log-endpoint"),
                "streamDeclarations": {
                    LOG_STREAM: {"columns": _log_columns("datetime")}
                },
                "destinations": {
                    "logAnalytics": [
                        {"name": "logs", "workspaceResourceId": ref("logs")}
                    ]
                },
                "dataFlows": [
                    {
                        "streams": [LOG_STREAM],
                        "destinations": ["logs"],
                        "transformKql": "source",
                        "outputStream": f"Custom-{LOG_TABLE}",
                    }
                ],
                **common_inputs(stack),
            },
            # A rule to a table that is not there is refused.
            depends_on=("log-table",),
        ),
    ]


def _log_columns(time_type: str) -> list[Properties]:
    """The columns of a line; tables and rules write the type of a time differently."""
    return [
        {"name": "TimeGenerated", "type": time_type},
        *({"name": name, "type": "string"} for name in LOG_COLUMNS),
    ]

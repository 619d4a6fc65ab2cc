"""What gives machines back when their agents cannot: a logic app that looks at them by the clock.

Its definition is `watch.json`. Each scaling group has one of its own, and all share an identity.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from planner.cost.lifetime import release_time
from planner.units import SECONDS_PER_MINUTE
from stacks.azure import fabric, storage
from stacks.azure.identity import (
    BLOB_READER,
    METRICS_PUBLISHER,
    built_in_role,
    common_inputs,
    custom_role,
    role_grant,
    user_identity,
)
from stacks.graph import Resource, ref
from stacks.runtime.shell import read_script

if TYPE_CHECKING:
    from stacks.spec.fleet import FleetSpec, ScalingGroup
    from stacks.spec.stack import StackSpec

PERMISSIONS: Final = (
    "Microsoft.Compute/virtualMachines/read",
    "Microsoft.Compute/virtualMachineScaleSets/read",
    "Microsoft.Compute/virtualMachineScaleSets/delete/action",
    "Microsoft.Compute/virtualMachineScaleSets/virtualMachines/read",
    "Microsoft.Insights/metrics/read",
)


def resources(stack: StackSpec) -> list[Resource]:
    """Who the logic apps are and what they may do, and for each scaling group its logic app."""
    return [
        user_identity(stack, "watch"),
        custom_role(
            stack,
            "watch",
            "gives lost machines of the stack back",
            PERMISSIONS,
        ),
        role_grant(
            stack,
            "watch-machines",
            ref("group"),
            ref("watch-role"),
            "watch-identity",
        ),
        role_grant(
            stack,
            "watch-signs",
            ref("work"),
            built_in_role(BLOB_READER),
            "watch-identity",
        ),
        role_grant(
            stack,
            "watch-metrics",
            ref("group"),
            built_in_role(METRICS_PUBLISHER),
            "watch-identity",
        ),
        *(
            _logic_app(stack, fleet, group)
            for fleet, group in stack.scaling_groups
        ),
    ]


def _logic_app(
    stack: StackSpec, fleet: FleetSpec, group: ScalingGroup
) -> Resource:
    definition = json.loads(read_script("stacks.azure", "watch.json"))
    return Resource(
        type="azure-native:logic:Workflow",
        name=f"{group.name}-watch",
        inputs={
            **common_inputs(stack),
            "workflowName": f"{stack.group_name(group)}-watch",
            "state": "Enabled",
            "identity": {
                "type": "UserAssigned",
                "userAssignedIdentities": [ref("watch-identity")],
            },
            "definition": definition,
            "parameters": {
                "identity": {"value": ref("watch-identity")},
                "scale_set": {"value": ref(f"{group.name}-nodes")},
                "resource_group": {"value": ref("group")},
                "group": {"value": _settings(stack, fleet, group)},
            },
        },
        depends_on=("watch-machines", "watch-signs"),
    )


def _settings(
    stack: StackSpec, fleet: FleetSpec, group: ScalingGroup
) -> dict[str, Any]:
    """What the logic app knows of a group. Times are in minutes; 0 is no idle limit."""
    return {
        # Uniform sets number their machines after the last _, Flexible ones use the whole name.
        "region": stack.region,
        "numbers_machines": fabric.has_infiniband(fleet),
        "alive": f"https://{storage.account_name(stack)}.blob.core.windows.net"
        f"/work/alive/{group.name}/",
        "young_minutes": int(
            release_time("young_limit_s") / SECONDS_PER_MINUTE
        ),
        "silent_minutes": stack.silent_minutes,
        "idle_minutes": -(-(stack.outside_idle_s(fleet) or 0) // 60),
    }

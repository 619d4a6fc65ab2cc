"""Capacity that is given back: an autoscale setting with a profile for each change of the week.

A minimum starts machines, and would start one that left again, idle or not needed: so each change
has a short profile that starts, and one with minimum 0 after it. Capacities are text, and time
zones have Windows names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from planner.facts.cloud_limit import cloud_limit, timezone_name
from planner.solve.cloud_rule import PROFILE_LIMIT
from stacks.azure.identity import common_inputs
from stacks.graph import Resource, ref
from stacks.spec.table import stack_error

if TYPE_CHECKING:
    from planner.plan.types import Properties
    from planner.solve.capacity import CapacityChange
    from stacks.spec.fleet import ScalingGroup
    from stacks.spec.stack import StackSpec

START_MINUTES: Final = 30
WEEKDAY_NAMES: Final = (
    "Monday",
    "Tuesday",
    "Wednesday",
    "Thursday",
    "Friday",
    "Saturday",
    "Sunday",
)


def resources(stack: StackSpec) -> list[Resource]:
    """An autoscale setting for each group whose hours change or that has a deadline."""
    return [
        _autoscale_setting(stack, group)
        for _, group in stack.scaling_groups
        if group.capacity_changes or stack.ttl_s
    ]


def _autoscale_setting(stack: StackSpec, group: ScalingGroup) -> Resource:
    profiles = [
        {
            "name": "default",
            "capacity": _capacity_inputs(group.nodes, group.most_nodes),
            "rules": [],
        }
    ]
    if group.capacity_changes:
        windows_timezone = _windows_timezone(stack)
        for change_index, capacity_change in enumerate(group.capacity_changes):
            profiles.append(
                _weekly_profile(
                    f"week-{change_index}",
                    capacity_change,
                    windows_timezone,
                    _change_inputs(group, capacity_change, is_start=True),
                )
            )
            if (stack.idle_s or group.least_nodes) and capacity_change.nodes:
                started_change = replace(
                    capacity_change,
                    minute_of_day=min(
                        1439, capacity_change.minute_of_day + START_MINUTES
                    ),
                )
                profiles.append(
                    _weekly_profile(
                        f"week-{change_index}-started",
                        started_change,
                        windows_timezone,
                        _change_inputs(group, capacity_change, is_start=False),
                    )
                )
    if stack.ttl_s:
        profiles.append(_deadline_profile())
    max_profiles = cloud_limit(stack.provider, PROFILE_LIMIT)
    if max_profiles is not None and len(profiles) > max_profiles:
        message = f"the week needs {len(profiles)} autoscale profiles; Azure holds {max_profiles}"
        raise stack_error(
            message, "use a simpler traffic.profile, or another cloud"
        )
    return Resource(
        type="azure-native:monitor:AutoscaleSetting",
        name=f"{group.name}-hours",
        inputs={
            "autoscaleSettingName": f"{stack.group_name(group)}-hours",
            "enabled": True,
            "targetResourceUri": ref(f"{group.name}-nodes"),
            "profiles": profiles,
            **common_inputs(stack),
        },
    )


def backstop(stack: StackSpec) -> str:
    """What gives machines back when a node is wedged, in one line."""
    silence = f"{stack.silent_minutes} minutes without"
    mechanisms = [f"a logic app gives a machine back after {silence} its agent"]
    if stack.changes_capacity:
        mechanisms.append("autoscale profiles by the week")
    if stack.ttl_s:
        mechanisms.append("autoscale sets every scale set to 0 at the deadline")
    return "; ".join(mechanisms)


def _capacity_inputs(
    node_count: int, most_nodes: int, least_nodes: int = 0
) -> dict[str, str]:
    return {
        "minimum": str(least_nodes),
        "maximum": str(most_nodes),
        "default": str(node_count),
    }


def _change_inputs(
    group: ScalingGroup, capacity_change: CapacityChange, *, is_start: bool
) -> dict[str, str]:
    """The sizes from a change on; a start brings its machines, and lets none of them go."""
    nodes = capacity_change.nodes
    # Of an elastic group the machines of an opening are not the most.
    most_nodes = group.most_nodes if nodes and group.least_nodes else nodes
    return _capacity_inputs(nodes, most_nodes, nodes if is_start else 0)


def _weekly_profile(
    profile_name: str,
    capacity_change: CapacityChange,
    windows_timezone: str,
    capacity_inputs: dict[str, str],
) -> Properties:
    weekly_schedule = {
        "timeZone": windows_timezone,
        "days": [
            WEEKDAY_NAMES[weekday] for weekday in capacity_change.weekdays
        ],
        "hours": [capacity_change.minute_of_day // 60],
        "minutes": [capacity_change.minute_of_day % 60],
    }
    return {
        "name": profile_name,
        "capacity": capacity_inputs,
        "rules": [],
        "recurrence": {"frequency": "Week", "schedule": weekly_schedule},
    }


def _deadline_profile() -> Properties:
    fixed_date = {
        "timeZone": "UTC",
        "start": "${deadline.rfc3339}",
        "end": "${deadline.far}",
    }
    return {
        "name": "deadline",
        "capacity": _capacity_inputs(0, 0),
        "rules": [],
        "fixedDate": fixed_date,
    }


def _windows_timezone(stack: StackSpec) -> str:
    windows_name = timezone_name(stack.provider, stack.timezone)
    if windows_name is None:
        raise stack_error(
            f"no Windows name is known of time zone {stack.timezone}, which Azure needs",
            "use another time zone in shutdown.schedule, or another cloud",
        )
    return windows_name

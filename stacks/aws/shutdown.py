"""Capacity that is given back: hours of the week, and the deadline, enforced from outside."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from stacks.aws import identity
from stacks.graph import Resource, ref

if TYPE_CHECKING:
    from planner.solve.capacity import CapacityChange
    from stacks.spec.fleet import ScalingGroup
    from stacks.spec.stack import StackSpec

CRON_DAYS: Final = ("MON", "TUE", "WED", "THU", "FRI", "SAT", "SUN")
# The universal target of EventBridge Scheduler calls the API itself, so no code runs anywhere.
UPDATE_GROUP_ARN: Final = (
    "arn:aws:scheduler:::aws-sdk:autoscaling:updateAutoScalingGroup"
)


def resources(stack: StackSpec) -> list[Resource]:
    """A scheduled action for each change of the week, and the deadline's schedules."""
    return [
        *(
            _scheduled_action(
                stack, group, f"week-{change_index}", capacity_change
            )
            for _, group in stack.scaling_groups
            for change_index, capacity_change in enumerate(
                group.capacity_changes
            )
        ),
        *(_deadline_schedules(stack) if stack.ttl_s else []),
    ]


def backstop(stack: StackSpec) -> str:
    """What gives machines back when a node is wedged, in one line."""
    silence = f"{stack.silent_minutes} minutes without"
    mechanisms = [f"CloudWatch sets a group to 0 after {silence} agents"]
    if stack.changes_capacity:
        mechanisms.append("Auto Scaling scheduled actions")
    if stack.ttl_s:
        mechanisms.append(
            "EventBridge Scheduler sets every group to 0 at the deadline"
        )
    return "; ".join(mechanisms)


def _scheduled_action(
    stack: StackSpec,
    group: ScalingGroup,
    action_name: str,
    capacity_change: CapacityChange,
) -> Resource:
    """One scheduled action. Sizes that are left out would be sent as 0, so all are given.

    It ends with the deadline, or the next window would start the fleet again.
    """
    cron_days = ",".join(
        CRON_DAYS[weekday] for weekday in capacity_change.weekdays
    )
    schedule_inputs = {
        "scheduledActionName": action_name,
        "autoscalingGroupName": ref(f"{group.name}-nodes", "name"),
        "recurrence": (
            f"{capacity_change.minute_of_day % 60} "
            f"{capacity_change.minute_of_day // 60} * * {cron_days}"
        ),
        "timeZone": stack.timezone,
        "minSize": 0,
        "maxSize": capacity_change.nodes,
        "desiredCapacity": capacity_change.nodes,
    }
    if stack.ttl_s:
        schedule_inputs["endTime"] = "${deadline.rfc3339}"
    return Resource(
        type="aws:autoscaling/schedule:Schedule",
        name=f"{group.name}-{action_name}",
        inputs=schedule_inputs,
    )


def _deadline_schedules(stack: StackSpec) -> list[Resource]:
    """The role that sets groups to 0, and a schedule for each group."""
    return [
        identity.iam_role(stack, "deadline", "scheduler.amazonaws.com"),
        identity.scale_policy(stack, "deadline"),
        *(
            _deadline_schedule(stack, group)
            for _, group in stack.scaling_groups
        ),
    ]


def _deadline_schedule(stack: StackSpec, group: ScalingGroup) -> Resource:
    group_sizes = {
        "AutoScalingGroupName": stack.group_name(group),
        "MinSize": 0,
        "MaxSize": 0,
        "DesiredCapacity": 0,
    }
    return Resource(
        type="aws:scheduler/schedule:Schedule",
        name=f"{group.name}-deadline",
        inputs={
            "name": f"{stack.group_name(group)}-deadline",
            "scheduleExpression": "at(${deadline.at})",
            "scheduleExpressionTimezone": "UTC",
            "flexibleTimeWindow": {"mode": "OFF"},
            # DELETE would look like drift, and the next apply would create a past time.
            "actionAfterCompletion": "NONE",
            "target": {
                "arn": UPDATE_GROUP_ARN,
                "roleArn": ref("deadline", "arn"),
                "input": json.dumps(group_sizes, sort_keys=True),
                "retryPolicy": {
                    "maximumEventAgeInSeconds": 86_400,
                    "maximumRetryAttempts": 185,
                },
            },
        },
        depends_on=("deadline-scale", f"{group.name}-nodes"),
    )

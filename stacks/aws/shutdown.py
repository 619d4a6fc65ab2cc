"""Capacity that is given back: hours of the week, and the deadline, enforced from outside."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from stacks.aws import identity
from stacks.graph import Resource, ref

if TYPE_CHECKING:
    from stacks.stack_spec import StackSpec

CRON_DAYS: Final = ("MON", "TUE", "WED", "THU", "FRI", "SAT", "SUN")
# The universal target of EventBridge Scheduler calls the API itself, so no code runs anywhere.
UPDATE_GROUP_ARN: Final = (
    "arn:aws:scheduler:::aws-sdk:autoscaling:updateAutoScalingGroup"
)


def resources(stack: StackSpec) -> list[Resource]:
    """A scheduled action for each change of the week, and the deadline's schedule."""
    scheduled_actions = [
        _scheduled_action(stack, change_index)
        for change_index in range(len(stack.capacity_changes))
    ]
    return [
        *scheduled_actions,
        *(_deadline_schedule(stack) if stack.ttl_s else []),
    ]


def backstop(stack: StackSpec) -> str:
    """What gives machines back when a node is wedged, in one line."""
    mechanisms = (
        ["Auto Scaling scheduled actions"] if stack.capacity_changes else []
    )
    mechanisms += (
        ["EventBridge Scheduler sets the group to 0 at the deadline"]
        if stack.ttl_s
        else []
    )
    return "; ".join(mechanisms)


def _scheduled_action(stack: StackSpec, change_index: int) -> Resource:
    """One scheduled action. Sizes that are left out would be sent as 0, so all are given.

    It ends with the deadline, or the next window would start the fleet again.
    """
    capacity_change = stack.capacity_changes[change_index]
    cron_days = ",".join(
        CRON_DAYS[weekday] for weekday in capacity_change.weekdays
    )
    schedule_inputs = {
        "scheduledActionName": f"week-{change_index}",
        "autoscalingGroupName": ref("nodes", "name"),
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
        name=f"week-{change_index}",
        inputs=schedule_inputs,
    )


def _deadline_schedule(stack: StackSpec) -> list[Resource]:
    group_sizes = {
        "AutoScalingGroupName": identity.group_name(stack),
        "MinSize": 0,
        "MaxSize": 0,
        "DesiredCapacity": 0,
    }
    return [
        identity.iam_role(stack, "deadline", "scheduler.amazonaws.com"),
        identity.scale_policy(stack, "deadline"),
        Resource(
            type="aws:scheduler/schedule:Schedule",
            name="deadline-schedule",
            inputs={
                "name": f"{stack.name}-deadline",
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
            depends_on=("deadline-scale", "nodes"),
        ),
    ]

"""Capacity that is given back: hours of the week, and the deadline, enforced from outside."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from stacks.aws import identity
from stacks.graph import Resource, ref
from stacks.spec.block import first_moment, last_moment

if TYPE_CHECKING:
    from planner.solve.capacity import CapacityChange
    from planner.spec.block import CapacityBlock
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
        *(
            _block_start(fleet.block, group)
            for fleet, group in stack.scaling_groups
            if fleet.block is not None
        ),
        *_end_schedules(stack),
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
    if stack.has_block:
        mechanisms.append(
            "EventBridge Scheduler sets every group to 0 before the block ends"
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
        "maxSize": group.most_nodes
        if group.least_nodes and capacity_change.nodes
        else capacity_change.nodes,
        "desiredCapacity": capacity_change.nodes,
    }
    if stack.ttl_s:
        schedule_inputs["endTime"] = "${deadline.rfc3339}"
    return Resource(
        type="aws:autoscaling/schedule:Schedule",
        name=f"{group.name}-{action_name}",
        inputs=schedule_inputs,
    )


def _block_start(block: CapacityBlock, group: ScalingGroup) -> Resource:
    """The scheduled action that brings the machines of a block when it begins.

    A time that is over would be refused, so it is some minutes after the apply then.
    """
    start = f"${{from.{first_moment(block):%Y%m%dT%H%M%SZ}}}"
    return Resource(
        type="aws:autoscaling/schedule:Schedule",
        name=f"{group.name}-block-start",
        inputs={
            "scheduledActionName": "block-start",
            "autoscalingGroupName": ref(f"{group.name}-nodes", "name"),
            "startTime": start,
            "minSize": 0,
            "maxSize": group.nodes,
            "desiredCapacity": group.nodes,
        },
    )


def _end_schedules(stack: StackSpec) -> list[Resource]:
    """The role that sets groups to 0, and a schedule for each group and end; nothing without one.

    A group has an end at the deadline, and before that of its capacity block.
    """
    schedules = [
        _end_schedule(stack, group, name, at)
        for fleet, group in stack.scaling_groups
        for name, at in (
            ("deadline", "${deadline.at}" if stack.ttl_s else ""),
            (
                "block-end",
                f"{last_moment(fleet.block):%Y-%m-%dT%H:%M:%S}"
                if fleet.block is not None
                else "",
            ),
        )
        if at
    ]
    if not schedules:
        return []
    return [
        identity.iam_role(stack, "deadline", "scheduler.amazonaws.com"),
        identity.scale_policy(stack, "deadline"),
        *schedules,
    ]


def _end_schedule(
    stack: StackSpec, group: ScalingGroup, name: str, at: str
) -> Resource:
    group_sizes = {
        "AutoScalingGroupName": stack.group_name(group),
        "MinSize": 0,
        "MaxSize": 0,
        "DesiredCapacity": 0,
    }
    return Resource(
        type="aws:scheduler/schedule:Schedule",
        name=f"{group.name}-{name}",
        inputs={
            "name": f"{stack.group_name(group)}-{name}",
            "scheduleExpression": f"at({at})",
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

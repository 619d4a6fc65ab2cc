"""Capacity that is given back: hours of the week, and the deadline, enforced from outside."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from stacks.aws import identity
from stacks.graph import Resource, ref

if TYPE_CHECKING:
    from stacks.site import Site

CRON_DAYS: Final = ("MON", "TUE", "WED", "THU", "FRI", "SAT", "SUN")
# The universal target of EventBridge Scheduler calls the API itself, so no code runs anywhere.
TARGET: Final = "arn:aws:scheduler:::aws-sdk:autoscaling:updateAutoScalingGroup"


def resources(site: Site) -> list[Resource]:
    """A scheduled action for each change of the week, and the deadline's schedule."""
    found = [_change(site, index) for index in range(len(site.changes))]
    return [*found, *(_deadline(site) if site.ttl else [])]


def backstop(site: Site) -> str:
    """What gives machines back when a node is wedged, in one line."""
    found = ["Auto Scaling scheduled actions"] if site.changes else []
    found += (
        ["EventBridge Scheduler sets the group to 0 at the deadline"]
        if site.ttl
        else []
    )
    return "; ".join(found)


def _change(site: Site, index: int) -> Resource:
    """One scheduled action. Sizes that are left out would be sent as 0, so all are given.

    It ends with the deadline, or the next window would start the fleet again.
    """
    change = site.changes[index]
    days = ",".join(CRON_DAYS[d] for d in change.days)
    inputs = {
        "scheduledActionName": f"week-{index}",
        "autoscalingGroupName": ref("nodes", "name"),
        "recurrence": f"{change.minute % 60} {change.minute // 60} * * {days}",
        "timeZone": site.timezone,
        "minSize": 0,
        "maxSize": change.nodes,
        "desiredCapacity": change.nodes,
    }
    if site.ttl:
        inputs["endTime"] = "${deadline.rfc3339}"
    return Resource(
        type="aws:autoscaling/schedule:Schedule",
        name=f"week-{index}",
        inputs=inputs,
    )


def _deadline(site: Site) -> list[Resource]:
    sizes = {
        "AutoScalingGroupName": identity.group(site),
        "MinSize": 0,
        "MaxSize": 0,
        "DesiredCapacity": 0,
    }
    return [
        identity.role(site, "deadline", "scheduler.amazonaws.com"),
        identity.scale_policy(site, "deadline"),
        Resource(
            type="aws:scheduler/schedule:Schedule",
            name="deadline-schedule",
            inputs={
                "name": f"{site.name}-deadline",
                "scheduleExpression": "at(${deadline.at})",
                "scheduleExpressionTimezone": "UTC",
                "flexibleTimeWindow": {"mode": "OFF"},
                # DELETE would look like drift, and the next apply would create a past time.
                "actionAfterCompletion": "NONE",
                "target": {
                    "arn": TARGET,
                    "roleArn": ref("deadline", "arn"),
                    "input": json.dumps(sizes, sort_keys=True),
                    "retryPolicy": {
                        "maximumEventAgeInSeconds": 86_400,
                        "maximumRetryAttempts": 185,
                    },
                },
            },
            depends_on=("deadline-scale", "nodes"),
        ),
    ]

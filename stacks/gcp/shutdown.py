"""Capacity that is given back: scheduler jobs that set the size of the group from outside.

A cron line has no year. A deadline less than a year away fires once; the job that stays behind
sets an empty group to nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stacks.gcp import network
from stacks.graph import Resource, ref
from stacks.spec.block import first_moment, last_moment

if TYPE_CHECKING:
    from planner.plan.types import Properties
    from planner.spec.block import CapacityBlock
    from stacks.spec.fleet import FleetSpec, ScalingGroup
    from stacks.spec.stack import StackSpec

CRON_DAYS: Final = (1, 2, 3, 4, 5, 6, 0)
DEADLINE_SCHEDULE: Final = ("${deadline.cron}", "Etc/UTC")


def resources(stack: StackSpec) -> list[Resource]:
    """For each group a job for each change of the week, and for each end that is known."""
    return [
        scheduler_job
        for fleet, group in stack.scaling_groups
        for scheduler_job in _group_jobs(stack, fleet, group)
    ]


def _group_jobs(
    stack: StackSpec, fleet: FleetSpec, group: ScalingGroup
) -> list[Resource]:
    scheduler_jobs = []
    for change_index, capacity_change in enumerate(group.capacity_changes):
        cron_days = ",".join(
            str(CRON_DAYS[weekday]) for weekday in capacity_change.weekdays
        )
        cron_line = (
            f"{capacity_change.minute_of_day % 60} "
            f"{capacity_change.minute_of_day // 60} * * {cron_days}"
        )
        scheduler_jobs.append(
            _clock_job(
                stack,
                group,
                f"week-{change_index}",
                (cron_line, stack.timezone),
                _resize_uri(stack, fleet, group, capacity_change.nodes),
            )
        )
    if fleet.block is not None:
        scheduler_jobs += _block_jobs(stack, fleet, group, fleet.block)
    if stack.ttl_s:
        scheduler_jobs.append(
            _clock_job(
                stack,
                group,
                "deadline",
                DEADLINE_SCHEDULE,
                _resize_uri(stack, fleet, group, 0),
            )
        )
        scheduler_jobs += [
            _clock_job(
                stack,
                group,
                f"deadline-week-{change_index}",
                DEADLINE_SCHEDULE,
                _pause_uri(stack, f"{group.name}-week-{change_index}"),
            )
            for change_index in range(len(group.capacity_changes))
        ]
    return scheduler_jobs


def _block_jobs(
    stack: StackSpec,
    fleet: FleetSpec,
    group: ScalingGroup,
    block: CapacityBlock,
) -> list[Resource]:
    """Return the jobs that bring the machines of a block when it begins, and end them before it.

    A start that is over is some minutes after the apply.
    """
    moments = (
        ("block-start", first_moment(block), group.nodes),
        ("block-end", last_moment(block), 0),
    )
    return [
        _clock_job(
            stack,
            group,
            name,
            (f"${{from.cron.{moment:%Y%m%dT%H%M%SZ}}}", "Etc/UTC"),
            _resize_uri(stack, fleet, group, nodes),
        )
        for name, moment, nodes in moments
    ]


def backstop(stack: StackSpec) -> str:
    """What gives machines back when a node is wedged, in one line."""
    silence = f"{stack.silent_minutes} minutes without"
    mechanisms = [f"a workflow gives a machine back after {silence} its agent"]
    if stack.changes_capacity:
        mechanisms.append("Cloud Scheduler sets the size by the week")
    if stack.ttl_s:
        mechanisms.append(
            "Cloud Scheduler sets every group to 0 at the deadline"
        )
    if stack.has_block:
        mechanisms.append(
            "Cloud Scheduler sets every group to 0 before the block ends"
        )
    return "; ".join(mechanisms)


def _resize_uri(
    stack: StackSpec, fleet: FleetSpec, group: ScalingGroup, node_count: int
) -> str:
    return (
        f"https://compute.googleapis.com/compute/v1/projects/${{project}}/zones/"
        f"{network.fleet_zone(fleet)}/instanceGroupManagers/{stack.group_name(group)}"
        f"/resize?size={node_count}"
    )


def _pause_uri(stack: StackSpec, job_name: str) -> str:
    """Pausing a weekly job keeps it from starting the fleet again after the deadline."""
    return (
        f"https://cloudscheduler.googleapis.com/v1/projects/${{project}}/locations/"
        f"{stack.region}/jobs/{stack.name}-{job_name}:pause"
    )


def _clock_job(
    stack: StackSpec,
    group: ScalingGroup,
    job_name: str,
    cron_schedule: tuple[str, str],
    target_uri: str,
) -> Resource:
    return scheduler_job(
        stack,
        group,
        job_name,
        cron_schedule,
        {"uri": target_uri},
        account="clock-account",
        depends_on=("clock-resize", f"{group.name}-nodes"),
    )


def scheduler_job(
    stack: StackSpec,
    group: ScalingGroup,
    job_name: str,
    cron_schedule: tuple[str, str],
    target: Properties,
    *,
    account: str,
    depends_on: tuple[str, ...],
) -> Resource:
    """A job that asks Google Cloud for something, as an account of the stack.

    `cron_schedule` is a line of cron, and its time zone.
    """
    oauth_token = {
        "serviceAccountEmail": ref(account, "email"),
        "scope": "https://www.googleapis.com/auth/cloud-platform",
    }
    job_inputs = {
        "name": f"{stack.group_name(group)}-{job_name}",
        "region": stack.region,
        "schedule": cron_schedule[0],
        "timeZone": cron_schedule[1],
        "attemptDeadline": "60s",
        "retryConfig": {"retryCount": 5, "minBackoffDuration": "30s"},
        "httpTarget": {
            **target,
            "httpMethod": "POST",
            "oauthToken": oauth_token,
        },
    }
    return Resource(
        type="gcp:cloudscheduler/job:Job",
        name=f"{group.name}-{job_name}",
        inputs=job_inputs,
        depends_on=depends_on,
    )

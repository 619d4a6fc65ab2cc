"""Capacity that is given back: scheduler jobs that set the size of the group from outside.

A cron line has no year. A deadline less than a year away fires once; the job that stays behind
sets an empty group to nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stacks.gcp import fleet, network
from stacks.graph import Resource, ref

if TYPE_CHECKING:
    from stacks.site import Site

CRON_DAYS: Final = (1, 2, 3, 4, 5, 6, 0)
DEADLINE: Final = ("${deadline.cron}", "Etc/UTC")


def resources(site: Site) -> list[Resource]:
    """A job for each change of the week, and one for the deadline."""
    found = []
    for index, change in enumerate(site.changes):
        days = ",".join(str(CRON_DAYS[d]) for d in change.days)
        line = f"{change.minute % 60} {change.minute // 60} * * {days}"
        found.append(
            _job(
                site,
                f"week-{index}",
                (line, site.timezone),
                _resize(site, change.nodes),
            )
        )
    if site.ttl:
        found.append(_job(site, "deadline", DEADLINE, _resize(site, 0)))
        found += [
            _job(
                site,
                f"deadline-week-{index}",
                DEADLINE,
                _pause(site, f"week-{index}"),
            )
            for index in range(len(site.changes))
        ]
    return found


def backstop(site: Site) -> str:
    """What gives machines back when a node is wedged, in one line."""
    found = (
        ["Cloud Scheduler sets the size by the week"] if site.changes else []
    )
    found += (
        ["Cloud Scheduler sets the group to 0 at the deadline"]
        if site.ttl
        else []
    )
    return "; ".join(found)


def _resize(site: Site, nodes: int) -> str:
    return (
        f"https://compute.googleapis.com/compute/v1/projects/${{project}}/zones/"
        f"{network.zone(site)}/instanceGroupManagers/{fleet.group(site)}/resize?size={nodes}"
    )


def _pause(site: Site, job: str) -> str:
    """Pausing a weekly job keeps it from starting the fleet again after the deadline."""
    return (
        f"https://cloudscheduler.googleapis.com/v1/projects/${{project}}/locations/"
        f"{site.region}/jobs/{site.name}-{job}:pause"
    )


def _job(site: Site, name: str, when: tuple[str, str], uri: str) -> Resource:
    account = {
        "serviceAccountEmail": ref("clock-account", "email"),
        "scope": "https://www.googleapis.com/auth/cloud-platform",
    }
    inputs = {
        "name": f"{site.name}-{name}",
        "region": site.region,
        "schedule": when[0],
        "timeZone": when[1],
        "attemptDeadline": "60s",
        "retryConfig": {"retryCount": 5, "minBackoffDuration": "30s"},
        "httpTarget": {"uri": uri, "httpMethod": "POST", "oauthToken": account},
    }
    return Resource(
        type="gcp:cloudscheduler/job:Job",
        name=name,
        inputs=inputs,
        depends_on=("clock-resize", "nodes"),
    )

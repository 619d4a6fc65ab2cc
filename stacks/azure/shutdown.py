"""Capacity that is given back: an autoscale setting with a profile for each change of the week.

A minimum starts machines, and would start an idle one that left again: so each change has a short
profile that starts, and one with minimum 0 after it. Capacities are text, and time zones have
Windows names.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from stacks.azure.identity import common
from stacks.graph import Resource, ref
from stacks.site import refuse, table

if TYPE_CHECKING:
    from stacks.site import Change, Site

START_MINUTES: Final = 30
DAYS: Final = (
    "Monday",
    "Tuesday",
    "Wednesday",
    "Thursday",
    "Friday",
    "Saturday",
    "Sunday",
)


def resources(site: Site) -> list[Resource]:
    """The autoscale setting, when hours or a deadline are asked for."""
    if not site.changes and not site.ttl:
        return []
    profiles = [
        {"name": "default", "capacity": _capacity(site.nodes), "rules": []}
    ]
    if site.changes:
        zone = _zone(site)
        for index, change in enumerate(site.changes):
            profiles.append(
                _weekly(f"week-{index}", change, zone, str(change.nodes))
            )
            if site.idle and change.nodes:
                later = replace(
                    change, minute=min(1439, change.minute + START_MINUTES)
                )
                profiles.append(
                    _weekly(f"week-{index}-started", later, zone, "0")
                )
    if site.ttl:
        profiles.append(_deadline())
    most = int(
        table("limits.csv", "limit", "value")["azure_autoscale_profiles"]
    )
    if len(profiles) > most:
        message = f"the week needs {len(profiles)} autoscale profiles; Azure holds {most}"
        raise refuse(message, "use a simpler traffic.profile, or another cloud")
    return [
        Resource(
            type="azure-native:monitor:AutoscaleSetting",
            name="hours",
            inputs={
                "autoscaleSettingName": f"{site.name}-hours",
                "enabled": True,
                "targetResourceUri": ref("nodes"),
                "profiles": profiles,
                **common(site),
            },
        )
    ]


def backstop(site: Site) -> str:
    """What gives machines back when a node is wedged, in one line."""
    found = ["autoscale profiles by the week"] if site.changes else []
    found += (
        ["autoscale sets the scale set to 0 at the deadline"]
        if site.ttl
        else []
    )
    return "; ".join(found)


def _capacity(nodes: int) -> dict[str, str]:
    return {"minimum": "0", "maximum": str(nodes), "default": str(nodes)}


def _weekly(name: str, change: Change, zone: str, least: str) -> dict[str, Any]:
    schedule = {
        "timeZone": zone,
        "days": [DAYS[d] for d in change.days],
        "hours": [change.minute // 60],
        "minutes": [change.minute % 60],
    }
    capacity = {
        "minimum": least,
        "maximum": str(change.nodes),
        "default": str(change.nodes),
    }
    return {
        "name": name,
        "capacity": capacity,
        "rules": [],
        "recurrence": {"frequency": "Week", "schedule": schedule},
    }


def _deadline() -> dict[str, Any]:
    dates = {
        "timeZone": "UTC",
        "start": "${deadline.rfc3339}",
        "end": "${deadline.far}",
    }
    return {
        "name": "deadline",
        "capacity": _capacity(0),
        "rules": [],
        "fixedDate": dates,
    }


def _zone(site: Site) -> str:
    known = table("timezones.csv", "iana", "windows")
    if site.timezone not in known:
        message = f"no Windows name is known of time zone {site.timezone}, which Azure needs"
        raise refuse(message, "use one of: " + ", ".join(sorted(known)))
    return known[site.timezone]

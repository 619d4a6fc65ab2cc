"""What apply says outside the hours of a schedule: machines run at once, and wait for them."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import click

from planner import figures
from planner.spec.schedule import minutes_until_open, parse_schedule
from planner.units import MINUTES_PER_DAY, MINUTES_PER_HOUR

if TYPE_CHECKING:
    from datetime import datetime

    from planner.plan.types import Plan


def tell_closed_hours(plan: Plan, now: datetime) -> None:
    """Say until when machines of a new stack run that are made outside their hours, and the cost.

    usd = USD of all machines an hour * hours until the schedule opens
    A group gets its size when it is made; its schedule changes it at the next edge, which opens.
    """
    schedule = plan.shutdown.schedule
    if schedule is None or plan.stack.state_sha256 is not None:
        return
    *_, zone_name = parse_schedule(schedule)
    here = now.astimezone(ZoneInfo(zone_name))
    minute_of_week = (
        here.weekday() * MINUTES_PER_DAY
        + here.hour * MINUTES_PER_HOUR
        + here.minute
    )
    minutes = minutes_until_open(schedule, minute_of_week)
    if not minutes:
        return
    opens = here.replace(second=0, microsecond=0) + timedelta(minutes=minutes)
    usd = plan.cost.usd_hour * Decimal(minutes) / MINUTES_PER_HOUR
    click.echo(
        f"note: it is outside {schedule}. Machines start at once all the same, and may run "
        f"until the hours of {opens:%A %H:%M} end: {figures.dollars(usd)} for what is outside. "
        f"To give them back until then: tonnage stop {plan.stack.name}",
        err=True,
    )

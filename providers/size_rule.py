"""Rules by which clouds change the size of a group: every week, or once."""

from __future__ import annotations

from datetime import UTC, datetime, time, timedelta
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Iterator


class SizeRule(Struct, frozen=True, kw_only=True):
    """A change of the size of a group.

    group            id of the group, or its name in the cloud
    minimum          nodes that it then has at least
    maximum          nodes that it then has at most
    weekdays         days of the week, Monday is 0; empty for a change that happens once
    minute_of_day    minute of those days, in `timezone`
    at               time of a change that happens once
    until            time from which the rule is off; none: it stays
    """

    group: str
    minimum: int
    maximum: int
    weekdays: tuple[int, ...] = ()
    minute_of_day: int = 0
    timezone: str = "UTC"
    at: datetime | None = None
    until: datetime | None = None

    def times(self, begin: datetime, end: datetime) -> Iterator[datetime]:
        """Yield the times of the change after `begin` until `end`, in order."""
        last = end if self.until is None else min(end, self.until)
        if self.at is not None:
            if begin < self.at <= last:
                yield self.at
            return
        zone = ZoneInfo(self.timezone)
        clock_time = time(self.minute_of_day // 60, self.minute_of_day % 60)
        day = begin.astimezone(zone).date()
        while day <= last.astimezone(zone).date():
            moment = datetime.combine(day, clock_time, zone).astimezone(UTC)
            if day.weekday() in self.weekdays and begin < moment <= last:
                yield moment
            day += timedelta(days=1)


def yearly_moment(cron_line: str, after: datetime) -> datetime:
    """Return the first time after a moment that a cron line of a day of the year names, UTC."""
    minute, hour, day, month, _ = cron_line.split()
    moment = after.replace(
        month=int(month),
        day=int(day),
        hour=int(hour),
        minute=int(minute),
        second=0,
        microsecond=0,
    )
    return moment if moment > after else moment.replace(year=after.year + 1)

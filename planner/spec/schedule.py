"""Hours of the week as people write them: weekdays 07:00-20:00 Europe/Berlin."""

from __future__ import annotations

from functools import cache
from typing import Final

from planner.units import MINUTES_PER_DAY, MINUTES_PER_WEEK

DAYS: Final = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
DAY_GROUPS: Final = {"weekdays": DAYS[:5], "weekends": DAYS[5:], "daily": DAYS}


def parse_schedule(schedule: str) -> tuple[tuple[int, ...], int, int, str]:
    """Split a schedule into days, start and end in minutes, and time zone.

    Monday is day 0. An end at or before the start means the next day. Raises ValueError for an
    invalid time.
    """
    schedule_words = schedule.split()
    start_minute, end_minute = (
        _parse_minutes(time_text) for time_text in schedule_words[1].split("-")
    )
    return (
        _parse_days(schedule_words[0]),
        start_minute,
        end_minute,
        schedule_words[2] if len(schedule_words) > 2 else "UTC",
    )


@cache
def open_minutes(schedule: str | None) -> tuple[bool, ...]:
    """Say of each minute of a week, from Monday 00:00, whether a schedule is open in it.

    Without a schedule every minute is open.
    """
    if schedule is None:
        return (True,) * MINUTES_PER_WEEK
    weekdays, start_minute, end_minute, _ = parse_schedule(schedule)
    is_open = [False] * MINUTES_PER_WEEK
    duration_minutes = (
        end_minute - start_minute
    ) % MINUTES_PER_DAY or MINUTES_PER_DAY
    for weekday in weekdays:
        first_minute = weekday * MINUTES_PER_DAY + start_minute
        for minute in range(first_minute, first_minute + duration_minutes):
            # Sunday night runs on into Monday morning.
            is_open[minute % MINUTES_PER_WEEK] = True
    return tuple(is_open)


def minutes_until_open(schedule: str, minute_of_week: int) -> int:
    """Return the minutes from one of a week until a schedule is open; 0 while it is."""
    is_open = open_minutes(schedule)
    return next(
        minutes
        for minutes in range(MINUTES_PER_WEEK)
        if is_open[(minute_of_week + minutes) % MINUTES_PER_WEEK]
    )


def _parse_days(days_text: str) -> tuple[int, ...]:
    if days_text in DAY_GROUPS:
        return tuple(DAYS.index(day_name) for day_name in DAY_GROUPS[days_text])
    day_numbers: set[int] = set()
    for day_range in days_text.split(","):
        first_name, _, last_name = day_range.partition("-")
        first_day = DAYS.index(first_name)
        last_day = DAYS.index(last_name or first_name)
        day_numbers.update(
            # A range may wrap around the week, such as sat-mon.
            (first_day + day_offset) % 7
            for day_offset in range((last_day - first_day) % 7 + 1)
        )
    return tuple(sorted(day_numbers))


def _parse_minutes(time_text: str) -> int:
    hours, minutes = (int(number_text) for number_text in time_text.split(":"))
    # 24:00 is the end of a day.
    if hours > 24 or minutes > 59 or hours * 60 + minutes > 1440:
        raise ValueError(f"{time_text} is not a time of the day")
    return hours * 60 + minutes

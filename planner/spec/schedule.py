"""Hours of the week as people write them: weekdays 07:00-20:00 Europe/Berlin."""

from __future__ import annotations

from typing import Final

DAYS: Final = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
NAMED: Final = {"weekdays": DAYS[:5], "weekends": DAYS[5:], "daily": DAYS}


def window(schedule: str) -> tuple[tuple[int, ...], int, int, str]:
    """Split a schedule into days (Monday is 0), start and end in minutes, and time zone.

    An end at or before the start means the next day. Raises ValueError for a time that is none.
    """
    words = schedule.split()
    start, end = (_minutes(t) for t in words[1].split("-"))
    return _days(words[0]), start, end, words[2] if len(words) > 2 else "UTC"


def _days(text: str) -> tuple[int, ...]:
    if text in NAMED:
        return tuple(DAYS.index(d) for d in NAMED[text])
    found: set[int] = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        begin = DAYS.index(first)
        stop = DAYS.index(last or first)
        found.update((begin + i) % 7 for i in range((stop - begin) % 7 + 1))
    return tuple(sorted(found))


def _minutes(text: str) -> int:
    hours, minutes = (int(part) for part in text.split(":"))
    if hours > 24 or minutes > 59 or hours * 60 + minutes > 1440:
        raise ValueError(f"{text} is not a time of the day")
    return hours * 60 + minutes

"""Times of exports: seconds since 1970 in UTC, and the day."""

from __future__ import annotations

import re
from calendar import monthrange, timegm
from typing import TYPE_CHECKING, Final

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Iterator

UTC_TIME: Final = re.compile(
    r"(20\d\d)-(\d\d)-(\d\d)(?:[T ](\d\d):(\d\d)(?::(\d\d)(?:\.\d+)?)?)? ?(?:Z|UTC|\+00:00)?"
)
# Exports of Azure write days as people in the United States do.
US_DAY: Final = re.compile(r"(\d\d)/(\d\d)/(20\d\d)")


class ExportTime(Struct, frozen=True, order=True):
    """A time: seconds since 1970 in UTC, and its day as 2026-10-31."""

    s: int
    day: str


def parse_time(text: str) -> ExportTime:
    """Return a time of this century in UTC. Raises ValueError with a reason."""
    us_day = US_DAY.fullmatch(text)
    if us_day is not None:
        month_text, day_text, year_text = us_day.groups()
        text = f"{year_text}-{month_text}-{day_text}"
    found = UTC_TIME.fullmatch(text)
    if found is None:
        raise ValueError("is not a time in UTC such as 2026-10-31T00:00:00Z")
    year, month, day, hour, minute, second = (
        int(word or 0) for word in found.groups()
    )
    is_day = 1 <= month <= 12 and 1 <= day <= monthrange(year, month)[1]
    if not is_day or hour > 23 or minute > 59 or second > 59:
        raise ValueError("is not a time that there is")
    return ExportTime(
        timegm((year, month, day, hour, minute, second)),
        f"{year}-{month:02}-{day:02}",
    )


def days_between(first: str, last: str) -> Iterator[str]:
    """Yield all days from one to another, both included, as 2026-10-31."""
    first_year, last_year = int(first[:4]), int(last[:4])
    for year in range(first_year, last_year + 1):
        for month in range(1, 13):
            for day in range(1, monthrange(year, month)[1] + 1):
                name = f"{year}-{month:02}-{day:02}"
                if first <= name <= last:
                    yield name

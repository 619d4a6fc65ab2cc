"""Months as the calendar has them: some are longer, and some have more working days."""

from __future__ import annotations

from calendar import monthrange
from typing import TYPE_CHECKING, Final

from planner.units import (
    DAYS_PER_MONTH,
    DAYS_PER_WEEK,
    MONTHS_PER_YEAR,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

# With a leap day among them, and with months that start on every day of the week.
YEARS: Final = 4


def month_factors(
    first_year: int, weekly_nodes: Sequence[int]
) -> Iterator[tuple[float, float]]:
    """Yield each month of four years against a month of 730 hours: its hours, and node-hours.

    hours       days * 24 / 730
    node-hours  nodes of its days / (nodes of a week * 730 / 168)
    `weekly_nodes` are the nodes of equal parts of a week, such as its minutes, from Monday on.
    """
    parts_per_day = len(weekly_nodes) // DAYS_PER_WEEK
    daily_nodes = [
        sum(weekly_nodes[start : start + parts_per_day])
        for start in range(0, len(weekly_nodes), parts_per_day)
    ]
    days_per_month = float(DAYS_PER_MONTH)
    mean_nodes = sum(daily_nodes) / DAYS_PER_WEEK * days_per_month
    for month in range(MONTHS_PER_YEAR * YEARS):
        years, month_of_year = divmod(month, MONTHS_PER_YEAR)
        first_weekday, days = monthrange(first_year + years, month_of_year + 1)
        nodes = sum(
            daily_nodes[(first_weekday + day) % DAYS_PER_WEEK]
            for day in range(days)
        )
        yield days / days_per_month, nodes / mean_nodes

"""Months of the calendar: against the hours of the standard library's dates, one by one."""

from __future__ import annotations

from collections import defaultdict
from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.cost.calendar_month import month_factors


@given(
    st.integers(2024, 2032),
    st.lists(st.integers(0, 9), min_size=168, max_size=168).filter(any),
)
def test_a_month_has_the_hours_of_its_days(
    year: int, hourly_nodes: list[int]
) -> None:
    hours: defaultdict[tuple[int, int], int] = defaultdict(int)
    node_hours: defaultdict[tuple[int, int], int] = defaultdict(int)
    now = datetime(year, 1, 1)  # noqa: DTZ001 - hours of a clock without a zone
    while now.year < year + 4:
        month = (now.year, now.month)
        hours[month] += 1
        node_hours[month] += hourly_nodes[24 * now.weekday() + now.hour]
        now += timedelta(hours=1)
    mean = sum(hourly_nodes) / 168 * 730
    assert list(month_factors(year, hourly_nodes)) == [
        pytest.approx((hours[month] / 730, node_hours[month] / mean))
        for month in sorted(hours)
    ]


def test_the_months_of_four_years_are_months_of_730_hours_in_the_mean() -> None:
    factors = list(month_factors(2026, (1,) * 168))
    assert len(factors) == 48
    # 1461 days of four years are 48.03 months of 730 hours.
    assert sum(hours for hours, _ in factors) == pytest.approx(1461 * 24 / 730)

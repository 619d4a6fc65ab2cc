"""The hours of a week: what they cost adds up to the bill of the machines."""

from __future__ import annotations

from decimal import Decimal

import pytest

from planner.cost.bill_line import MACHINE_KIND
from planner.units import HOURS_PER_MONTH, HOURS_PER_WEEK
from planner.workload.hourly_fleet import hourly_fleet
from tests.conftest import chat, find, present, spec_of

CASES = {
    "by the load": "",
    "by hours of the day": "shutdown: {schedule: weekdays 08:30-19:00 UTC}",
    "committed": "buy: {commit: [1y]}",
    "a mix": "buy: {commit: [none, 1y]}",
}


@pytest.mark.parametrize("extra", CASES.values(), ids=CASES)
def test_a_month_of_such_weeks_is_the_bill_of_the_machines(
    catalog, extra: str
) -> None:
    """730 / 168 weeks; a schedule may end within an hour."""
    text = chat(traffic="peak_rps: 20\n  profile: business-hours", extra=extra)
    solution = find(catalog, text, keep=0)
    hours = hourly_fleet(solution, spec_of(text).shutdown.schedule)
    assert len(hours) == HOURS_PER_WEEK
    billed = sum(
        (
            present(line.usd)
            for line in present(solution.bill).lines
            if line.kind == MACHINE_KIND
        ),
        Decimal(0),
    )
    month = (
        sum((hour.usd for hour in hours), Decimal(0))
        / HOURS_PER_WEEK
        * HOURS_PER_MONTH
    )
    # Each line of the bill is rounded to the cent.
    assert abs(month - billed) < Decimal("0.05")


def test_nothing_runs_outside_the_schedule(catalog) -> None:
    text = chat(extra="shutdown: {schedule: weekdays 09:00-17:00 UTC}")
    solution = find(catalog, text, keep=0)
    hours = hourly_fleet(solution, spec_of(text).shutdown.schedule)
    running = [number for number, hour in enumerate(hours) if hour.nodes]
    assert running == [
        day * 24 + hour for day in range(5) for hour in range(9, 17)
    ]
    assert all(
        hour.load == 0 for n, hour in enumerate(hours) if n not in running
    )


def test_the_busiest_hour_has_all_machines(catalog) -> None:
    text = chat(traffic="peak_rps: 40")
    solution = find(catalog, text, keep=0)
    hours = hourly_fleet(solution, None)
    [pool] = solution.pools
    assert max(hour.nodes for hour in hours) == pool.nodes
    assert min(hour.nodes for hour in hours) == pool.min_nodes


def test_a_job_has_no_week(catalog) -> None:
    text = """
apiVersion: tonnage/v1
kind: Batch
name: sums
model: {name: llama-3.1-8b}
deadline: 20h
traffic:
  total_requests: 20000
  input_tokens: {mean: 900, p95: 3000}
  output_tokens: {mean: 200, p95: 600}
"""
    assert hourly_fleet(find(catalog, text, keep=0), None) == ()

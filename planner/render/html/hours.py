"""A fleet by the hour of the week: its machines, and what they cost."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from planner import figures
from planner.render.html import axis_text
from planner.render.html.figure import Figure, Section
from planner.render.html.plot import Axis
from planner.render.html.week import week_drawing
from planner.render.page import PageTable
from planner.render.week import DAYS, days_text
from planner.units import HOURS_PER_DAY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from planner.plan.types import Plan
    from planner.workload.hourly_fleet import FleetHour


def hours_section(plan: Plan, hours: Sequence[FleetHour]) -> Section | None:
    """Return machines and cost by the hour; nothing of a job."""
    if not hours:
        return None
    nodes = [hour.nodes for hour in hours]
    usd = [hour.usd for hour in hours]
    zone = plan.shutdown.schedule or "UTC"
    return Section(
        key="week",
        title="By the hour of the week",
        content=(
            Figure(
                key="machines",
                title="Machines by the hour",
                summary=f"From {min(nodes)} to {max(nodes)} machines, Monday to Sunday "
                f"({zone}).",
                drawing=week_drawing(
                    nodes,
                    Axis("machines that run", axis_text.count_tick),
                    least_step=1,
                ),
                table=_hours_table(
                    hours,
                    (">load of the peak", ">machines"),
                    lambda hour: (
                        figures.percentage(hour.load),
                        f"{hour.nodes:,}",
                    ),
                ),
            ),
            Figure(
                key="cost",
                title="Cost of the machines by the hour",
                summary=f"From {figures.dollars(min(usd), cents=True)} to "
                f"{figures.dollars(max(usd), cents=True)} an hour, Monday to Sunday "
                f"({zone}); committed machines are paid also while they do not run.",
                drawing=week_drawing(
                    [float(hour_usd) for hour_usd in usd],
                    Axis("USD an hour", axis_text.money_tick),
                ),
                table=_hours_table(
                    hours,
                    (">USD an hour",),
                    lambda hour: (figures.dollars(hour.usd, cents=True),),
                ),
            ),
        ),
    )


def _hours_table(
    hours: Sequence[FleetHour],
    titles: tuple[str, ...],
    cells_of: Callable[[FleetHour], tuple[str, ...]],
) -> PageTable:
    """Return a row for each stretch of hours with the same cells, days that are alike together."""
    days: dict[tuple[tuple[str, ...], ...], list[int]] = {}
    for day in range(len(DAYS)):
        start = day * HOURS_PER_DAY
        of_day = tuple(map(cells_of, hours[start : start + HOURS_PER_DAY]))
        days.setdefault(of_day, []).append(day)
    return PageTable(
        ("days", "hours", *titles),
        tuple(
            (days_text(numbers), span, *cells)
            for of_day, numbers in days.items()
            for span, cells in _spans(of_day)
        ),
    )


def _spans(
    of_day: Sequence[tuple[str, ...]],
) -> Iterator[tuple[str, tuple[str, ...]]]:
    first = 0
    for cells, equal_hours in groupby(of_day):
        last = first + len(list(equal_hours))
        yield f"{first:02}:00 to {last:02}:00", cells
        first = last

"""The week of a service in one line: how much is asked for in each of its hours."""

from __future__ import annotations

from decimal import Decimal
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from planner import figures
from planner.cost.weekly_load import weekly_load
from planner.render.page import Paragraph
from planner.units import HOURS_PER_DAY

if TYPE_CHECKING:
    from collections.abc import Sequence

    from planner.cost.weekly_load import Week
    from planner.plan.part import Properties
    from planner.plan.types import Plan

DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
TITLE: Final = "  requests by the hour"
# So many different days fit into a line hour by hour; more are drawn with fewer cells each.
MOST_WHOLE_DAYS: Final = 2
HOURS_A_CELL: Final = 3
# A schedule keeps the machines off.
CLOSED: Final = "·"


def week_blocks(plan: Plan) -> list[Paragraph]:
    """Return the line of the week; nothing where it is asked for the same at all hours."""
    week = _week(plan.spec.normalized, plan.shutdown.schedule)
    if week is None or len(week.load_shares) == 1:
        return []
    days = _days(week)
    distinct: dict[str, list[int]] = {}
    for number, day in enumerate(days):
        distinct.setdefault(_cells(day, 1), []).append(number)
    if len(distinct) <= MOST_WHOLE_DAYS:
        phrases = [
            f"{days_text(numbers)} {cells}"
            for cells, numbers in distinct.items()
        ]
        return [Paragraph("  ".join([TITLE, *phrases]), "dim")]
    cells = " ".join(_cells(day, HOURS_A_CELL) for day in days)
    return [Paragraph(f"{TITLE}  {DAYS[0]} to {DAYS[-1]} {cells}", "dim")]


def _week(spec: Properties, schedule: str | None) -> Week | None:
    """Return the week that a spec asks for; none of what serves no requests as they come."""
    profile = (spec.get("traffic") or {}).get("profile")
    if profile is None:
        return None
    return weekly_load(_profile(profile), schedule)


def _profile(profile: str | Sequence[str]) -> str | tuple[Decimal, ...]:
    if isinstance(profile, str):
        return profile
    return tuple(map(Decimal, profile))


def _days(week: Week) -> list[tuple[float | None, ...]]:
    """Return the load of each hour of each day; none of an hour in which nothing runs."""
    hours = [
        load if share else None
        for load, share in zip(
            week.relative_load, week.running_share, strict=True
        )
    ]
    return [
        tuple(hours[start : start + HOURS_PER_DAY])
        for start in range(0, len(hours), HOURS_PER_DAY)
    ]


def _cells(day: Sequence[float | None], hours_a_cell: int) -> str:
    """Draw a day; a cell of several hours is as high as the busiest of them."""
    cells = []
    for start in range(0, len(day), hours_a_cell):
        loads = [
            load
            for load in day[start : start + hours_a_cell]
            if load is not None
        ]
        cells.append(figures.level(max(loads)) if loads else CLOSED)
    return "".join(cells)


def days_text(numbers: Sequence[int]) -> str:
    """Name days: those that follow each other by the first and the last."""
    names = [DAYS[number] for number in numbers]
    is_stretch = all(after == before + 1 for before, after in pairwise(numbers))
    if is_stretch and len(names) > 1:
        return f"{names[0]} to {names[-1]}"
    return ", ".join(names)

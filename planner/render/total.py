"""The page of several plans together: a row for each, and what all of them cost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from planner.plan.amount import add_amounts
from planner.plan.diff import machines_text, total_amount
from planner.render import period
from planner.render.bill import bound_mark
from planner.render.diff.wording import amount_text, period_name
from planner.render.page import (
    LINE_WIDTH,
    Page,
    PageTable,
    Paragraph,
)
from planner.render.token_cost import token_cells, token_titles

if TYPE_CHECKING:
    from collections.abc import Sequence

    from planner.plan.types import Period, Plan
    from planner.render.page import Tone

# Costs of different periods are never added up.
PERIODS: Final[tuple[Period, ...]] = ("month", "run", "life")
NO_FLEET: Final = "nothing meets it"


def total_page(plans: Sequence[Plan]) -> Page:
    """Return what plans cost together: months, runs and lives each have a total of their own."""
    # Any tokens and requests have the same titles: those of all that the plans count.
    titles = max(
        (token_titles(plan.cost.tokens) for plan in plans), key=len, default=()
    )
    rows = [
        _filled(_plan_row(plan), _token_row(plan), len(titles))
        for plan in plans
    ]
    # Tokens of two models are never added up.
    totals = [_filled(row, (), len(titles)) for row in total_rows(plans)]
    return (
        Paragraph(""),
        Paragraph(f"{len(plans)} specs together", "strong"),
        PageTable(
            ("spec", "machines", ">cost", *titles),
            (*rows, *totals),
            _tones(len(rows), len(totals)),
            LINE_WIDTH,
        ),
    )


def _filled(
    row: tuple[str, ...], cells: tuple[str, ...], count: int
) -> tuple[str, ...]:
    """Return a row with so many cells more, empty after those that there are."""
    return (*row, *cells, *("",) * (count - len(cells)))


def _token_row(plan: Plan) -> tuple[str, ...]:
    """Return what the tokens and requests of a plan cost; nothing without a fleet or tokens."""
    if not plan.is_feasible:
        return ()
    return token_cells(plan.cost.tokens, plan.cost.total, bound_mark(plan))


def total_rows(plans: Sequence[Plan]) -> list[tuple[str, ...]]:
    """Return a row for each period with its name and, last, what is paid in it."""
    feasible = [plan for plan in plans if plan.is_feasible]
    return [
        _total_row(name, same)
        for name in PERIODS
        if (same := [plan for plan in feasible if plan.cost.period == name])
    ]


def _plan_row(plan: Plan) -> tuple[str, ...]:
    if not plan.is_feasible:
        return plan.spec.path, NO_FLEET, "-"
    machines = ", ".join(map(machines_text, plan.solution.pools))
    cost_text = amount_text(total_amount(plan))
    return (
        plan.spec.path,
        machines,
        f"{cost_text}{period.UNITS[plan.cost.period]}",
    )


def _total_row(name: Period, plans: Sequence[Plan]) -> tuple[str, ...]:
    total = add_amounts(map(total_amount, plans))
    return (
        f"total {period_name(name, len(plans))}",
        "",
        f"{amount_text(total)}{period.UNITS[name]}",
    )


def _tones(row_count: int, total_count: int) -> tuple[Tone, ...]:
    plain_tone: Tone = ""
    strong_tone: Tone = "strong"
    return (plain_tone,) * row_count + (strong_tone,) * total_count

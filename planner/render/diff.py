"""Page of the difference of two plans."""

from __future__ import annotations

from typing import TYPE_CHECKING

from planner import figures
from planner.render import period
from planner.render.page import (
    Block,
    Page,
    PageTable,
    Paragraph,
    total_row_tones,
)

if TYPE_CHECKING:
    from decimal import Decimal

    from planner.plan.diff import PlanChange, PlanDiff


def diff_page(diffs: tuple[PlanDiff, ...], side_names: tuple[str, str]) -> Page:
    """Return the page of the differences; `side_names` are the old and the new file."""
    page_blocks: list[Block] = [
        Paragraph(
            f"{side_names[0]} -> {side_names[1]}   catalog fixed on both sides",
            "dim",
        )
    ]
    for plan_diff in diffs:
        page_blocks += _workload_blocks(plan_diff)
    return tuple(page_blocks)


def _workload_blocks(plan_diff: PlanDiff) -> list[Block]:
    if not plan_diff.changes and plan_diff.is_comparable:
        period_suffix = period.SUFFIXES[plan_diff.period]
        cost_text = figures.dollars(plan_diff.usd_after)
        return [
            Paragraph(
                f"{plan_diff.name}: no change, {cost_text}{period_suffix}"
            )
        ]
    page_blocks: list[Block] = [
        Paragraph(
            f"{diff_change.mark} {diff_change.name}  {diff_change.before or 'nothing'} -> "
            f"{diff_change.after or 'nothing'}"
        )
        for diff_change in plan_diff.changes
        # Machines are in a line above the table, their cost is in a row.
        if diff_change.subject == "pool"
    ]
    is_comparable = plan_diff.is_comparable
    table_rows = [
        _change_row(diff_change, is_comparable=is_comparable)
        for diff_change in plan_diff.changes
    ]
    # With an unknown price the total is a lower bound.
    partial_mark = ">= " if plan_diff.partial else ""
    table_rows.append(
        (
            "",
            "total",
            "",
            _dollars_cents(plan_diff.usd_before),
            f"{partial_mark}{_dollars_cents(plan_diff.usd_after)}",
            _total_change(plan_diff),
        )
    )
    cost_title = f">{period.AMOUNTS[plan_diff.period_before]}"
    then_title = (
        ">then"
        if is_comparable
        else f">then, {period.AMOUNTS[plan_diff.period]}"
    )
    column_titles = (
        "",
        plan_diff.name,
        ">quantity",
        cost_title,
        then_title,
        ">change",
    )
    return [
        *page_blocks,
        PageTable(
            column_titles, tuple(table_rows), total_row_tones(len(table_rows))
        ),
    ]


def _total_change(plan_diff: PlanDiff) -> str:
    """The difference of the totals; between two periods there is none."""
    if plan_diff.delta_usd is None:
        return "-"
    return (
        f"{figures.signed_dollars(plan_diff.delta_usd)} "
        f"({figures.signed_percent(plan_diff.delta_percent)})"
    )


def _change_row(
    diff_change: PlanChange, *, is_comparable: bool
) -> tuple[str, ...]:
    line_name = diff_change.name
    quantity_text = f"{diff_change.before or '-'} -> {diff_change.after or '-'}"
    if diff_change.subject == "pool":
        line_name = "machines"
        quantity_text = ""
    return (
        diff_change.mark,
        line_name,
        quantity_text,
        _dollars_cents(diff_change.usd_before),
        _dollars_cents(diff_change.usd_after),
        figures.signed_dollars(diff_change.delta_usd) if is_comparable else "-",
    )


def _dollars_cents(amount_usd: Decimal) -> str:
    return figures.dollars(amount_usd, cents=True)

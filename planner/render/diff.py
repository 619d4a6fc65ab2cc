"""The page of a difference between two plans."""

from __future__ import annotations

from typing import TYPE_CHECKING

from planner.render import words
from planner.render.page import Block, Page, Paragraph, Table, total_last

if TYPE_CHECKING:
    from planner.plan.diff import Change, Diff


def page(diffs: tuple[Diff, ...], sides: tuple[str, str]) -> Page:
    """Return the page of one or more workloads, old to new, with the catalog held fixed."""
    blocks: list[Block] = [
        Paragraph(
            f"{sides[0]} -> {sides[1]}   catalog fixed on both sides", "dim"
        )
    ]
    for found in diffs:
        blocks += _workload(found)
    return tuple(blocks)


def _workload(found: Diff) -> list[Block]:
    if not found.changes:
        period = "/mo" if found.period == "month" else ""
        cost = words.dollars(str(found.usd_after))
        return [Paragraph(f"{found.name}: no change, {cost}{period}")]
    blocks: list[Block] = [
        Paragraph(
            f"{item.mark} {item.name}  {item.before or 'nothing'} -> {item.after or 'nothing'}"
        )
        for item in found.changes
        if item.what == "pool"
    ]
    rows = [_row(item) for item in found.changes]
    mark = ">= " if found.partial else ""
    total = f"{words.change(found.delta)} ({words.percent(found.percent)})"
    rows.append(
        (
            "",
            "total",
            "",
            _usd(found.usd_before),
            f"{mark}{_usd(found.usd_after)}",
            total,
        )
    )
    now = ">USD a month" if found.period == "month" else ">USD of a run"
    columns = ("", found.name, ">quantity", now, ">then", ">change")
    return [*blocks, Table(columns, tuple(rows), total_last(len(rows)))]


def _row(item: Change) -> tuple[str, ...]:
    name, quantity = item.name, f"{item.before or '-'} -> {item.after or '-'}"
    if item.what == "pool":
        name, quantity = "machines", ""
    return (
        item.mark,
        name,
        quantity,
        _usd(item.usd_before),
        _usd(item.usd_after),
        words.change(item.delta),
    )


def _usd(value: object) -> str:
    return words.dollars(str(value), cents=True)

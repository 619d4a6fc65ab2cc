"""The page of a difference between two plans."""

from __future__ import annotations

from typing import TYPE_CHECKING

from planner.render import words
from planner.render.page import Block, Page, Paragraph, Table, total_last

if TYPE_CHECKING:
    from planner.plan.diff import Diff


def page(diffs: tuple[Diff, ...], sides: tuple[str, str]) -> Page:
    """Return the page of one or more workloads, old to new, with the catalog held fixed."""
    blocks: list[Block] = [
        Paragraph(f"{sides[0]} -> {sides[1]}   catalog fixed on both sides", "dim")
    ]
    for found in diffs:
        blocks += _workload(found)
    return tuple(blocks)


def _workload(found: Diff) -> list[Block]:
    if not found.changes:
        return [Paragraph(f"{found.name}: no change, {words.dollars(str(found.usd_after))}/mo")]
    rows: list[tuple[str, ...]] = []
    for item in found.changes:
        arrow = f"{item.before or '-'} -> {item.after or '-'}"
        money = f"{_usd(item.usd_before)} -> {_usd(item.usd_after)}"
        name = f"pool {item.name}" if item.what == "pool" else item.name
        rows.append((item.mark, name, arrow, money, words.change(item.delta)))
    mark = ">= " if found.partial else ""
    total = f"{_usd(found.usd_before)} -> {mark}{_usd(found.usd_after)}"
    rows.append(
        ("", "total", "", total, f"{words.change(found.delta)} ({words.percent(found.percent)})")
    )
    columns = ("", found.name, "", ">USD a month", ">change")
    return [Table(columns, tuple(rows), total_last(len(rows)))]


def _usd(value: object) -> str:
    return words.dollars(str(value), cents=True)

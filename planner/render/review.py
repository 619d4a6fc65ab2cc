"""Page of planned beside actual cost; as markdown it is the body of a pull request."""

from __future__ import annotations

from typing import TYPE_CHECKING

from planner import figures
from planner.render import period
from planner.render.page import (
    LINE_WIDTH,
    Block,
    Heading,
    Page,
    PageTable,
    Paragraph,
    total_row_tones,
)
from planner.render.usage import counted_text, time_text

if TYPE_CHECKING:
    from planner.plan.actual.review import (
        DifferenceCause,
        Move,
        Review,
        ReviewedLine,
    )


def review_page(reviewed: Review) -> Page:
    """Return the page of a review."""
    planned = figures.dollars(reviewed.planned_usd, cents=True)
    actual = figures.dollars(reviewed.actual_usd, cents=True)
    return (
        Heading(f"{reviewed.stack}: {actual}, planned {planned}"),
        Paragraph(
            f"{time_text(reviewed.time)}; planned: {', '.join(reviewed.fleet)}",
            "dim",
            LINE_WIDTH,
        ),
        Paragraph(_difference_text(reviewed), "strong", LINE_WIDTH),
        _line_table(reviewed),
        *_move_blocks(reviewed),
    )


def _difference_text(reviewed: Review) -> str:
    if not reviewed.difference_usd and not reviewed.causes:
        return "as planned"
    share = reviewed.difference_share
    percent = (
        "" if share is None else f" ({figures.signed_share(float(share))})"
    )
    return (
        f"{figures.signed_dollars(reviewed.difference_usd)}{percent}: "
        f"{_causes_text(reviewed.causes)}"
    )


def _causes_text(causes: tuple[DifferenceCause, ...]) -> str:
    return ", ".join(
        f"{part.cause} {figures.signed_dollars(part.usd)}" for part in causes
    )


def _line_table(reviewed: Review) -> PageTable:
    rows = [_line_row(line) for line in reviewed.lines]
    rows.append(
        (
            "total",
            "",
            "",
            figures.dollars(reviewed.planned_usd, cents=True),
            figures.dollars(reviewed.actual_usd, cents=True),
            "",
        )
    )
    return PageTable(
        ("", ">planned", ">actual", ">planned USD", ">actual USD", "causes"),
        tuple(rows),
        total_row_tones(len(rows)),
    )


def _line_row(line: ReviewedLine) -> tuple[str, ...]:
    return (
        line.name,
        counted_text(line.planned_quantity, line.unit),
        counted_text(line.actual_quantity, line.unit),
        "?"
        if line.planned_usd is None
        else figures.dollars(line.planned_usd, cents=True),
        figures.dollars(line.actual_usd, cents=True),
        _causes_text(line.causes),
    )


def _move_blocks(reviewed: Review) -> list[Block]:
    move = reviewed.move
    if move is None:
        return []
    if move.usd is None or move.saves_usd is None:
        reason = move.problem or "its bill is for another period"
        return [
            Heading("Not planned again"),
            Paragraph(reason, "warn", LINE_WIDTH),
        ]
    return [
        Heading(_move_title(reviewed, move)),
        Paragraph(_move_text(reviewed, move), "", LINE_WIDTH),
        *(
            [Paragraph("the spec is another than that of the plan", "warn")]
            if move.spec_changed
            else []
        ),
        Paragraph(
            f"next: tonnage plan {move.spec} --stack {reviewed.stack}", "dim"
        ),
    ]


def _move_text(reviewed: Review, move: Move) -> str:
    """Return what is compared: the plan of today, what was paid, and what was planned."""
    suffix = period.SUFFIXES[reviewed.period]
    today, paid, planned = (
        f"{figures.dollars(usd)}{suffix}"
        for usd in (
            move.usd,
            reviewed.actual_period_usd,
            reviewed.planned_period_usd,
        )
    )
    return (
        f"today: {', '.join(move.fleet)}, {today} (catalog of {move.catalog_as_of}); "
        f"paid: {paid}; planned: {planned}"
    )


def _move_title(reviewed: Review, move: Move) -> str:
    """Return what is proposed: a move where other machines cost less than was paid."""
    if not move.fleet_changes:
        return "Stay: the cheapest plan of today has the same machines"
    saved_usd = move.saves_usd
    if saved_usd is None or saved_usd <= 0:
        return "Stay: the cheapest plan of today costs no less"
    saved = f"{figures.dollars(saved_usd)}{period.RATES[reviewed.period]}"
    return f"Move: it saves {saved} of what was paid"

"""Page of what a stack has cost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from planner import figures
from planner.render.page import (
    LINE_WIDTH,
    Block,
    Page,
    PageTable,
    Paragraph,
    phrases,
    total_row_tones,
)

if TYPE_CHECKING:
    from decimal import Decimal

    from planner.plan.actual.stack_cost import (
        CoveredTime,
        SpentDay,
        SpentTokens,
        StackCost,
    )

# More would fill more than a screen; the others are in JSON.
SHOWN_DAYS: Final = 31


def usage_page(spent: StackCost) -> Page:
    """Return the page of what a stack has cost."""
    rate = (
        [f"{figures.dollars(spent.usd_month)} a month at this rate"]
        if spent.usd_month is not None
        else []
    )
    blocks: list[Block] = [
        Paragraph(
            f"{spent.stack}: {figures.dollars(spent.total_usd, cents=True)} for "
            f"{time_text(spent.time)}",
            "strong",
        ),
        phrases(
            [*rate, *_token_words(spent.tokens), *_commitment_words(spent)],
            indent="  ",
        ),
        _line_table(spent),
        _day_table(spent.days),
    ]
    if len(spent.days) > SHOWN_DAYS:
        blocks.append(
            Paragraph(
                f"the last {SHOWN_DAYS} of {len(spent.days)} days; all: -f json",
                "dim",
                LINE_WIDTH,
            )
        )
    return tuple(
        block
        for block in blocks
        if not isinstance(block, Paragraph) or block.text.strip()
    )


def time_text(time: CoveredTime) -> str:
    """Return a time as people read it: its hours and days."""
    days = (
        time.first_day
        if time.first_day == time.last_day
        else f"{time.first_day} to {time.last_day}"
    )
    return f"{figures.quantity(time.hours)} h, {days}"


def counted_text(quantity: Decimal | None, unit: str) -> str:
    """Return a quantity with its unit; nothing where nothing is counted."""
    return "" if quantity is None else f"{figures.quantity(quantity)} {unit}"


def _token_words(tokens: SpentTokens | None) -> list[str]:
    if tokens is None or tokens.usd_per_million is None:
        return []
    words = [f"{figures.token_price(tokens.usd_per_million)} blended"]
    if tokens.usd_per_million_output is not None:
        words.insert(
            0,
            f"{figures.token_price(tokens.usd_per_million_output)} per million tokens out",
        )
    return [
        ", ".join(words),
        (
            f"{figures.short_count(tokens.output_tokens)} tokens out of "
            f"{figures.short_count(tokens.prompt_tokens)} read"
        ),
    ]


def _commitment_words(spent: StackCost) -> list[str]:
    use = spent.commitments
    if use is None:
        return []
    return [
        (
            f"commitments: {figures.dollars(use.used_usd, cents=True)} used, "
            f"{figures.dollars(use.unused_usd, cents=True)} unused"
        )
    ]


def _line_table(spent: StackCost) -> PageTable:
    rows = [
        (
            line.name,
            counted_text(line.quantity, line.unit),
            figures.dollars(line.usd, cents=True),
        )
        for line in spent.lines
    ]
    rows.append(("total", "", figures.dollars(spent.total_usd, cents=True)))
    return PageTable(
        ("what was paid for", ">quantity", ">USD"),
        tuple(rows),
        total_row_tones(len(rows)),
    )


def _day_table(days: tuple[SpentDay, ...]) -> PageTable:
    shown = days[-SHOWN_DAYS:]
    most_usd = max(float(day.usd) for day in shown)
    return PageTable(
        ("day", ">USD", ""),
        tuple(
            (
                day.day,
                figures.dollars(day.usd, cents=True),
                figures.bar(float(day.usd) / most_usd if most_usd > 0 else 0),
            )
            for day in shown
        ),
    )

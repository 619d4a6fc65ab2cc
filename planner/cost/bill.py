"""A bill: its lines, their sum over a period, and the lines without a price."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

from msgspec import Struct

from planner.cost.bill_line import sum_lines

if TYPE_CHECKING:
    from collections.abc import Sequence
    from decimal import Decimal

    from planner.cost.bill_line import BillLine

Period: TypeAlias = Literal["month", "run"]


class Bill(Struct, frozen=True, kw_only=True):
    """The cost of machines and services over one period.

    `total`  sum of the priced lines over the period, USD
    `period`  month, or run for a training job
    `usd_hour`  machines alone, all of them running, USD an hour
    `unpriced_lines`  names of the lines without a known price, not in the total
    """

    lines: tuple[BillLine, ...]
    total: Decimal
    period: Period
    usd_hour: Decimal
    unpriced_lines: tuple[str, ...]


def sum_bill(
    bill_lines: Sequence[BillLine], usd_hour: Decimal, period: Period
) -> Bill:
    """Return the bill of the lines of a period; `usd_hour` counts machines alone."""
    total, unpriced_lines = sum_lines(bill_lines)
    return Bill(
        lines=tuple(bill_lines),
        total=total,
        period=period,
        usd_hour=usd_hour,
        unpriced_lines=tuple(unpriced_lines),
    )

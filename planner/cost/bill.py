"""A bill: its lines, what they come to in its period, and what has no price."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from planner.cost.bill_line import sum_lines

if TYPE_CHECKING:
    from collections.abc import Sequence
    from decimal import Decimal

    from planner.cost.bill_line import BillLine

Period: TypeAlias = Literal["month", "run"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bill:
    """What machines and everything beside them cost, in USD.

    `total` is for the whole `period`: a month, or the run of a training job. `usd_hour` is
    for one hour with all machines running. Lines without a price are named in `unpriced_lines`
    and are not in the total.
    """

    lines: tuple[BillLine, ...]
    total: Decimal
    period: Period
    usd_hour: Decimal
    unpriced_lines: tuple[str, ...]


def sum_bill(
    bill_lines: Sequence[BillLine], usd_hour: Decimal, period: Period
) -> Bill:
    """Add up the lines of a period."""
    total, unpriced_lines = sum_lines(bill_lines)
    return Bill(
        lines=tuple(bill_lines),
        total=total,
        period=period,
        usd_hour=usd_hour,
        unpriced_lines=tuple(unpriced_lines),
    )

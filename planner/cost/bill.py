"""A bill: its lines, their sum over a period, and the lines without a price."""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Decimal
from typing import TYPE_CHECKING

from msgspec import Struct

from planner.cost.bill_line import (
    CENT,
    SUPPORT_KIND,
    TAX_KIND,
    BillLine,
    sum_lines,
)
from planner.cost.lifetime import life_hours
from planner.cost.service_price import NO_SURCHARGES
from planner.units import HOURS_PER_MONTH

if TYPE_CHECKING:
    from collections.abc import Sequence

    from planner.cost.lifetime import Lifetime, Period
    from planner.cost.service_price import Surcharges


class Bill(Struct, frozen=True, kw_only=True):
    """The cost of machines and services over one period.

    `total`  sum of the priced lines over the period, USD
    `period`  month, run of a job, or life with a time to live
    `usd_hour`  machines alone, all of them running, USD an hour
    `unpriced_lines`  names of the lines without a known price, not in the total
    `life`  what each machine is billed for; None for a month, or where it is not counted
    `day`  what each machine of a daily batch is billed for every day
    """

    lines: tuple[BillLine, ...]
    total: Decimal
    period: Period
    usd_hour: Decimal
    unpriced_lines: tuple[str, ...]
    life: Lifetime | None = None
    day: Lifetime | None = None

    @property
    def is_partial(self) -> bool:
        """Whether a price is unknown, so that the total is a lower bound."""
        return bool(self.unpriced_lines)

    @property
    def months(self) -> Decimal:
        """Months that the total is spread over: hours of the life / 730, and one at least."""
        return max(Decimal(1), life_hours(self.life) / HOURS_PER_MONTH)

    def period_budget(
        self, monthly_budget_usd: Decimal | None
    ) -> Decimal | None:
        """Return a budget of a month for the period, USD: budget * months; None without one."""
        if monthly_budget_usd is None:
            return None
        return monthly_budget_usd * self.months

    def exceeds(self, monthly_budget_usd: Decimal | None) -> bool:
        """Whether it costs more in a month than a budget, USD a month; never without one."""
        return (
            monthly_budget_usd is not None
            and self.monthly_usd > monthly_budget_usd
        )

    @property
    def monthly_usd(self) -> Decimal:
        """What a budget of a month is held against, USD: total / months."""
        return self.total / self.months


def sum_bill(
    bill_lines: Sequence[BillLine],
    usd_hour: Decimal,
    period: Period,
    life: Lifetime | None = None,
    *,
    surcharges: Surcharges = NO_SURCHARGES,
) -> Bill:
    """Return the bill of the lines of a period; `usd_hour` counts machines alone.

    What comes on top has lines of its own: a support plan, and then a tax.
    """
    all_lines = [*bill_lines]
    for kind, share in (
        (SUPPORT_KIND, surcharges.support),
        (TAX_KIND, surcharges.tax),
    ):
        if share:
            all_lines.append(_share_line(kind, share, all_lines, surcharges))
    total, unpriced_lines = sum_lines(all_lines)
    return Bill(
        lines=tuple(all_lines),
        total=total,
        period=period,
        usd_hour=usd_hour,
        unpriced_lines=tuple(unpriced_lines),
        life=life,
    )


def _share_line(
    kind: str,
    share: Decimal,
    bill_lines: Sequence[BillLine],
    surcharges: Surcharges,
) -> BillLine:
    """Return a line that is a share of the lines before it: percent * a hundredth of their sum."""
    before_usd, _ = sum_lines(bill_lines)
    return BillLine(
        name=kind,
        kind=kind,
        unit="percent",
        quantity=share * 100,
        unit_price=before_usd / 100,
        usd=(share * before_usd).quantize(CENT, ROUND_HALF_UP),
        source=surcharges.source,
        as_of="",
    )

"""Thresholds on what a change costs: +10% of what it cost before, or +5000 USD a month."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Final

from msgspec import Meta, Struct

from planner.plan.part import DocumentPart, Period
from planner.spec.unit import parse_money, parse_number, parse_spending

if TYPE_CHECKING:
    from collections.abc import Iterable

    from planner.plan.diff_document import PeriodTotal

# Costs that end have an amount, not one for each time.
ENDING_PERIODS: Final[tuple[Period, ...]] = ("run", "life")
ACCEPTED_FORM: Final = (
    "write how much it may grow: +10%, +5000/month, or +5000/run for what ends"
)


class Threshold(Struct, frozen=True, kw_only=True):
    """By how much a cost may grow.

    text     as it was given
    percent  of the total before, in each period
    usd      USD in the period; exactly one of the two is given
    period   of the amount
    """

    text: str
    percent: Decimal | None = None
    usd: Decimal | None = None
    period: Period | None = None

    def limit_usd(self, total: PeriodTotal) -> Decimal | None:
        """Return by how many USD a total may grow; None for one that it says nothing of.

        limit = percent / 100 * what is known of the total before
        """
        if self.percent is not None:
            return total.before.known_usd * self.percent / 100
        return self.usd if self.period == total.period else None


class ThresholdVerdict(DocumentPart, frozen=True, kw_only=True):
    """A threshold that a change is judged by."""

    threshold: Annotated[str, Meta(description="as it was given")]
    period: Annotated[
        Period | None,
        Meta(description="of the total that exceeds it; none when none does"),
    ]
    limit_usd: Annotated[
        Decimal | None, Meta(description="by how much that total may grow")
    ]
    usd: Annotated[
        Decimal | None,
        Meta(description="by how much it grows; none when that is not known"),
    ]
    is_exceeded: Annotated[
        bool,
        Meta(description="also when unknown prices leave it open: see usd"),
    ]


def parse_threshold(text: str) -> Threshold:
    """Return the threshold of a text. Raises ValueError with the accepted form, or those near it.

    +10% is a share, +5000/month (or /hour, /day, /year) an amount of what does not end, and
    +5000/run or +5000/life one of what does. A number alone may be either, and is refused.
    """
    amount_text = text.strip().lower().replace(",", "").removeprefix(">")
    amount_text = amount_text.strip().removeprefix("+").strip()
    try:
        if amount_text.endswith("%"):
            share_text = amount_text.removesuffix("%").strip()
            return Threshold(text=text, percent=parse_number(share_text))
        for period in ENDING_PERIODS:
            if amount_text.endswith(f"/{period}"):
                usd = parse_money(amount_text.removesuffix(f"/{period}"))
                return Threshold(text=text, usd=usd, period=period)
        usd = parse_spending(amount_text)
    except ValueError:
        raise ValueError(ACCEPTED_FORM) from None
    if "/" not in amount_text:
        raise ValueError(
            f"{text} has no unit: write +{usd:f}% for a share, or +{usd:f}/month for an amount"
        )
    return Threshold(text=text, usd=usd, period="month")


def judge_thresholds(
    thresholds: Iterable[Threshold], totals: Iterable[PeriodTotal]
) -> tuple[ThresholdVerdict, ...]:
    """Judge what a change costs by thresholds.

    Growth that is not known exceeds a threshold when it may: what nobody knows does not pass.
    """
    judged = tuple(totals)
    return tuple(_verdict(threshold, judged) for threshold in thresholds)


def _verdict(
    threshold: Threshold, totals: tuple[PeriodTotal, ...]
) -> ThresholdVerdict:
    for total in totals:
        limit_usd = threshold.limit_usd(total)
        if limit_usd is None or not _may_exceed(total, limit_usd):
            continue
        is_known = total.delta.bound in ("exact", "at_least")
        usd = total.delta.usd if is_known else None
        # A lower bound below the limit decides nothing.
        if usd is not None and usd <= limit_usd:
            usd = None
        return ThresholdVerdict(
            threshold=threshold.text,
            period=total.period,
            limit_usd=limit_usd.quantize(Decimal("0.01")),
            usd=usd,
            is_exceeded=True,
        )
    return ThresholdVerdict(
        threshold=threshold.text,
        period=None,
        limit_usd=None,
        usd=None,
        is_exceeded=False,
    )


def _may_exceed(total: PeriodTotal, limit_usd: Decimal) -> bool:
    usd = total.delta.usd
    if usd is None or total.delta.bound == "at_least":
        return True
    return usd > limit_usd

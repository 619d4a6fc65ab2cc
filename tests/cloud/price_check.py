"""How far the prices of the embedded catalog are from those that a cloud tells today."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import NamedTuple

from planner.market.price_diff import PriceDifference, price_differences
from planner.market.price_row import PriceRow
from planner.market.price_update import (
    AnsweredQuestion,
    todays_prices,
    updated_rows,
)

# A price that is so many times another one is in another unit, or of something else.
MOST_FACTOR = Decimal(5)


class PriceReport(NamedTuple):
    """What the answers of a cloud say about rows of a catalog.

    compared     how many rows a question was answered about
    differences  those that are at another price now, or at none, and what is new
    unanswered   questions without an answer, each with its reason
    """

    compared: int
    differences: list[PriceDifference]
    unanswered: list[str]

    @property
    def implausible(self) -> list[PriceDifference]:
        """Prices that are so far off that one of both is wrong."""
        return [
            found
            for found in self.differences
            if found.old_usd_hour is not None
            and found.usd_hour is not None
            and not Decimal(1) / MOST_FACTOR
            < found.usd_hour / found.old_usd_hour
            < MOST_FACTOR
        ]

    def lines(self) -> list[str]:
        """Return a line for each difference and each question without an answer."""
        return [
            f"{self.compared} prices compared, {len(self.differences)} differ",
            *map(difference_line, self.differences),
            *self.unanswered,
        ]


def difference_line(found: PriceDifference) -> str:
    """Return what a price was and is, USD an hour."""
    old = "no price" if found.old_usd_hour is None else f"{found.old_usd_hour}"
    new = "no price" if found.usd_hour is None else f"{found.usd_hour}"
    percent = "" if found.percent is None else f" ({found.percent:+.1f} %)"
    return f"{' '.join(found.key)}: {old} in the catalog, {new} now{percent}"


def compare_prices(
    rows: Sequence[PriceRow],
    answers: Iterable[AnsweredQuestion],
    zones: Mapping[tuple[str, str, str], tuple[str, ...]],
    today: str,
) -> PriceReport:
    """Hold rows of a catalog against answers; what is not answered is not compared."""
    listed = list(answers)
    todays = todays_prices(listed, zones, rows)
    return PriceReport(
        compared=sum(row.key in todays.asked for row in rows),
        differences=price_differences(rows, updated_rows(rows, todays, today)),
        unanswered=[
            f"{' '.join(found.question.place)}: {found.answer.reason}"
            for found in listed
            if found.answer.value is None
        ],
    )

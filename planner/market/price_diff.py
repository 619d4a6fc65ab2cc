"""What differs between the prices of two catalogs."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal, TypeAlias

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Iterable
    from decimal import Decimal

    from planner.market.offer_key import OfferKey
    from planner.market.price_row import PriceRow

DifferenceKind: TypeAlias = Literal["changed", "vanished", "added"]


class PriceDifference(Struct, frozen=True):
    """A price that two catalogs do not share; USD an hour, None where there is none."""

    key: OfferKey
    old_usd_hour: Decimal | None
    usd_hour: Decimal | None

    @property
    def kind(self) -> DifferenceKind:
        """How it differs."""
        if self.old_usd_hour is None:
            return "added"
        return "vanished" if self.usd_hour is None else "changed"

    @property
    def percent(self) -> float | None:
        """By how many percent a price rose; None where one of the two is missing."""
        if self.old_usd_hour is None or self.usd_hour is None:
            return None
        return float((self.usd_hour / self.old_usd_hour - 1) * 100)


def price_differences(
    old_rows: Iterable[PriceRow], new_rows: Iterable[PriceRow]
) -> list[PriceDifference]:
    """Return prices that changed, vanished and were added, in this order, the largest first.

    A change is as large as its factor, either way: a half is as much as the double. What vanished
    or was added is as large as its price.
    """
    old_usd = {row.key: row.usd for row in old_rows}
    new_usd = {row.key: row.usd for row in new_rows}
    differences = [
        PriceDifference(key, old_usd.get(key), new_usd.get(key))
        for key in old_usd.keys() | new_usd.keys()
        if old_usd.get(key) != new_usd.get(key)
    ]
    return sorted(differences, key=_rank)


def _rank(difference: PriceDifference) -> tuple[int, float, OfferKey]:
    old_usd, new_usd = difference.old_usd_hour, difference.usd_hour
    if old_usd is None or new_usd is None:
        place = 2 if old_usd is None else 1
        return place, -float(new_usd or old_usd or 0), difference.key
    return 0, -abs(math.log(new_usd / old_usd)), difference.key

"""What a price of spot decides that may have moved since its date: rows of data/spot_limits.csv.

Such a price never decides alone: where the planner chooses by itself how much is on spot, it
counts at the upper end of how far such prices move.
"""

from __future__ import annotations

from decimal import Decimal
from functools import cache
from typing import TYPE_CHECKING

from msgspec import Struct

from planner.facts import table
from planner.market.price_age import PRICE_DIGITS, age_days
from planner.market.price_change import ANY_CLOUD, MOST_DAYS, price_ratios

if TYPE_CHECKING:
    from planner.market.offer import Offer


class SpotLimit(Struct, frozen=True, kw_only=True):
    """A row: how many days a price of spot of a cloud may be old and still decide alone."""

    cloud: str
    days: int
    meaning: str
    source: str
    as_of: str


@cache
def spot_limits() -> dict[str, SpotLimit]:
    """Return the rows by cloud; that of `ANY_CLOUD` is for clouds without one."""
    columns: table.Columns = {
        "cloud": table.nonempty_text,
        "days": table.integer_between(1, MOST_DAYS),
        "meaning": table.nonempty_text,
        **table.SOURCE_COLUMNS,
    }
    rows = table.load_rows("planner.market", "spot_limits.csv", columns)
    return {row["cloud"]: SpotLimit(**row.cells) for row in rows}


def deciding_usd_hour(spot: Offer, today: str) -> Decimal:
    """Return at which price spot has to be the cheapest, USD an hour.

    It is its own price up to the limit of its cloud, else the upper end of today's prices:
    max(price * high ratio of its age, highest price that was seen)
    A price without a date is of a contract; one of an unknown date is as old as prices are known
    to be.
    """
    if not spot.as_of:
        return spot.usd_hour
    days = age_days(spot.as_of, today)
    limits = spot_limits()
    limit = limits.get(spot.provider, limits[ANY_CLOUD])
    if days is not None and days <= limit.days:
        return spot.usd_hour
    _, high = price_ratios(spot.provider, "spot", days)
    upper_usd = round(spot.usd_hour * Decimal(str(high)), PRICE_DIGITS)
    seen = spot.price_range
    return max(upper_usd, seen.high_usd) if seen is not None else upper_usd

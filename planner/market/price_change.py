"""How far prices move while a catalog grows old: rows of data/price_changes.csv.

A row compares prices of the same machine in the same place at two dates: 90 % of the ratios are
between its two.
"""

from __future__ import annotations

import math
from functools import cache
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from msgspec import Struct

from planner.facts import table

if TYPE_CHECKING:
    from collections.abc import Sequence

# How a price comes about: a market moves with supply and demand, a list is changed by hand.
PriceKind: TypeAlias = Literal["on_demand", "spot"]
ANY_CLOUD: Final = "*"
MOST_DAYS: Final = 10_000


class PriceChange(Struct, frozen=True, kw_only=True):
    """A row: between which ratios 90 % of prices are after so many days.

    pairs  how many prices were compared
    """

    cloud: str
    purchase: PriceKind
    days: int
    low: float
    high: float
    pairs: int
    meaning: str
    source: str
    as_of: str


@cache
def price_changes() -> tuple[PriceChange, ...]:
    """Return all rows, by their days."""
    columns: table.Columns = {
        "cloud": table.nonempty_text,
        "purchase": table.one_of("on_demand", "spot"),
        "days": table.integer_between(1, MOST_DAYS),
        "low": table.real_between(0, 1),
        "high": table.real_between(1, 100),
        "pairs": table.integer_between(1, 1_000_000),
        "meaning": table.nonempty_text,
        **table.SOURCE_COLUMNS,
    }
    rows = table.load_rows("planner.market", "price_changes.csv", columns)
    return tuple(
        sorted(
            (PriceChange(**row.cells) for row in rows),
            key=lambda row: row.days,
        )
    )


def price_ratios(
    cloud: str, purchase: PriceKind, days: int | None
) -> tuple[float, float]:
    """Return the ratios to a price of so many days between which 90 % of today's prices are.

    log ratio = that of the rows, linear in between over the square root of the days
    Beyond the oldest row it grows with the square root, as a sum of independent changes does. A
    price of unknown age is taken to be as old as the oldest row. A cloud without rows of its own
    moves as those of any cloud do.
    """
    rows = [
        row
        for row in price_changes()
        if (row.cloud, row.purchase) == (cloud, purchase)
    ] or [
        row
        for row in price_changes()
        if (row.cloud, row.purchase) == (ANY_CLOUD, purchase)
    ]
    root_days = math.sqrt(rows[-1].days if days is None else days)
    roots = [0.0, *(math.sqrt(row.days) for row in rows)]
    lows = [0.0, *(math.log(row.low) for row in rows)]
    highs = [0.0, *(math.log(row.high) for row in rows)]
    return (
        math.exp(_on_line(root_days, roots, lows)),
        math.exp(_on_line(root_days, roots, highs)),
    )


def _on_line(
    at: float, places: Sequence[float], heights: Sequence[float]
) -> float:
    """Return the height of a line through points, and in proportion to the place beyond them."""
    if at >= places[-1]:
        return heights[-1] * at / places[-1]
    last = next(index for index, place in enumerate(places) if place > at)
    share = (at - places[last - 1]) / (places[last] - places[last - 1])
    return heights[last - 1] + share * (heights[last] - heights[last - 1])

"""What a price of spot decides that may have moved since its date: rows of data/spot_limits.csv.

Such a price never decides alone: where the planner chooses by itself how much is on spot, it
counts at the upper end of how far such prices move.
"""

from __future__ import annotations

from decimal import Decimal
from functools import cache
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from planner.facts import table
from planner.market.price_age import PRICE_DIGITS, age_days
from planner.market.price_change import ANY_CLOUD, MOST_DAYS, price_ratios

if TYPE_CHECKING:
    from collections.abc import Iterator

    from planner.market.offer import Catalog, Offer


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


def deciding_spot(
    spot: Offer, on_demand: Offer | None, today: str
) -> Offer | None:
    """Return spot at the price by which the planner may choose it, None where it may not.

    It may not where its price is weak, nor where it is not below the price on demand, if any.
    """
    deciding = at_deciding_price(spot, today)
    if spot.is_weakly_priced or (
        on_demand is not None and deciding.usd_hour >= on_demand.usd_hour
    ):
        return None
    return deciding


def at_deciding_price(spot: Offer, today: str) -> Offer:
    """Return spot at `deciding_usd_hour`, with what was found where that is another price."""
    usd_hour = deciding_usd_hour(spot, today)
    if usd_hour == spot.usd_hour:
        return spot
    return replace(
        spot,
        usd_hour=usd_hour,
        found_usd_hour=spot.usd_hour,
        source=f"upper end of {spot.usd_hour:f} USD an hour by {spot.source}",
    )


def with_deciding_spot(catalog: Catalog) -> Catalog:
    """Return a catalog whose prices of spot are those by which the planner may choose it.

    What it may not choose is left out.
    """
    return replace(catalog, offers=tuple(_deciding_offers(catalog)))


def with_found_spot(catalog: Catalog) -> Catalog:
    """Return a catalog whose prices of spot decide as they were found, however old or weak.

    By it a plan finds the regions in which it is worth asking for the prices of today.
    """
    return replace(
        catalog,
        offers=tuple(
            replace(
                offer, as_of=catalog.as_of, old_price=None, confidence="medium"
            )
            if offer.purchase == "spot"
            else offer
            for offer in catalog.offers
        ),
    )


def _deciding_offers(catalog: Catalog) -> Iterator[Offer]:
    for offer in catalog.offers:
        if offer.purchase != "spot":
            yield offer
            continue
        here = catalog.offers_by_place[offer.key[:3]]
        deciding = deciding_spot(offer, here.get("on_demand"), catalog.as_of)
        if deciding is not None:
            yield deciding

"""Prices that are older than a year, and what they would be at the freshest known ratio.

The price of spot moves by the hour. An old one is known to have been asked, and says little of
today's: it never decides alone between spot and on demand.
"""

from __future__ import annotations

from calendar import timegm
from statistics import median
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from planner.facts.table import DAY_DIGITS
from planner.market.offer import OldPrice
from planner.units import SECONDS_PER_DAY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from decimal import Decimal

    from planner.market.offer import Offer

# What completes a date that is known to the year or the month: its last day.
LAST_DAYS: Final = {len("2025"): "-12-31", len("2025-07"): "-31"}
YEAR_DIGITS: Final = len("2025")
PRICE_DIGITS: Final = 5  # decimals of USD an hour
# Where a ratio is looked for: the machine type itself, machines like it, the whole cloud.
RATIO_SCOPES: Final[tuple[Callable[[Offer], tuple[str, ...]], ...]] = (
    lambda offer: (offer.provider, offer.instance.instance_type),
    lambda offer: (offer.provider, offer.instance.accelerator, ""),
    lambda offer: (offer.provider,),
)


class _SpotRatio(Struct, frozen=True):
    """Spot over on demand in one region, and the date of the spot price."""

    as_of: str
    share: Decimal


def is_old(as_of: str, today: str) -> bool:
    """Whether a date is more than a year before another, both as 2026-07-30 or shorter.

    A date that is known to the month or the year stands for its last day. An unknown one is not
    old, since nobody knows.
    """
    year, rest = today[:YEAR_DIGITS], today[YEAR_DIGITS:]
    if not as_of[:YEAR_DIGITS].isdigit():
        return False
    return as_of + LAST_DAYS.get(len(as_of), "") < f"{int(year) - 1}{rest}"


def age_days(as_of: str, today: str) -> int | None:
    """Return the days from a date to another, both as 2026-07-30; None of an unknown date.

    A date that is known to the month or the year stands for its first day, so that a price is at
    most so old. A price of the future is 0 days old.
    """
    year, month, day = (
        int(word) if word.isdigit() else 0
        for word in (*as_of.split("-"), "", "")[:3]
    )
    if not year:
        return None
    today_year, today_month, today_day = map(int, today.split("-"))
    age_s = timegm((today_year, today_month, today_day, 0, 0, 0)) - timegm(
        (year, month or 1, day or 1, 0, 0, 0)
    )
    return max(0, age_s // SECONDS_PER_DAY)


def is_to_the_day(as_of: str) -> bool:
    """Whether a date is known to the day, and not to its month or its year alone."""
    return len(as_of) == DAY_DIGITS


def mark_old_prices(offers: Iterable[Offer], today: str) -> list[Offer]:
    """Return the offers, those with an old price with the price to plan with.

    spot: max(old price, on demand in the region * freshest ratio)

    The ratio is the median of those of the newest date, of the same machine type where it has
    one, else of the same accelerator, else of the cloud. Other purchases keep their price.
    """
    listed_offers = list(offers)
    on_demand_usd_hour: dict[tuple[str, ...], Decimal] = {
        offer.key[:3]: offer.usd_hour
        for offer in listed_offers
        if offer.purchase == "on_demand"
    }
    freshest_ratios: dict[tuple[str, ...], _SpotRatio] = {}
    if any(is_old(offer.as_of, today) for offer in listed_offers):
        freshest_ratios = _freshest_ratios(
            (
                offer
                for offer in listed_offers
                if offer.purchase == "spot" and not is_old(offer.as_of, today)
            ),
            on_demand_usd_hour,
        )
    return [
        _marked(offer, on_demand_usd_hour, freshest_ratios)
        if is_old(offer.as_of, today)
        else offer
        for offer in listed_offers
    ]


def _freshest_ratios(
    spot_offers: Iterable[Offer],
    on_demand_usd_hour: Mapping[tuple[str, ...], Decimal],
) -> dict[tuple[str, ...], _SpotRatio]:
    """Return the ratio of spot to on demand by each scope of `RATIO_SCOPES`."""
    ratios_by_scope: dict[tuple[str, ...], list[_SpotRatio]] = {}
    for offer in spot_offers:
        base_usd_hour = on_demand_usd_hour.get(offer.key[:3])
        if base_usd_hour is None:
            continue
        ratio = _SpotRatio(offer.as_of, offer.usd_hour / base_usd_hour)
        for scope_of in RATIO_SCOPES:
            ratios_by_scope.setdefault(scope_of(offer), []).append(ratio)
    freshest_ratios = {}
    for scope, ratios in ratios_by_scope.items():
        newest_date = max(ratio.as_of for ratio in ratios)
        freshest_ratios[scope] = _SpotRatio(
            newest_date,
            median(
                ratio.share for ratio in ratios if ratio.as_of == newest_date
            ),
        )
    return freshest_ratios


def _marked(
    offer: Offer,
    on_demand_usd_hour: Mapping[tuple[str, ...], Decimal],
    freshest_ratios: Mapping[tuple[str, ...], _SpotRatio],
) -> Offer:
    base_usd_hour = on_demand_usd_hour.get(offer.key[:3])
    ratio = next(
        (
            freshest_ratios[scope_of(offer)]
            for scope_of in RATIO_SCOPES
            if scope_of(offer) in freshest_ratios
        ),
        None,
    )
    if offer.purchase != "spot" or base_usd_hour is None or ratio is None:
        return replace(offer, old_price=OldPrice(offer.usd_hour))
    fresh_usd_hour = round(base_usd_hour * ratio.share, PRICE_DIGITS)
    return replace(
        offer,
        usd_hour=max(offer.usd_hour, fresh_usd_hour),
        old_price=OldPrice(offer.usd_hour, fresh_usd_hour, ratio.as_of),
    )

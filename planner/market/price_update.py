"""A table of prices with what clouds answer today. What nobody answers stays as it is."""

from __future__ import annotations

from decimal import Decimal
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from planner.market.capacity import LIMITED_PURCHASES
from planner.market.live import (
    SpotPriceAnswer,  # noqa: TC001 - msgspec reads the annotations
)
from planner.market.live_catalog import PRICE_STEP, zone_mean
from planner.market.price_row import PriceRow

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from planner.market.offer_key import OfferKey

# Stands in a table for prices that are quoted for every region; nobody can be asked for it.
EVERY_REGION: Final = "*"
MOST_USD_HOUR: Final = 10**6


class PriceQuestion(Struct, frozen=True):
    """What a cloud is asked: what machine types of a region cost, bought in one way."""

    cloud: str
    region: str
    purchase: str
    machine_types: tuple[str, ...]

    @property
    def keys(self) -> Iterator[OfferKey]:
        """The prices that are asked for."""
        for machine_type in self.machine_types:
            yield self.cloud, self.region, machine_type, self.purchase

    @property
    def place(self) -> tuple[str, str, str]:
        """Whom it asks, about which region and purchase."""
        return self.cloud, self.region, self.purchase


class AnsweredQuestion(Struct, frozen=True):
    """A question with its answer: USD an hour by machine type and zone."""

    question: PriceQuestion
    answer: SpotPriceAnswer


class AskedScope(Struct, frozen=True):
    """Of what prices are asked: clouds by name, regions and machine types by patterns.

    An empty tuple is everything.
    """

    clouds: tuple[str, ...] = ()
    regions: tuple[str, ...] = ()
    machine_types: tuple[str, ...] = ()

    def has(self, row: PriceRow) -> bool:
        """Whether the price of a row is asked for."""
        return (
            row.purchase in LIMITED_PURCHASES
            and row.region != EVERY_REGION
            and _fits(row.provider, self.clouds)
            and _fits(row.region, self.regions)
            and _fits(row.instance_type, self.machine_types)
        )


class TodaysPrices(Struct, frozen=True):
    """What clouds answered.

    asked     prices that were asked for and whose question was answered
    usd_hour  USD an hour of those that the answers have
    """

    asked: frozenset[OfferKey]
    usd_hour: Mapping[OfferKey, Decimal]


def is_usable(usd_hour: Decimal) -> bool:
    """Return whether something may cost this: a number that a table has room for."""
    return usd_hour.is_finite() and PRICE_STEP <= usd_hour < MOST_USD_HOUR


def price_questions(
    rows: Iterable[PriceRow], scope: AskedScope
) -> list[PriceQuestion]:
    """Return what to ask: each machine type both ways, wherever it is sold in one of them."""
    machine_types: dict[tuple[str, str], set[str]] = {}
    for row in rows:
        if scope.has(row):
            machine_types.setdefault((row.provider, row.region), set()).add(
                row.instance_type
            )
    return [
        PriceQuestion(cloud, region, purchase, tuple(sorted(names)))
        for (cloud, region), names in sorted(machine_types.items())
        for purchase in LIMITED_PURCHASES
    ]


def todays_prices(
    answers: Iterable[AnsweredQuestion],
    zones: Mapping[tuple[str, str, str], tuple[str, ...]],
) -> TodaysPrices:
    """Return what answers say. `zones` are those of the catalog by cloud, region and type.

    A fleet is spread over its zones, so a price by zone counts as the mean of those.
    """
    asked: set[OfferKey] = set()
    usd_hour = {}
    for answered in answers:
        question, prices = answered.question, answered.answer.value
        if prices is None:
            continue
        asked.update(question.keys)
        for key in question.keys:
            by_zone = prices.get(key[2], {})
            price = zone_mean(by_zone, zones.get(key[:3], ()))
            # A cloud may have moved to zones that the catalog does not know.
            if price is None:
                price = zone_mean(by_zone, tuple(by_zone))
            if price is not None:
                usd_hour[key] = price
    return TodaysPrices(frozenset(asked), usd_hour)


def updated_rows(
    rows: Iterable[PriceRow], todays: TodaysPrices, today: str
) -> list[PriceRow]:
    """Return a table with the prices of today, a date such as 2026-11-27.

    A price that was asked for and that no answer has is left out: it is not sold any more. One
    that nothing may cost changes no row. Prices that the table did not have come last.
    """
    listed_rows = list(rows)
    present_keys = {row.key for row in listed_rows}
    usable_usd = {
        key: usd_hour
        for key, usd_hour in todays.usd_hour.items()
        if is_usable(usd_hour)
    }
    kept_rows = [
        _observed(row, usable_usd[row.key], today)
        if row.key in usable_usd
        else row
        for row in listed_rows
        if row.key not in todays.asked or row.key in todays.usd_hour
    ]
    added_rows = [
        _observed(_blank_row(key), usd_hour, today)
        for key, usd_hour in sorted(usable_usd.items())
        if key not in present_keys
    ]
    return [*kept_rows, *added_rows]


def live_source(cloud: str) -> str:
    """Return the id of the source of prices that a cloud answered."""
    return f"live-{cloud}"


def _blank_row(key: OfferKey) -> PriceRow:
    cloud, region, machine_type, purchase = key
    return PriceRow(
        provider=cloud,
        instance_type=machine_type,
        region=region,
        purchase=purchase,
        scope="machine",
        usd_hour="",
        basis="",
        usd_min="",
        usd_max="",
        as_of="",
        source="",
        confidence="",
    )


def _observed(row: PriceRow, usd_hour: Decimal, today: str) -> PriceRow:
    """Return a row at the price of today.

    What its price was seen to range over is wider by it, where that is known.
    """
    rounded = usd_hour.quantize(PRICE_STEP).normalize()
    has_range = row.usd_min and row.usd_max
    return replace(
        row,
        usd_hour=f"{rounded:f}",
        basis="observed",
        usd_min=f"{min(Decimal(row.usd_min), rounded):f}" if has_range else "",
        usd_max=f"{max(Decimal(row.usd_max), rounded):f}" if has_range else "",
        as_of=today,
        source=live_source(row.provider),
        confidence="high",
    )


def _fits(name: str, patterns: tuple[str, ...]) -> bool:
    return not patterns or any(
        fnmatchcase(name, pattern) for pattern in patterns
    )

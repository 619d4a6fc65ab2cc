"""A table of prices with what clouds answer today. What nobody answers stays as it is."""

from __future__ import annotations

from decimal import Decimal
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from planner.facts.commitment import commitment_forms, forms_of_sources
from planner.market.capacity import LIMITED_PURCHASES
from planner.market.live import (
    SpotPriceAnswer,  # noqa: TC001 - msgspec reads the annotations
)
from planner.market.live_catalog import PRICE_STEP, zone_mean
from planner.market.price_row import PriceRow
from planner.market.term import TERM_PURCHASES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from planner.market.offer_key import OfferKey

# Stands in a table for prices that are quoted for every region; nobody can be asked for it.
EVERY_REGION: Final = "*"
MOST_USD_HOUR: Final = 10**6
# What a question is of that asks for all terms of a cloud together.
COMMITTED: Final = "committed"


class PriceQuestion(Struct, frozen=True):
    """What a cloud is asked: what machine types of a region cost, bought in one way.

    Of what is `COMMITTED` it is asked for every term, and its answer has them by way to buy.
    """

    cloud: str
    region: str
    purchase: str
    machine_types: tuple[str, ...]

    @property
    def keys(self) -> Iterator[OfferKey]:
        """The prices that are asked for."""
        for machine_type in self.machine_types:
            for purchase in (
                TERM_PURCHASES
                if self.purchase == COMMITTED
                else (self.purchase,)
            ):
                yield self.cloud, self.region, machine_type, purchase

    @property
    def place(self) -> tuple[str, str, str]:
        """Whom it asks, about which region and purchase."""
        return self.cloud, self.region, self.purchase


class AnsweredQuestion(Struct, frozen=True):
    """A question with its answer: USD an hour by machine type and zone, or way to buy."""

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
    """Return what to ask: each machine type both ways, wherever it is sold in one of them.

    A cloud whose price list names its terms is asked for those too.
    """
    machine_types: dict[tuple[str, str], set[str]] = {}
    for row in rows:
        if scope.has(row):
            machine_types.setdefault((row.provider, row.region), set()).add(
                row.instance_type
            )
    return [
        PriceQuestion(cloud, region, purchase, tuple(sorted(names)))
        for (cloud, region), names in sorted(machine_types.items())
        for purchase in (
            *LIMITED_PURCHASES,
            *((COMMITTED,) if asked_form(cloud) else ()),
        )
    ]


def asked_form(cloud: str) -> str:
    """Return the form of commitment whose prices a cloud is asked for; empty for none."""
    return next(
        (
            facts.form
            for facts in commitment_forms().values()
            if facts.cloud == cloud and facts.is_asked
        ),
        "",
    )


def todays_prices(
    answers: Iterable[AnsweredQuestion],
    zones: Mapping[tuple[str, str, str], tuple[str, ...]],
    rows: Iterable[PriceRow] = (),
) -> TodaysPrices:
    """Return what answers say. `zones` are those of the catalog by cloud, region and type.

    A fleet is spread over its zones, so a price by zone counts as the mean of those. Commitments
    of another form than the cloud was asked for are among its `rows`: they stay, unless the one
    that was asked for costs less.
    """
    asked: set[OfferKey] = set()
    usd_hour: dict[OfferKey, Decimal] = {}
    other_forms = _other_forms(rows)
    for answered in answers:
        question, prices = answered.question, answered.answer.value
        if prices is None:
            continue
        if question.purchase == COMMITTED:
            terms = _term_prices(question, prices, other_forms)
            asked.update(terms.asked)
            usd_hour.update(terms.usd_hour)
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


def _term_prices(
    question: PriceQuestion,
    prices: Mapping[str, Mapping[str, Decimal]],
    other_forms: Mapping[OfferKey, Decimal],
) -> TodaysPrices:
    """Return the commitments of an answer, but those that cost less in another form."""
    listed = {
        key: usd_hour
        for key in question.keys
        if (usd_hour := prices.get(key[2], {}).get(key[3])) is not None
    }
    kept_keys = {
        key
        for key in question.keys
        if key in other_forms
        and listed.get(key, other_forms[key]) >= other_forms[key]
    }
    return TodaysPrices(
        frozenset(question.keys) - kept_keys,
        {key: usd for key, usd in listed.items() if key not in kept_keys},
    )


def _other_forms(rows: Iterable[PriceRow]) -> dict[OfferKey, Decimal]:
    """Return USD an hour of the commitments of a form that no cloud is asked for."""
    return {
        row.key: row.usd
        for row in rows
        if row.purchase in TERM_PURCHASES
        and forms_of_sources().get(row.source) != asked_form(row.provider)
    }


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

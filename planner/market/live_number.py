"""Numbers of a record of what clouds answered that can be no price and no amount."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

from planner.facts.table import is_price

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from planner.market.live import LiveFacts, PlaceFacts


def odd_numbers(facts: LiveFacts) -> Iterator[str]:
    """Yield where a record has a number that no cloud can have meant, and which: it is damaged.

    Clouds are asked for prices above 0, and for amounts that are no less.
    """
    for place in facts.places:
        where = f"{place.cloud} {place.region}"
        yield from _odd_prices(f"price in {where}", _prices(place))
        commitments = place.commitments.value if place.commitments else None
        for fact in commitments or ():
            amounts = (fact.amount, fact.usd_hour or 0, *fact.takes.values())
            yield from _odd_amounts(f"amount of {fact.id} in {where}", amounts)
    for offered in facts.offered_blocks:
        prices = [block.usd for block in offered.blocks.value or ()]
        yield from _odd_amounts(f"price of a block in {offered.region}", prices)


def _prices(place: PlaceFacts) -> Iterator[Decimal]:
    """Yield all prices of machines in a region, USD an hour."""
    yield from (place.on_demand_usd.value or {}).values()
    for by_zone in (place.spot_usd.value or {}).values():
        yield from by_zone.values()


def _odd_prices(what: str, prices: Iterable[Decimal]) -> Iterator[str]:
    for usd in prices:
        if not is_price(usd):
            yield f"{what}: {usd} is no price above 0 and below 1,000,000"


def _odd_amounts(what: str, amounts: Iterable[Decimal | int]) -> Iterator[str]:
    for amount in amounts:
        if not Decimal(amount).is_finite() or amount < 0:
            yield f"{what}: {amount} is no amount from 0 on"

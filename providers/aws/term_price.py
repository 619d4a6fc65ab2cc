"""What AWS sells for terms: its reserved instances, as its list of prices has them."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from planner.facts.commitment import commitment_forms
from planner.facts.table import is_price
from planner.market.term import TERM_OF, TERMS
from planner.units import MONTHS_PER_YEAR
from providers.aws.client import service
from providers.aws.market import PRICE_REGION, listed_products
from providers.live.commitment import term_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

CLOUD: Final = "aws"
FORM: Final = "reserved_instance"
# Those that may be exchanged cost more wherever both have a price.
OFFERING_CLASS: Final = "standard"
# The list of prices counts a year so.
HOURS_PER_YEAR: Final = 8760


def committed_prices(
    region: str, machine_types: Sequence[str]
) -> dict[str, dict[str, Decimal]]:
    """Return USD an hour of machine types, by the term and its payment, as ways to buy.

    price = USD an hour + USD at the start / hours of the term
    """
    with service("pricing", PRICE_REGION) as client:
        prices = {
            name: _cheapest(
                price
                for product in listed_products(client, region, name)
                for price in _term_prices(product)
            )
            for name in machine_types
        }
    return {
        name: by_purchase for name, by_purchase in prices.items() if by_purchase
    }


def _cheapest(prices: Iterable[tuple[str, Decimal]]) -> dict[str, Decimal]:
    """Return the lowest price of each way to buy."""
    found: dict[str, Decimal] = {}
    for purchase, usd in prices:
        found[purchase] = min(usd, found.get(purchase, usd))
    return found


def _term_prices(product: dict[str, Any]) -> Iterator[tuple[str, Decimal]]:
    """Yield the ways to buy an entry of the list for a term, with USD an hour."""
    for term in product["terms"].get("Reserved", {}).values():
        named = term.get("termAttributes", {})
        if named.get("OfferingClass") != OFFERING_CLASS:
            continue
        purchase = _purchase(
            named.get("LeaseContractLength", ""),
            named.get("PurchaseOption", ""),
        )
        if not purchase:
            continue
        usd = _usd_hour(
            list(term["priceDimensions"].values()),
            HOURS_PER_YEAR * TERM_OF[purchase].months // MONTHS_PER_YEAR,
        )
        if usd is not None:
            yield purchase, usd


def _purchase(length: str, payment: str) -> str:
    """Return the way to buy for a term as the list writes it; empty where there is none."""
    monthly = TERM_OF.get(term_of(CLOUD, length))
    facts = commitment_forms()[CLOUD, FORM]
    if monthly is None or not payment:
        return ""
    return next(
        (
            term.purchase
            for term in TERMS
            if term.months == monthly.months
            and facts.word_of(term.payment) == payment
        ),
        "",
    )


def _usd_hour(dimensions: list[dict[str, Any]], hours: int) -> Decimal | None:
    """Return USD an hour of a term; None where a part of it has no price in USD."""
    total = Decimal(0)
    for dimension in dimensions:
        usd = _amount(dimension["pricePerUnit"].get("USD", ""))
        if usd is None:
            return None
        match dimension["unit"]:
            case "Hrs":
                total += usd
            case "Quantity":
                total += usd / hours
            case _:
                return None
    return total if is_price(total) else None


def _amount(text: str) -> Decimal | None:
    """Return a part of a price, which may be zero; None for a text that is no such number."""
    try:
        usd = Decimal(text)
    except ArithmeticError:
        return None
    return usd if usd.is_finite() and usd >= 0 else None

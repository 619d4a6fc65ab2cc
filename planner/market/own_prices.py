"""Prices of one's own: what a contract takes off the list, and what comes on top of a bill."""

from __future__ import annotations

import itertools
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from planner.cost.service_price import Surcharges
from planner.errors import Problem, SpecError
from planner.market.unlike import difference
from planner.spec.field import Block, read_document
from planner.spec.field_table import block_fields
from planner.suggest import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from decimal import Decimal

    from planner.cost.service_price import PriceBook
    from planner.errors import Place
    from planner.market.offer import Catalog, Offer


ANY: Final = "*"


class OfferTerms(Struct, frozen=True, kw_only=True):
    """Terms of the machines that match: a share of the price on the list, or a price.

    type, region  patterns; None for all
    percent   what is taken off, as a share
    usd_hour  price of one machine, USD an hour
    """

    place: Place
    cloud: str
    type: str | None = None
    region: str | None = None
    purchase: str
    percent: Decimal | None = None
    usd_hour: Decimal | None = None

    @property
    def row(self) -> str:
        """Where they stand: file and line."""
        return f"{self.place.path}:{self.place.line}"

    def are_of(self, offer: Offer) -> bool:
        """Whether they hold for an offer."""
        return (
            offer.provider == self.cloud
            and offer.purchase == self.purchase
            and fnmatchcase(offer.instance.instance_type, self.type or ANY)
            and fnmatchcase(offer.region, self.region or ANY)
        )

    def priced(self, offer: Offer) -> Offer:
        """Return an offer at its price under these terms: list * (1 - share), or the rate."""
        row = self.row
        if self.percent is None:
            assert self.usd_hour is not None  # noqa: S101 - one of both is given
            return replace(
                offer,
                usd_hour=self.usd_hour,
                basis="observed",
                source=row,
                as_of="",
                confidence="high",
                old_price=None,
                price_range=None,
            )
        paid = 1 - self.percent
        old, seen = offer.old_price, offer.price_range
        return replace(
            offer,
            usd_hour=offer.usd_hour * paid,
            old_price=old.at(paid) if old is not None else None,
            price_range=seen.at(paid) if seen is not None else None,
            source=f"{row}: {(self.percent * 100).normalize():f} % off {offer.source}",
        )


class OwnPrices(Struct, frozen=True, kw_only=True):
    """The prices of a file.

    discounts, rates  of machines; the first that matches counts, and rates come first
    services  what is taken off everything else, as a share
    support   share of a bill that a support plan costs
    tax       share of a bill with its support plan
    credits   what is paid by credits, USD a month
    """

    place: Place
    discounts: tuple[OfferTerms, ...]
    rates: tuple[OfferTerms, ...]
    services: Decimal
    support: Decimal
    tax: Decimal
    credits: Decimal | None

    def applied(self, catalog: Catalog) -> Catalog:
        """Return a catalog at these prices.

        Raises SpecError for a rate of machines that are not alike: one price would be that of
        the largest and of the smallest.
        """
        problems = [*self._unlike_rates(catalog)]
        if problems:
            raise SpecError(*problems)
        return replace(
            catalog,
            offers=tuple(map(self._priced, catalog.offers)),
            unlisted=tuple(map(self._priced, catalog.unlisted)),
            price_book=self._book(catalog.price_book, self._unused(catalog)),
        )

    def _unlike_rates(self, catalog: Catalog) -> Iterator[Problem]:
        """Yield which rates are of several sizes of machines, or of several prices on the list."""
        offers_by_rate: dict[OfferTerms, list[Offer]] = {}
        for offer in (*catalog.offers, *catalog.unlisted):
            terms = self._terms_of(offer)
            if terms is not None and terms.usd_hour is not None:
                offers_by_rate.setdefault(terms, []).append(offer)
        for terms, offers in offers_by_rate.items():
            unlike = difference(
                [*{offer.key[:2]: offer.instance for offer in offers}.values()],
                itertools.chain.from_iterable(
                    catalog.offers_by_place.get(key, {}).values()
                    for key in {offer.key[:3] for offer in offers}
                ),
            )
            if unlike is not None:
                yield Problem(
                    code="rate",
                    message=f"rates: '{terms.type}' is of machines that are not alike: {unlike}",
                    place=terms.place,
                    next_step="give each machine type a rate of its own, or all a discount",
                )

    def _unused(self, catalog: Catalog) -> tuple[str, ...]:
        """Return where terms stand that are of no machine of a catalog, and what is like them."""
        offers = (*catalog.offers, *catalog.unlisted)
        return tuple(
            f"{terms.place}{_similar(terms, offers)}"
            for terms in (*self.rates, *self.discounts)
            if not any(map(terms.are_of, offers))
        )

    def _terms_of(self, offer: Offer) -> OfferTerms | None:
        """Return the first terms that hold for an offer."""
        return next(
            (
                terms
                for terms in (*self.rates, *self.discounts)
                if terms.are_of(offer)
            ),
            None,
        )

    def _priced(self, offer: Offer) -> Offer:
        terms = self._terms_of(offer)
        return offer if terms is None else terms.priced(offer)

    def _book(
        self, price_book: PriceBook, unused_rows: tuple[str, ...]
    ) -> PriceBook:
        return replace(
            price_book,
            prices={
                key: tuple(
                    replace(price, usd=price.usd * (1 - self.services))
                    for price in prices
                )
                for key, prices in price_book.prices.items()
            },
            surcharges=Surcharges(
                has_discounts=bool(
                    self.discounts or self.rates or self.services
                ),
                support=self.support,
                tax=self.tax,
                credits_usd=self.credits,
                source=self.place.path,
                unused_rows=unused_rows,
            ),
        )


def _similar(terms: OfferTerms, offers: Sequence[Offer]) -> str:
    """Ask whether a machine type was meant, where terms name none that there is."""
    names = {
        offer.instance.instance_type
        for offer in offers
        if offer.provider == terms.cloud
    }
    pattern = terms.type or ANY
    if any(fnmatchcase(name, pattern) for name in names):
        return ""
    question = did_you_mean(pattern, sorted(names), otherwise="")
    return f" ({question})" if question else ""


PRICES_FILE: Final = Block(
    "prices",
    OwnPrices,
    block_fields(
        "prices",
        "prices",
        {
            name: Block(name, OfferTerms, block_fields("prices", name))
            for name in ("discounts", "rates")
        },
    ),
    doc="Prices of one's own: discounts, rates, a support plan, a tax and credits.",
)


def read_own_prices(file_bytes: bytes, path: str) -> OwnPrices:
    """Return the prices of a file. Raises SpecError with all of its problems."""
    prices: OwnPrices = read_document(PRICES_FILE, file_bytes, path)
    return prices

"""The rows of a catalog's table of prices, as text.

What nobody changes is written as it was read.
"""

from __future__ import annotations

import csv
import io
from decimal import Decimal
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import asdict, fields

from planner.facts import table

if TYPE_CHECKING:
    from collections.abc import Iterable

    from planner.market.offer_key import OfferKey


class PriceRow(Struct, frozen=True, kw_only=True):
    """A line of prices.csv; fields have the names of its columns. Prices are USD an hour."""

    provider: str
    instance_type: str
    region: str
    purchase: str
    scope: str
    usd_hour: str
    basis: str
    usd_min: str
    usd_max: str
    as_of: str
    source: str
    confidence: str

    @property
    def key(self) -> OfferKey:
        """What the price is of."""
        return self.provider, self.region, self.instance_type, self.purchase

    @property
    def usd(self) -> Decimal:
        """The price in USD an hour."""
        return Decimal(self.usd_hour)


def read_price_rows(text: str) -> list[PriceRow]:
    """Return the rows of a table of prices. Raises CatalogError for another table."""
    columns: table.Columns = {
        **{field.name: table.any_text for field in fields(PriceRow)},
        "usd_hour": _price_text,
    }
    return [
        PriceRow(**row.cells)
        for row in table.read_rows(text, "prices.csv", columns)
    ]


def _price_text(cell: str) -> str:
    """Return the text of a price as it is. Raises ValueError for none."""
    table.usd_price(cell)
    return cell


def price_table(rows: Iterable[PriceRow]) -> str:
    """Return rows as the text of a table."""
    buffer = io.StringIO()
    writer = csv.DictWriter(
        buffer,
        [field.name for field in fields(PriceRow)],
        lineterminator="\n",
    )
    writer.writeheader()
    writer.writerows(asdict(row) for row in rows)
    return buffer.getvalue()

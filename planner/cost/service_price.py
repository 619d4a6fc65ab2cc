"""Prices of all services besides machines, by provider and role."""

from __future__ import annotations

from decimal import Decimal  # noqa: TC003 - msgspec reads the annotations

from msgspec import Struct


class ServicePrice(Struct, frozen=True, kw_only=True):
    """One price of a service, or one tier of it.

    `usd`  price, USD per `unit`
    `from_gb`, `to_gb`  GB of a month that an egress tier covers, None for an open end
    `source`, `as_of`  where the price is from, and its date
    """

    provider: str
    role: str
    item: str
    region: str
    unit: str
    usd: Decimal
    from_gb: Decimal | None
    to_gb: Decimal | None
    source: str
    as_of: str
    confidence: str


class PriceBook(Struct, frozen=True):
    """Service prices by provider and role.

    A role without a price is unknown, never zero.
    """

    prices: dict[tuple[str, str], tuple[ServicePrice, ...]]

    def find(self, provider: str, role: str) -> tuple[ServicePrice, ...]:
        """Return the price, or its tiers in order; empty when it is not known."""
        return self.prices.get((provider, role), ())

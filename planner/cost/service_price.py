"""Prices of everything that is not an accelerator, by provider and role."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from decimal import Decimal


@dataclass(frozen=True, slots=True, kw_only=True)
class ServicePrice:
    """One price: USD per `unit`; egress has tiers that count GB of a month."""

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


@dataclass(frozen=True, slots=True)
class PriceBook:
    """All service prices; a role that a provider has no price for is unknown, never zero."""

    prices: dict[tuple[str, str], tuple[ServicePrice, ...]]

    def find(self, provider: str, role: str) -> tuple[ServicePrice, ...]:
        """Return the price, or its tiers in order; empty when it is not known."""
        return self.prices.get((provider, role), ())

"""Prices of all services besides machines, by provider and role."""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003 - msgspec reads the annotations
from decimal import Decimal
from typing import Final

from msgspec import Struct, field

from planner.cost.usage import usage_value


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

    @property
    def row(self) -> str:
        """Which row of the catalog it is; tiers of one service share its name."""
        return f"services.csv: {self.provider} {self.region} {self.item}"


class Surcharges(Struct, frozen=True, kw_only=True):
    """What comes on top of the lines of a bill.

    support      share of the lines that a support plan costs
    tax          share of the lines with the support plan
    credits_usd  what credits pay of a month, USD; None without them
    source       file that says so; empty where nothing does
    has_discounts  whether the prices of the lines are those of a contract
    unused_rows  places of prices of that contract that are of no machine of the catalog
    """

    has_discounts: bool = False
    support: Decimal = Decimal(0)
    tax: Decimal = Decimal(0)
    credits_usd: Decimal | None = None
    source: str = ""
    unused_rows: tuple[str, ...] = ()

    @property
    def factor(self) -> Decimal:
        """A bill over the sum of its lines: (1 + support) * (1 + tax)."""
        return (1 + self.support) * (1 + self.tax)


NO_SURCHARGES: Final = Surcharges()


class PriceBook(Struct, frozen=True):
    """Service prices by provider and role, what comes on top of a bill, and what is used.

    A role without a price is unknown, never zero. `usage` has what a spec states instead of rows
    of data/usage.csv.
    """

    prices: dict[tuple[str, str], tuple[ServicePrice, ...]]
    surcharges: Surcharges = NO_SURCHARGES
    usage: Mapping[str, Decimal] = field(default_factory=dict)

    def find(self, provider: str, role: str) -> tuple[ServicePrice, ...]:
        """Return the price, or its tiers in order; empty when it is not known."""
        return self.prices.get((provider, role), ())

    def used(self, usage_name: str) -> Decimal:
        """Return how much is used of something: as the spec states it, or as is assumed."""
        stated = self.usage.get(usage_name)
        return usage_value(usage_name) if stated is None else stated

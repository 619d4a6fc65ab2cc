"""What parts of machines cost, from the SKUs of Google Cloud's price catalog.

The catalog has no machines: it sells cores, GiB of memory, accelerators and local SSD of a family
apart, and some machines by accelerators alone. Rows of sku_rules.csv say which SKUs pay for which
part. Only descriptions tell SKUs apart, so a row says how they begin and what they do not have.
"""

from __future__ import annotations

from collections import defaultdict
from decimal import Decimal
from fnmatch import fnmatchcase
from functools import cache
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from planner.facts import table
from planner.units import BYTES_PER_BILLED_GB, BYTES_PER_GIB, HOURS_PER_MONTH

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

PARTS: Final = ("vcpu", "ram_gib", "accelerator", "local_ssd")
# How much of a part for an hour one unit of a SKU is: cores and accelerators are counted, memory
# and disks are GiB. SKUs in other units are left out.
UNIT_AMOUNTS: Final = {
    "h": Decimal(1),
    "GiBy.h": Decimal(1),
    "GBy.h": BYTES_PER_BILLED_GB / BYTES_PER_GIB,
    "GiBy.mo": HOURS_PER_MONTH,
}
NANOS: Final = Decimal(10**9)
# Dollars are counted to the nano, as in the catalog.
PRICE_DIGITS: Final = 9


class SkuRule(Struct, frozen=True, kw_only=True):
    """Which SKUs pay for a part of some machines, in one way to buy.

    machines     patterns of machine types
    purchase     on_demand or spot
    starts       how the description begins, in one of these ways
    excludes     texts that it has none of
    usage_types  what the catalog calls the way to buy, which is not always what it is
    per_unit     units of the SKU for one of the part: GiB of a partition, slices of an accelerator
    is_all_in    whether it pays for the other parts too
    """

    machines: tuple[str, ...]
    purchase: str
    part: str
    starts: tuple[str, ...]
    excludes: tuple[str, ...]
    usage_types: tuple[str, ...]
    per_unit: Decimal
    is_all_in: bool

    def pays_for(self, machine_type: str) -> bool:
        """Whether it is about a machine type."""
        return any(
            fnmatchcase(machine_type, pattern) for pattern in self.machines
        )

    def is_about(self, sku: Sku) -> bool:
        """Whether a SKU is one of those that it means."""
        return (
            sku.category.usage_type in self.usage_types
            and sku.description.startswith(self.starts)
            and not any(text in sku.description for text in self.excludes)
        )


class _Money(Struct, frozen=True):
    """Dollars, and parts of one: with one of them alone nobody knows how much it is."""

    units: int | None = None
    nanos: int | None = None


class _TieredRate(Struct, frozen=True, rename="camel"):
    unit_price: _Money = _Money()


class _PricingExpression(Struct, frozen=True, rename="camel"):
    usage_unit: str = ""
    tiered_rates: tuple[_TieredRate, ...] = ()


class _PricingInfo(Struct, frozen=True, rename="camel"):
    pricing_expression: _PricingExpression = _PricingExpression()


class _SkuCategory(Struct, frozen=True, rename="camel"):
    usage_type: str = ""


class Sku(Struct, frozen=True, rename="camel"):
    """What is sold at one price in some regions, as far as it matters here."""

    description: str = ""
    category: _SkuCategory = _SkuCategory()
    service_regions: tuple[str, ...] = ()
    pricing_info: tuple[_PricingInfo, ...] = ()

    @property
    def usd_hour(self) -> Decimal | None:
        """Price of a core, a GiB or an accelerator for an hour, in USD.

        None where it is zero or half of it is missing, in a unit that is not known here, or
        depends on what was used before.
        """
        if not self.pricing_info:
            return None
        expression = self.pricing_info[0].pricing_expression
        amount = UNIT_AMOUNTS.get(expression.usage_unit)
        if amount is None or len(expression.tiered_rates) != 1:
            return None
        money = expression.tiered_rates[0].unit_price
        if money.units is None or money.nanos is None:
            return None
        return (money.units + money.nanos / NANOS) / amount or None


class SkuPage(Struct, frozen=True):
    """A page of the catalog."""

    skus: tuple[Sku, ...] = ()


class PartRates:
    """USD an hour for one of each part, by rule and region."""

    def __init__(self) -> None:
        self._rates: dict[tuple[SkuRule, str], set[Decimal]] = defaultdict(set)

    def add(self, skus: Iterable[Sku]) -> None:
        """Take the prices of the SKUs that rules mean."""
        for sku in skus:
            usd_hour = sku.usd_hour
            if usd_hour is None:
                continue
            for rule in sku_rules():
                if rule.is_about(sku):
                    for region in sku.service_regions:
                        self._rates[rule, region].add(usd_hour)

    def machine_price(
        self,
        machine_type: str,
        amounts: Mapping[str, Decimal],
        region: str,
        purchase: str,
    ) -> Decimal | None:
        """Return USD an hour of a machine: the sum over its parts of amount x per unit x rate.

        None where rules and machine do not have the same parts, or where a part has no rate, or
        has two: a sum without a part would be too low.
        """
        rules = [
            rule
            for rule in sku_rules()
            if rule.purchase == purchase and rule.pays_for(machine_type)
        ]
        is_whole = any(rule.is_all_in for rule in rules) or (
            {rule.part for rule in rules} == amounts.keys()
        )
        if not rules or not is_whole:
            return None
        price = Decimal(0)
        for rule in rules:
            rates = self._rates.get((rule, region), set())
            if len(rates) != 1 or rule.part not in amounts:
                return None
            [usd_hour] = rates
            price += amounts[rule.part] * rule.per_unit * usd_hour
        rounded = round(price, PRICE_DIGITS)
        return rounded if table.is_price(rounded) else None


@cache
def sku_rules() -> tuple[SkuRule, ...]:
    """Return all rules. Raises CatalogError for an invalid row."""
    columns: table.Columns = {
        "machines": table.word_list,
        "purchase": table.one_of("on_demand", "spot"),
        "part": table.one_of(*PARTS),
        "starts": table.word_list,
        "excludes": table.word_list,
        "usage_types": table.word_list,
        "per_unit": table.finite_decimal,
        "is_all_in": table.yes_or_no,
        **table.SOURCE_COLUMNS,
    }
    return tuple(
        SkuRule(**{name: row[name] for name in SkuRule.__struct_fields__})
        for row in table.load_rows("providers.gcp", "sku_rules.csv", columns)
    )

"""What an object in a cloud costs an hour, whoever made it: machines, disks, gateways, addresses.

What is paid by use (traffic, stored bytes, logs) is not known of an object, and is left out.
"""

from __future__ import annotations

import re
from decimal import Decimal  # noqa: TC003 - msgspec reads the annotations
from functools import cache
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from planner.cost.bill_line import ADDRESS_KIND, KEPT_DISK, MACHINE_KIND
from planner.facts import table
from planner.facts.cloud import clouds
from planner.market.offer import FLEX_PURCHASE
from planner.units import HOURS_PER_MONTH
from providers.registry import all_providers
from providers.resource_type import values_at

if TYPE_CHECKING:
    from planner.cost.service_price import ServicePrice
    from planner.market.offer import Catalog
    from planner.plan.types import Properties
    from providers.base import NodeGroup


class Rate(Struct, frozen=True, kw_only=True):
    """What something costs for as long as it exists.

    kind      kind of the line of a bill
    usd_hour  USD an hour; of each node, where it is `per_node`
    """

    kind: str
    usd_hour: Decimal
    per_node: bool = False


class MeteredType(Struct, frozen=True):
    """How a type of resource is paid for.

    kind      kind of the line of a bill
    role      role of its price; {tier} stands for the number in the property `tier`
    tier      property that the price depends on; empty for one price
    quantity  property that says how much there is of it, or that lists what counts as one each;
              empty for one of it
    factor    units of the price in a unit of that property
    """

    kind: str
    role: str
    tier: str
    quantity: str
    factor: int


def node_group(
    resource_type: str,
    inputs: Properties,
    objects: dict[str, Properties],
    region: str,
) -> NodeGroup | None:
    """Return the nodes that a resource asks for, whichever cloud it is of."""
    for provider in all_providers():
        group = provider.node_group(resource_type, inputs, objects, region)
        if group is not None:
            return group
    return None


def group_rates(group: NodeGroup, catalog: Catalog) -> list[Rate]:
    """Return what each node of a group costs: the machine, its disks, its way out.

    Of a reservation it is the machine alone, which then costs nothing beside it. A machine type
    that the catalog does not have at this place costs nothing that is known.
    """
    provider, region, machine_type, purchase = group.offer_key
    rates = [
        Rate(kind=MACHINE_KIND, usd_hour=offer.usd_hour, per_node=True)
        for offer in (
            *catalog.offers,
            *(o for o in catalog.unlisted if o.purchase == FLEX_PURCHASE),
        )
        if offer.key == (provider, machine_type, region, purchase)
    ]
    if group.is_kept:
        return rates
    # Where boot disks have fixed sizes, one is one.
    fixed = _price(catalog, provider, "disk_p10")
    disk = _price(catalog, provider, "disk")
    cache_disk = _price(catalog, provider, "cache_disk") or disk
    for price, gb in (
        (fixed or disk, 1 if fixed else group.boot_gb),
        (cache_disk, group.data_gb),
    ):
        if price is not None and gb:
            rates.append(
                Rate(kind="disk", usd_hour=_hourly(price, gb), per_node=True)
            )
    if group.has_address:
        address = purchase == "spot" and _price(
            catalog, provider, "public_ip_spot"
        )
        address = address or _price(catalog, provider, "public_ip")
        if address is not None:
            rates.append(
                Rate(kind=ADDRESS_KIND, usd_hour=address.usd, per_node=True)
            )
        return rates
    nat = _price(catalog, provider, "nat_per_node")
    if nat is not None:
        rates.append(Rate(kind="nat_per_node", usd_hour=nat.usd, per_node=True))
    return rates


def object_rates(
    resource_type: str, inputs: Properties, catalog: Catalog
) -> list[Rate]:
    """Return what an object costs that is no group of machines."""
    metered = _metered_types().get(resource_type)
    if metered is None:
        return []
    provider = _provider_of(resource_type)
    tier = "".join(
        number
        for value in _values(inputs, metered.tier)
        for number in re.findall(r"\d+", str(value))
    )
    price = _price(catalog, provider, metered.role.replace("{tier}", tier))
    if price is None and metered.kind == KEPT_DISK:
        price = _price(catalog, provider, "disk")
    if price is None:
        return []
    amount = sum(
        _count(value) * metered.factor
        for value in _values(inputs, metered.quantity)
    )
    # A gateway endpoint has no interface, and costs nothing.
    if metered.quantity and not amount:
        return []
    return [
        Rate(
            kind=metered.kind,
            usd_hour=_hourly(price, amount if metered.quantity else 1),
        )
    ]


def _values(inputs: Properties, path: str) -> list[Any]:
    return list(values_at(inputs, path)) if path else []


def _count(value: Any) -> int:
    """Return a number as it is, and what is named, such as a subnet, as one."""
    is_number = isinstance(value, int | float) or str(value).isdecimal()
    return int(value) if is_number else 1


def _price(catalog: Catalog, provider: str, role: str) -> ServicePrice | None:
    return (*catalog.price_book.find(provider, role), None)[0]


def _hourly(price: ServicePrice, amount: int) -> Decimal:
    """Return the price of an amount for an hour: prices are by the hour or by the month."""
    usd = price.usd * amount
    return usd / HOURS_PER_MONTH if price.unit.endswith("-month") else usd


def _provider_of(resource_type: str) -> str:
    package = resource_type.split(":", maxsplit=1)[0]
    return next(
        cloud for cloud, facts in clouds().items() if facts.package == package
    )


@cache
def _metered_types() -> dict[str, MeteredType]:
    columns = {
        "type": table.nonempty_text,
        "kind": table.nonempty_text,
        "role": table.nonempty_text,
        "tier": table.any_text,
        "quantity": table.any_text,
        "factor": table.integer_between(1, 10**6),
        **table.SOURCE_COLUMNS,
    }
    return {
        row["type"]: MeteredType(
            row["kind"],
            row["role"],
            row["tier"],
            row["quantity"],
            row["factor"],
        )
        for row in table.load_rows("providers", "metered.csv", columns)
    }

"""The lines of the bill: what it is, how much of it, at which price of which date.

Decimal throughout. A price that is not known is no line of zero: it is excluded and said so.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Final

from planner.cost.week import HOURS_PER_MONTH
from planner.facts import table

if TYPE_CHECKING:
    from planner.cost.price import PriceBook, ServicePrice

CENT: Final = Decimal("0.01")
FINE: Final = Decimal("0.0001")
ROLES: Final = {
    "disk": ("boot disks", "GB-month"),
    "load_balancer": ("load balancer", "hour"),
    "load_balancer_data": ("load balancer data", "GB"),
    "load_balancer_unit": ("load balancer data", "unit-hour"),
    "logs": ("logs", "GB"),
    "nat": ("NAT gateway", "hour"),
    "nat_data": ("NAT data", "GB"),
    "object_storage": ("object storage", "GB-month"),
    "public_ip": ("public address", "hour"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line; `unit_price` and `usd_month` are None when no price is known."""

    name: str
    kind: str
    unit: str
    quantity: Decimal
    unit_price: Decimal | None
    usd_month: Decimal | None
    source: str
    as_of: str

    @property
    def found(self) -> bool:
        """Whether a price is known."""
        return self.usd_month is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What the fleet uses in a month, beside its accelerators.

    node_hours are hours of running nodes, on_hours of the stack, nodes the most at once;
    `standing` hours are those in which the network is there.
    """

    provider: str
    nodes: int
    node_hours: Decimal
    on_hours: Decimal
    cache_gb: Decimal
    weights_gb: Decimal
    sent_gb: Decimal
    received_gb: Decimal
    served: bool
    standing: Decimal = HOURS_PER_MONTH


@cache
def usage(name: str) -> Decimal:
    """Return an assumption of how much is used, from data/usage.csv."""
    columns = {
        "usage": table.text,
        "value": table.decimal,
        "unit": table.text,
        "meaning": table.text,
        **table.SOURCED,
    }
    text = (
        files("planner.cost")
        .joinpath("data", "usage.csv")
        .read_text(encoding="utf-8")
    )
    found = {
        r["usage"]: r["value"] for r in table.rows(text, "usage.csv", columns)
    }
    value: Decimal = found[name]
    return value


def priced(
    name: str,
    kind: str,
    unit: str,
    quantity: Decimal,
    price: ServicePrice | None,
) -> Line:
    """A line for a quantity at a price, rounded to the cent; without a price it is unknown."""
    fine = quantity.quantize(FINE, ROUND_HALF_UP)
    if price is None:
        return Line(
            name=name,
            kind=kind,
            unit=unit,
            quantity=fine,
            unit_price=None,
            usd_month=None,
            source="",
            as_of="",
        )
    return Line(
        name=name,
        kind=kind,
        unit=unit,
        quantity=fine,
        unit_price=price.usd,
        usd_month=(fine * price.usd).quantize(CENT, ROUND_HALF_UP),
        source=price.source,
        as_of=price.as_of,
    )


def services(use: Usage, book: PriceBook) -> list[Line]:
    """Return every line that is not an accelerator, in the order of the bill."""
    months = use.node_hours / HOURS_PER_MONTH
    lines = [_disk(use, book, months)]
    if use.cache_gb:
        lines.append(_cache(use, book, months))
    lines += _network(use, book)
    if use.served:
        lines += _balancer(use, book)
        lines += egress(use.provider, use.sent_gb, book)
    logged = use.node_hours * usage("log_gb_per_node_hour")
    stored = _single(use, book, "object_storage", use.weights_gb)
    return [*lines, stored, _single(use, book, "logs", logged)]


def total(lines: list[Line]) -> tuple[Decimal, list[str]]:
    """Return the sum of the known lines, and the names of the unknown ones."""
    known = sum(
        (x.usd_month for x in lines if x.usd_month is not None), Decimal(0)
    )
    return known, [x.name for x in lines if not x.found]


def _single(use: Usage, book: PriceBook, role: str, quantity: Decimal) -> Line:
    """The line of a role that has one price; its name and unit stand in ROLES."""
    name, unit = ROLES[role]
    found = book.find(use.provider, role)
    return priced(
        name,
        role,
        found[0].unit if found else unit,
        quantity,
        (*found, None)[0],
    )


def _disk(use: Usage, book: PriceBook, months: Decimal) -> Line:
    """Boot disks: by the GB, or by the disk where a cloud sells fixed sizes."""
    fixed = book.find(use.provider, "disk_p10")
    if fixed:
        return priced("boot disks", "disk", fixed[0].unit, months, fixed[0])
    return _single(use, book, "disk", usage("boot_disk_gb") * months)


def _cache(use: Usage, book: PriceBook, months: Decimal) -> Line:
    found = book.find(use.provider, "cache_disk") or book.find(
        use.provider, "disk"
    )
    price = found[0] if found else None
    unit = price.unit if price else "GB-month"
    return priced(
        "model and data disks", "disk", unit, use.cache_gb * months, price
    )


def _network(use: Usage, book: PriceBook) -> list[Line]:
    """NAT by the hour or by the node, what flows through it, and its public address.

    Nodes reach object storage through a private endpoint; only images pass the NAT.
    """
    starts = usage("node_starts_per_month") * use.node_hours / HOURS_PER_MONTH
    per_node = book.find(use.provider, "nat_per_node")
    if per_node:
        nat = priced(
            "NAT gateway", "nat", per_node[0].unit, use.node_hours, per_node[0]
        )
    else:
        nat = _single(use, book, "nat", use.standing)
    through = _single(
        use, book, "nat_data", usage("container_image_gb") * starts
    )
    return [nat, through, _single(use, book, "public_ip", use.standing)]


def _balancer(use: Usage, book: PriceBook) -> list[Line]:
    """The load balancer and what it processes, by the GB or by units of 1 GB an hour."""
    units = book.find(use.provider, "load_balancer_unit")
    role = "load_balancer_unit" if units else "load_balancer_data"
    moved = _single(use, book, role, use.sent_gb + use.received_gb)
    return [_single(use, book, "load_balancer", HOURS_PER_MONTH), moved]


def egress(
    provider: str, gb: Decimal, book: PriceBook, name: str = "egress"
) -> list[Line]:
    """What leaves a cloud for the internet, one line for each price tier that is reached."""
    tiers = book.find(provider, "egress")
    if not tiers:
        return [priced(name, "egress", "GB", gb, None)]
    lines = []
    for tier in tiers:
        low = tier.from_gb or Decimal(0)
        high = gb if tier.to_gb is None else min(gb, tier.to_gb)
        if high > low and tier.usd:
            lines.append(
                priced(
                    f"{name} above {low:f} GB", "egress", "GB", high - low, tier
                )
            )
    top = tiers[-1].to_gb
    if top is not None and gb > top:
        lines.append(
            priced(f"{name} above {top:f} GB", "egress", "GB", gb - top, None)
        )
    return lines

"""Slices of TPUs: machines whose chips one interconnect joins, which are had as a whole.

A slice is an offer whose machine type is all of it. Its price is that of its machines, since
Google bills chips. Which shapes there are is rows of data/slices.csv.
"""

from __future__ import annotations

from decimal import Decimal
from functools import cache
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from planner.facts import table

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from planner.market.offer import Instance, Offer


class SliceShape(Struct, frozen=True, kw_only=True):
    """A shape in which chips are joined: `topology` such as 4x4, of machines of `host_type`."""

    host_type: str
    topology: str
    chips: int


@cache
def slice_shapes() -> dict[str, tuple[SliceShape, ...]]:
    """Return the shapes by the type of their machines. Raises CatalogError for an invalid row."""
    columns: table.Columns = {
        "host_type": table.nonempty_text,
        "topology": table.nonempty_text,
        "chips": table.integer_between(2, 10_000),
        **table.SOURCE_COLUMNS,
    }
    shapes: dict[str, tuple[SliceShape, ...]] = {}
    for row in table.load_rows("planner.market", "slices.csv", columns):
        shape = SliceShape(
            host_type=row["host_type"],
            topology=row["topology"],
            chips=row["chips"],
        )
        shapes[shape.host_type] = (*shapes.get(shape.host_type, ()), shape)
    return shapes


def slice_offers(offers: Iterable[Offer]) -> Iterator[Offer]:
    """Yield the slices that are had where, and as, their machines are."""
    shapes = slice_shapes()
    for offer in offers:
        for shape in shapes.get(offer.instance.instance_type, ()):
            yield _slice_offer(offer, shape)


def _slice_offer(offer: Offer, shape: SliceShape) -> Offer:
    """Return an offer of a whole slice: so many times what its machines have and cost."""
    instance = _slice_type(offer.instance, shape)
    machines = Decimal(instance.machines)
    seen, old = offer.price_range, offer.old_price
    found_usd_hour = offer.found_usd_hour
    return replace(
        offer,
        instance=instance,
        usd_hour=offer.usd_hour * machines,
        found_usd_hour=found_usd_hour and found_usd_hour * machines,
        price_range=seen and seen.at(machines),
        old_price=old and old.at(machines),
    )


def _slice_type(host: Instance, shape: SliceShape) -> Instance:
    machines = shape.chips // host.accelerators
    return replace(
        host,
        instance_type=f"{host.instance_type}-{shape.topology}",
        accelerators=shape.chips,
        vcpu=host.vcpu * machines,
        ram_gib=host.ram_gib * machines,
        network_gbps=host.network_gbps * machines,
        machines=machines,
        host_type=host.instance_type,
    )

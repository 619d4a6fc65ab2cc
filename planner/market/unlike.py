"""In what machines differ that one row of a file means: one number cannot be true of all."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from planner import figures

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from planner.market.offer import Instance, Offer


def difference(
    instances: Collection[Instance], offers: Iterable[Offer]
) -> str | None:
    """Return two machine types and in what they differ, or nothing.

    They differ in accelerators, or in the price on demand of those `offers` that are in a region.
    """
    return _size_difference(instances) or _price_difference(offers)


def _size_difference(instances: Collection[Instance]) -> str | None:
    """Return two machine types with unlike numbers of accelerators, or nothing."""
    by_size = sorted(
        instances,
        key=lambda instance: instance.accelerators * instance.fraction,
    )
    least, most = by_size[0], by_size[-1]
    if least.accelerators * least.fraction == most.accelerators * most.fraction:
        return None
    return f"{_size_text(least)}, and {_size_text(most)}"


def _size_text(instance: Instance) -> str:
    count = instance.accelerators * instance.fraction
    return f"{instance.instance_type} has {count:g} x {instance.accelerator}"


def _price_difference(offers: Iterable[Offer]) -> str | None:
    """Return two machine types with unlike prices on demand in one region, or nothing."""
    on_demand = sorted(
        (offer for offer in offers if offer.purchase == "on_demand"),
        key=lambda offer: (offer.region, offer.instance.instance_type),
    )
    for one, other in pairwise(on_demand):
        if one.region == other.region and one.usd_hour != other.usd_hour:
            return (
                f"{one.instance.instance_type} costs {figures.unit_price(one.usd_hour)} USD an "
                f"hour in {one.region}, and {other.instance.instance_type} costs "
                f"{figures.unit_price(other.usd_hour)}"
            )
    return None

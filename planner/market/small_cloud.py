"""What machines cost at clouds on which nothing is built here: beside a fleet, and as offers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from planner.cost.bill_line import CENT
from planner.facts.small_cloud import small_cloud_machines
from planner.market.offer import Instance, Offer

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator
    from decimal import Decimal

    from planner.facts.small_cloud import SmallCloudMachine
    from planner.market.offer import Catalog

NAMED_CLOUDS: Final = 3
# The price is the same in all regions of such a cloud.
ANY_REGION: Final = "any-region"


class SmallCloudFleet(Struct, frozen=True):
    """The machines of a fleet at a small cloud, USD in the period of the bill."""

    machine: SmallCloudMachine
    usd: Decimal


def catalog_machines(catalog: Catalog) -> tuple[SmallCloudMachine, ...]:
    """Return the machines of small clouds: those of a catalog, or else of the program."""
    if catalog.small_machines is None:
        return small_cloud_machines()
    return catalog.small_machines


def cheapest_elsewhere(
    machines: Iterable[SmallCloudMachine],
    instance: Instance,
    node_hours: Decimal,
    most: int = NAMED_CLOUDS,
) -> tuple[SmallCloudFleet, ...]:
    """Return what node-hours cost at the small clouds with such machines, the cheapest first.

    Such machines have as many of the same accelerator. Of each cloud it is the cheapest one.
    """
    if instance.fraction != 1:
        return ()
    cheapest: dict[str, SmallCloudMachine] = {}
    for machine in machines:
        if (machine.accelerator, machine.accelerators) != (
            instance.accelerator,
            instance.accelerators,
        ):
            continue
        known = cheapest.get(machine.cloud)
        if known is None or machine.usd_hour < known.usd_hour:
            cheapest[machine.cloud] = machine
    fleets = (
        SmallCloudFleet(machine, (node_hours * machine.usd_hour).quantize(CENT))
        for machine in cheapest.values()
    )
    ranked = sorted(fleets, key=lambda fleet: (fleet.usd, fleet.machine.cloud))
    return tuple(ranked[:most])


def with_small_clouds(
    catalog: Catalog, cloud_names: Collection[str]
) -> Catalog:
    """Return a catalog with the machines of some small clouds; as it is without any."""
    added = tuple(_offers(catalog, cloud_names))
    if not added:
        return catalog
    return replace(catalog, offers=(*catalog.offers, *added))


def _offers(catalog: Catalog, cloud_names: Collection[str]) -> Iterator[Offer]:
    """Yield the machines of small clouds, as far as their hosts can be told.

    Their price lists say accelerators and little else. A host is taken to be like the cheapest of
    the catalog with as many of the same accelerator, without its fabric and its local disks.
    """
    named = [
        machine
        for machine in catalog_machines(catalog)
        if machine.cloud_name in cloud_names
    ]
    if not named:
        return
    alike: dict[tuple[str, int], Offer] = {}
    for offer in sorted(
        catalog.offers, key=lambda offer: (offer.usd_hour, offer.key)
    ):
        if offer.purchase == "on_demand" and offer.instance.fraction == 1:
            shape = (offer.instance.accelerator, offer.instance.accelerators)
            alike.setdefault(shape, offer)
    for machine in named:
        like = alike.get((machine.accelerator, machine.accelerators))
        if like is not None:
            yield _offer(machine, like.instance)


def _offer(machine: SmallCloudMachine, like: Instance) -> Offer:
    return Offer(
        instance=replace(
            like,
            provider=machine.cloud_name,
            instance_type=machine.machine,
            family=machine.machine,
            nvme_gb=0.0,
            fabric="none",
            fabric_gbps=0.0,
            gpudirect_rdma=False,
            network_cards=1,
            fabric_interfaces=0,
            on_demand=True,
            spot=False,
        ),
        region=ANY_REGION,
        zones=(),
        purchase="on_demand",
        usd_hour=machine.usd_hour,
        basis="observed",
        source=machine.source,
        as_of=machine.as_of,
        confidence="medium",
    )

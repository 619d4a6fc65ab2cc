"""What can be bought: instance types, offers and the catalog that lists them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import TYPE_CHECKING, Final

from planner.facts.accelerator import Accelerator, accelerators
from planner.perf.common.layout import Node

if TYPE_CHECKING:
    from collections.abc import Iterable
    from decimal import Decimal

    from planner.cost.service_price import PriceBook

ORDERABLE_PURCHASES: Final = ("on_demand", "spot", "reserved_1y", "reserved_3y")


@dataclass(frozen=True, kw_only=True)
class Instance:
    """A machine type: its accelerators, host, network and fabric. GiB, Gbps, GB."""

    provider: str
    instance_type: str
    family: str
    accelerator: str
    accelerators: int
    fraction: float
    memory_gib_each: float
    vcpu: int
    ram_gib: float
    nvme_gb: float
    network_gbps: float
    fabric: str
    fabric_gbps: float
    gpudirect_rdma: bool
    network_cards: int
    fabric_interfaces: int
    scaleup: str
    arch: str
    on_demand: bool
    spot: bool
    confidence: str

    @cached_property
    def chip(self) -> Accelerator:
        """The accelerator's data sheet."""
        return accelerators()[self.accelerator]

    @cached_property
    def node(self) -> Node:
        """The machine as the performance model sees it.

        The memory of each accelerator is the smaller of what the driver reports for the chip and
        what the cloud states for the machine.
        """
        return Node(
            accelerator=self.chip,
            accelerator_count=self.accelerators,
            memory_gib=min(
                self.memory_gib_each, self.chip.memory_gib * self.fraction
            ),
            compute_fraction=self.fraction,
            scaleup_link=self.scaleup,
            network_gb_s=max(self.fabric_gbps, self.network_gbps) / 8,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """An instance type in a region at a purchase option; USD an hour for one machine."""

    instance: Instance
    region: str
    zones: tuple[str, ...]
    purchase: str
    usd_hour: Decimal
    basis: str
    source: str
    as_of: str
    confidence: str

    @property
    def provider(self) -> str:
        """The cloud that sells it."""
        return self.instance.provider

    @property
    def key(self) -> tuple[str, str, str, str]:
        """What identifies it, and the last tie-break between equal offers."""
        return (
            self.provider,
            self.instance.instance_type,
            self.region,
            self.purchase,
        )


@dataclass(frozen=True)
class Catalog:
    """All offers and service prices of one date.

    `unlisted` offers cannot be ordered at their price; `unpriced` types have none at all.
    """

    offers: tuple[Offer, ...]
    unlisted: tuple[Offer, ...]
    unpriced: tuple[Instance, ...]
    price_book: PriceBook
    sha256: str
    as_of: str

    @cached_property
    def offer_groups(self) -> tuple[tuple[Offer, ...], ...]:
        """The offers by machine type and purchase, the cheapest region of each first."""
        return group_offers(self.offers)


def group_offers(offers: Iterable[Offer]) -> tuple[tuple[Offer, ...], ...]:
    """Group offers by machine type and purchase; sort by price, then by region."""
    ranked_offers = sorted(offers, key=_offer_rank)
    return tuple(
        tuple(offer_group)
        for _, offer_group in groupby(
            ranked_offers, key=lambda offer: _offer_rank(offer)[:3]
        )
    )


def _offer_rank(offer: Offer) -> tuple[str, str, str, Decimal, str]:
    instance = offer.instance
    return (
        instance.provider,
        instance.instance_type,
        offer.purchase,
        offer.usd_hour,
        offer.region,
    )

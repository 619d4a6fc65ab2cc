"""Instance types, their offers, and the catalog of both."""

from __future__ import annotations

import math
from collections import defaultdict
from decimal import Decimal
from functools import cached_property
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from planner.facts.accelerator import Accelerator, accelerators
from planner.facts.cloud import spread_zones
from planner.facts.cpu import threads_per_core
from planner.market.term import TERM_PURCHASES
from planner.perf.common.layout import Node

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from planner.cost.service_price import PriceBook
    from planner.facts.small_cloud import SmallCloudMachine
    from planner.market.catalog_source import CatalogSource
    from planner.market.owned import OwnedMachines
    from planner.spec.block import CapacityBlock
    from planner.spec.reservation import Reservation

# Machines that come all at once, when their cloud has them, and stay for some days.
FLEX_PURCHASE: Final = "flex_start"
# Machines on demand in a reservation that the stack makes for them.
RESERVED_PURCHASE: Final = "capacity_reservation"
# Machines on demand that stay, and machines on spot above them.
MIXED_PURCHASE: Final = "spot_above_base"
# Machines that are committed to, and machines on demand above them.
COMMITTED_MIX: Final = "reserved_base"
# Machines that are paid for already, and others above them.
OWNED_MIX: Final = "owned_base"
OWNED_PURCHASE: Final = "owned"
ORDERABLE_PURCHASES: Final = ("on_demand", "spot", *TERM_PURCHASES)


class Instance(Struct, frozen=True, kw_only=True, dict=True):
    """A machine type of a cloud: accelerators, host, network and fabric.

    `fraction`  share of a whole accelerator, 1 unless it is a slice
    `memory_gib_each`  memory of each accelerator as the cloud states it, GiB
    `ram_gib`  host memory, GiB
    `nvme_gb`  local NVMe, GB
    `network_gbps`  network of the machine, Gbit/s
    `fabric`  fabric between machines, such as efa, roce or infiniband, or none
    `fabric_gbps`  fabric of the machine, Gbit/s
    `scaleup`  link between accelerators, such as nvswitch, nvlink_pairs or pcie
    `arch`  processor architecture, x86_64 or arm64
    `on_demand`, `spot`  whether it is sold in this way
    `confidence`  how far the row is to be trusted
    `machines`  how many it is made of: 1, or those of a slice of TPUs
    `host_type`  machine type of those of a slice, else empty
    """

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
    machines: int = 1
    host_type: str = ""

    @cached_property
    def chip(self) -> Accelerator:
        """The accelerator's data sheet."""
        return accelerators()[self.accelerator]

    @cached_property
    def node(self) -> Node:
        """The machine as the performance model sees it.

        memory_gib   = min(stated by the cloud, fraction * reported by the driver)
        network_gb_s = max(fabric, network) / 8, GB/s one way
        """
        return Node(
            accelerator=self.chip,
            accelerator_count=self.accelerators,
            # Clouds state marketed memory; the driver reports less.
            memory_gib=min(
                self.memory_gib_each, self.chip.memory_gib * self.fraction
            ),
            # A slice has this share of the compute rate too.
            compute_fraction=self.fraction,
            scaleup_link=self.scaleup,
            # Gbit/s to GB/s of the faster of the two.
            network_gb_s=max(self.fabric_gbps, self.network_gbps) / 8,
        )

    @cached_property
    def cores(self) -> float:
        """CPU cores of the machine: its vCPUs are threads of these."""
        return self.vcpu / threads_per_core(
            self.provider, self.family, self.arch
        )

    def attaches_fabric(self, *, spans_nodes: bool) -> bool:
        """Whether machines of this type are joined by their fast fabric.

        Always where accelerators reach it directly; on other types when a replica spans nodes.
        """
        direct_fabric = self.gpudirect_rdma or self.fabric in ("tcpx", "tcpxo")
        return self.fabric != "none" and (direct_fabric or spans_nodes)


class OldPrice(Struct, frozen=True):
    """A price that is older than a year at the date of its catalog, USD an hour.

    `usd_hour`  as it was found
    `fresh_usd_hour`  what a spot price would be at the freshest known ratio to on demand
    `ratio_as_of`  date of that ratio
    """

    usd_hour: Decimal
    fresh_usd_hour: Decimal | None = None
    ratio_as_of: str = ""

    def at(self, share: Decimal) -> OldPrice:
        """Return it at a share of what it is."""
        fresh = self.fresh_usd_hour
        return replace(
            self,
            usd_hour=self.usd_hour * share,
            fresh_usd_hour=fresh * share if fresh is not None else None,
        )


class PriceRange(Struct, frozen=True):
    """The lowest and the highest price that were seen, USD an hour."""

    low_usd: Decimal
    high_usd: Decimal

    def at(self, share: Decimal) -> PriceRange:
        """Return it at a share of what it is."""
        return PriceRange(self.low_usd * share, self.high_usd * share)


class ReclaimBand(Struct, frozen=True):
    """Share of the spot machines of a type and region that its cloud took back in a month."""

    low_share: float
    high_share: float
    as_of: str


class PurchaseTier(Struct, frozen=True, kw_only=True):
    """One way to buy in a mix: the machines from the end of the tier before to its own end.

    Its end is where the machines are as many as one of these says; the last tier takes the rest.

    usd_hour       price of one machine, USD an hour
    owned          machines that are paid for already
    share          of the machines at the peak, in whole groups, rounded up
    groups         as many as cost the least, which the hours of a fleet decide
    is_promised    as many as a promise of availability needs, which a fleet decides
    source, as_of  where the price is from, and its date
    form           of which form a commitment is
    found_usd_hour  price that was found, where it may have moved and counts at its upper end
    """

    purchase: str
    usd_hour: Decimal
    owned: int | None = None
    share: Decimal | None = None
    groups: int | None = None
    is_promised: bool = False
    source: str = ""
    as_of: str = ""
    form: str = ""
    found_usd_hour: Decimal | None = None

    @property
    def is_open(self) -> bool:
        """Whether a fleet has still to decide how many machines it has."""
        return self.groups is None and (
            self.is_promised or self.purchase in TERM_PURCHASES
        )

    def end(self, nodes: int, group_nodes: int) -> int:
        """Return where it ends among some machines."""
        if self.owned is not None:
            return min(nodes, self.owned)
        if self.share is not None:
            groups = math.ceil(nodes // group_nodes * self.share)
            return min(nodes, groups * group_nodes)
        if self.groups is not None:
            return min(nodes, self.groups * group_nodes)
        return nodes


class PurchaseMix(Struct, frozen=True):
    """How the machines of a fleet are bought in several ways; those of the first serve first."""

    tiers: tuple[PurchaseTier, ...]

    @property
    def is_settled(self) -> bool:
        """Whether it is known how many machines are of each tier."""
        return not any(tier.is_open for tier in self.tiers)

    def spans(
        self, nodes: int, group_nodes: int
    ) -> tuple[tuple[int, int], ...]:
        """Return which machines are of each tier, as numbers from and below: (0, 2), (2, 5)."""
        spans = []
        start = 0
        for tier in self.tiers:
            end = max(start, tier.end(nodes, group_nodes))
            spans.append((start, end))
            start = end
        return tuple(spans)

    def usd_hour(self, nodes: int, group_nodes: int) -> Decimal:
        """Return what some machines cost together, USD an hour."""
        return sum(
            (
                (end - start) * tier.usd_hour
                for tier, (start, end) in zip(
                    self.tiers, self.spans(nodes, group_nodes), strict=True
                )
            ),
            Decimal(0),
        )


class QuotaNodes(Struct, frozen=True, kw_only=True):
    """How many machines of a type an account may still have, bought on_demand or on spot.

    Others of the account may need them in hours in which the load is `load` times the peak; 1 is
    for all hours.
    """

    purchase: str
    nodes: int
    quota: str
    load: float = 1.0


# Thousands are read in each command: without a cycle, no collection has to look at them.
class Offer(Struct, frozen=True, kw_only=True, gc=False):
    """An instance type in a region under a purchase option.

    `zones`  zones of the region that have the type
    `usd_hour`  price of one machine, USD an hour
    `basis`  how the price is known: observed, derived or inferred
    `source`, `as_of`  where the price is from, and its date
    `old_price`  what was found, where it is older than a year
    `found_usd_hour`  what was found, where it may have moved and counts at its upper end
    `price_range`  how far a price of spot was seen to move
    `reclaim_band`  how many machines on spot are taken back, where the cloud says so
    `form`  of which form a commitment is, as its source says; empty where there is none
    `reservation`  what its machines are taken from, where a spec names one
    `block`  what they are a part of, where a spec names a capacity block
    `mix`  how they are bought in several ways; `usd_hour` is then the least of a mean
    `quotas`  how many of its type an account may still have, where the account was asked
    `place_rank`  positions of its cloud and its region in the lists of a spec; lower is preferred
    """

    instance: Instance
    region: str
    zones: tuple[str, ...]
    purchase: str
    usd_hour: Decimal
    basis: str
    source: str
    as_of: str
    confidence: str
    old_price: OldPrice | None = None
    found_usd_hour: Decimal | None = None
    price_range: PriceRange | None = None
    reclaim_band: ReclaimBand | None = None
    form: str = ""
    place_rank: tuple[int, int] = (0, 0)
    reservation: Reservation | None = None
    block: CapacityBlock | None = None
    mix: PurchaseMix | None = None
    quotas: tuple[QuotaNodes, ...] = ()

    @property
    def provider(self) -> str:
        """The cloud that sells the instance type."""
        return self.instance.provider

    def fleet_usd_hour(self, nodes: int, group_nodes: int) -> Decimal:
        """Return what some machines cost together, in whole groups, USD an hour."""
        if self.mix is None:
            return self.usd_hour * nodes
        return self.mix.usd_hour(nodes, group_nodes)

    def zone_count(self, *, together: bool) -> int:
        """Return how many zones its machines are spread over.

        It is one when they work together, and when they are reserved for the stack.
        """
        if together or self.purchase == RESERVED_PURCHASE:
            return 1
        most = spread_zones(self.provider)
        # Some regions name no zones, and are one.
        return max(1, min(len(self.zones), most))

    @property
    def owned_nodes(self) -> int:
        """How many of its machines are paid for already."""
        tiers = self.mix.tiers if self.mix is not None else ()
        return sum(tier.owned or 0 for tier in tiers)

    @property
    def displaced_usd(self) -> Decimal:
        """What a machine that is owned stands for at most, USD an hour."""
        tiers = self.mix.tiers if self.mix is not None else ()
        return max((tier.usd_hour for tier in tiers), default=self.usd_hour)

    @property
    def purchases(self) -> tuple[str, ...]:
        """The ways in which its machines are bought, those that serve first before others."""
        if self.mix is None:
            return (self.purchase,)
        return tuple(tier.purchase for tier in self.mix.tiers)

    @property
    def is_above_promise(self) -> bool:
        """Whether as many of its machines are on spot as a promise of availability allows."""
        tiers = self.mix.tiers if self.mix is not None else ()
        return any(tier.is_promised for tier in tiers)

    @property
    def is_weakly_priced(self) -> bool:
        """Whether its price is old, or rests on little."""
        return self.old_price is not None or self.confidence == "low"

    @property
    def key(self) -> tuple[str, str, str, str]:
        """Identity of the offer, and the last tie-break between equal costs."""
        return (
            self.provider,
            self.instance.instance_type,
            self.region,
            self.purchase,
        )


class Catalog(Struct, frozen=True, dict=True):
    """All offers and service prices of one date.

    `offers`  offers that can be ordered at their price
    `unlisted`  offers whose price is quoted at purchase or unclear
    `unpriced`  machine types without any price
    `sha256`, `as_of`  digest of the manifest, and the date of the catalog
    `small_machines`  machines of small clouds; None: those that the program came with
    `owned`  what an account was found to pay for already
    `sources`  where its prices are from
    """

    offers: tuple[Offer, ...]
    unlisted: tuple[Offer, ...]
    unpriced: tuple[Instance, ...]
    price_book: PriceBook
    sha256: str
    as_of: str
    small_machines: tuple[SmallCloudMachine, ...] | None = None
    owned: tuple[OwnedMachines, ...] = ()
    sources: tuple[CatalogSource, ...] = ()

    def using(self, usage: Mapping[str, Decimal]) -> Catalog:
        """Return it with what a spec states of its use instead of what is assumed."""
        if not usage:
            return self
        return replace(self, price_book=replace(self.price_book, usage=usage))

    @cached_property
    def offers_by_place(
        self,
    ) -> dict[tuple[str, str, str], dict[str, Offer]]:
        """The offers of each cloud, machine type and region, by the way to buy."""
        places: dict[tuple[str, str, str], dict[str, Offer]] = {}
        for offer in self.offers:
            places.setdefault(offer.key[:3], {})[offer.purchase] = offer
        return places

    @cached_property
    def regions(self) -> frozenset[str]:
        """Regions in which anything is offered."""
        return frozenset(offer.region for offer in self.offers)

    @cached_property
    def offer_groups(self) -> tuple[tuple[Offer, ...], ...]:
        """The offers by machine type and purchase, the cheapest region of each first."""
        return group_offers(self.offers)


def group_offers(offers: Iterable[Offer]) -> tuple[tuple[Offer, ...], ...]:
    """Group offers by machine type and purchase; sort by price, then by region."""
    groups: defaultdict[tuple[str, str, str], list[Offer]] = defaultdict(list)
    for offer in offers:
        instance = offer.instance
        groups[
            instance.provider, instance.instance_type, offer.purchase
        ].append(offer)
    return tuple(
        # Within a group the cheapest region is first, then by name.
        tuple(sorted(group, key=lambda offer: (offer.usd_hour, offer.region)))
        for _, group in sorted(groups.items())
    )

"""What Google Cloud sells: prices of machines, reservations of a project, chances of spot."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from functools import cache
from threading import Lock
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

from msgspec import Struct

from planner.market.live import NO_ZONE, ReservationFact
from providers.gcp.account import zonal_types
from providers.gcp.client import (
    open_account,
    pages,
    understood,
    zonal_things,
)
from providers.gcp.sku import PartRates, SkuPage
from providers.live.rest import send

if TYPE_CHECKING:
    from collections.abc import Sequence

    from planner.market.live import BlockFact, ReclaimFact

# The list of SKUs is everybody's, but its service wants to know who asks.
PUBLIC_QUESTIONS: Final[tuple[str, ...]] = ()
COMPUTE_URL: Final = "https://compute.googleapis.com/compute/v1"
# The SKUs of Compute Engine, which are the same for everybody.
CATALOG_URL: Final = (
    "https://cloudbilling.googleapis.com/v1/services/6F81-5844-456A/skus"
)
SKUS_AT_ONCE: Final = 5000
MIB_PER_GIB: Final = 1024
# Reservations in these states have no machines.
WITHOUT_MACHINES: Final = ("CREATING", "DELETING", "INVALID")
RATES_LOCK: Final = Lock()
# A group of machines is in one zone here.
SPOT_SHAPE: Final = "ANY_SINGLE_ZONE"


class _Accelerators(Struct, frozen=True, rename="camel"):
    guest_accelerator_count: int = 0


class _LocalSsds(Struct, frozen=True, rename="camel"):
    partition_count: int = 0


class _MachineType(Struct, frozen=True, rename="camel"):
    """A machine type, as far as it has a price."""

    name: str
    guest_cpus: int = 0
    memory_mb: int = 0
    accelerators: tuple[_Accelerators, ...] = ()
    bundled_local_ssds: _LocalSsds = _LocalSsds()

    @property
    def amounts(self) -> dict[str, Decimal]:
        """How much it has of each part that it has."""
        amounts = {
            "vcpu": Decimal(self.guest_cpus),
            # What the service calls MB is MiB.
            "ram_gib": Decimal(self.memory_mb) / MIB_PER_GIB,
            "accelerator": Decimal(
                sum(card.guest_accelerator_count for card in self.accelerators)
            ),
            "local_ssd": Decimal(self.bundled_local_ssds.partition_count),
        }
        return {part: amount for part, amount in amounts.items() if amount}


class _ReservedMachine(Struct, frozen=True, rename="camel"):
    machine_type: str = ""


class _ReservedMachines(Struct, frozen=True, rename="camel"):
    count: int = 0
    in_use_count: int = 0
    instance_properties: _ReservedMachine = _ReservedMachine()


class _Reservation(Struct, frozen=True, rename="camel"):
    """A reservation. One of TPUs alone has no `specific_reservation`."""

    name: str
    status: str = ""
    specific_reservation: _ReservedMachines = _ReservedMachines()
    specific_reservation_required: bool = False
    delete_at_time: str = ""


class _AdviceScores(Struct, frozen=True):
    obtainability: float | None = None


class _Shard(Struct, frozen=True):
    """Machines of one type in one zone, which may be a whole address."""

    zone: str = ""


class _Recommendation(Struct, frozen=True):
    scores: _AdviceScores = _AdviceScores()
    shards: tuple[_Shard, ...] = ()

    @property
    def zone(self) -> str:
        """The zone that it is for; NO_ZONE where it names none, or several."""
        zones = {shard.zone.rpartition("/")[2] for shard in self.shards}
        return zones.pop() if len(zones) == 1 else NO_ZONE


class _CapacityAdvice(Struct, frozen=True):
    recommendations: tuple[_Recommendation, ...] = ()


def on_demand_prices(
    region: str, machine_types: Sequence[str]
) -> dict[str, Decimal]:
    """Return the prices of the types that zones of a region have, and whose parts all have one.

    A type that is sold only by reservation or on spot has no rules, although it has SKUs.
    """
    return _prices(region, machine_types, "on_demand")


def spot_prices(
    region: str, machine_types: Sequence[str]
) -> dict[str, dict[str, Decimal]]:
    """Return prices on spot, which are those of the whole region."""
    prices = _prices(region, machine_types, "spot")
    return {name: {NO_ZONE: price} for name, price in prices.items()}


def _prices(
    region: str, machine_types: Sequence[str], purchase: str
) -> dict[str, Decimal]:
    """Return USD an hour of machine types.

    SKUs name regions in which there is no such machine, so zones are asked first.
    """
    prices = {}
    for _, listed in zonal_types(region, machine_types):
        machine = understood(listed, _MachineType)
        price = _part_rates().machine_price(
            machine.name, machine.amounts, region, purchase
        )
        if price is not None:
            prices[machine.name] = price
    return prices


def _part_rates() -> PartRates:
    """Return the rates of the catalog: about 35,000 SKUs, which are read once in a process.

    Prices on demand and on spot are asked at the same time: the second waits for the first.
    """
    with RATES_LOCK:
        return _read_rates()


@cache
def _read_rates() -> PartRates:
    query = urlencode({"currencyCode": "USD", "pageSize": SKUS_AT_ONCE})
    rates = PartRates()
    for page in pages(open_account().session, f"{CATALOG_URL}?{query}"):
        rates.add(understood(page, SkuPage).skus)
    return rates


def reservations(region: str) -> list[ReservationFact]:
    """Return the reservations of machines that are the project's own."""
    account = open_account()
    url = (
        f"{COMPUTE_URL}/projects/{account.project}/aggregated/reservations?"
        + urlencode({"returnPartialSuccess": "false"})
    )
    facts = []
    for zone, listed in zonal_things(
        account.session, url, "reservations", region
    ):
        reservation = understood(listed, _Reservation)
        machines = reservation.specific_reservation
        machine_type = machines.instance_properties.machine_type
        if (
            not machine_type
            or not machines.count
            or reservation.status in WITHOUT_MACHINES
        ):
            continue
        facts.append(
            ReservationFact(
                id=f"projects/{account.project}/reservations/{reservation.name}",
                # Some answers have its URL.
                machine_type=machine_type.rpartition("/")[2],
                zone=zone,
                machines=machines.count,
                free=max(0, machines.count - machines.in_use_count),
                ends=_utc_text(reservation.delete_at_time),
                is_named=reservation.specific_reservation_required,
            )
        )
    return facts


def _utc_text(time_text: str) -> str:
    """Return a time in UTC; empty where there is none."""
    if not time_text:
        return ""
    moment = datetime.fromisoformat(time_text).astimezone(UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def spot_scores(
    region: str, machine_types: Sequence[str], machines: int
) -> dict[str, dict[str, float]]:
    """Return how likely a request for machines of each type is met now, in the best zone."""
    account = open_account()
    url = (
        f"{COMPUTE_URL}/projects/{account.project}/regions/{region}"
        "/advice/capacity"
    )
    scores: dict[str, dict[str, float]] = {}
    for name in machine_types:
        advice = send(account.session, "POST", url, _question(name, machines))
        for option in understood(advice, _CapacityAdvice).recommendations:
            obtainability = option.scores.obtainability
            if obtainability is None:
                continue
            by_zone = scores.setdefault(name, {})
            by_zone[option.zone] = max(
                obtainability, by_zone.get(option.zone, 0.0)
            )
    return scores


def block_offers(
    _region: str, _machine_type: str, _machines: int, _hours: int
) -> list[BlockFact]:
    """Return nothing: Google Cloud sells them by requests for a reservation."""
    return []


def own_reclaims(
    _region: str, _machine_types: Sequence[str]
) -> dict[str, ReclaimFact]:
    """Return nothing: Google Cloud counts for nobody how many of its machines it takes back."""
    return {}


def _question(machine_type: str, machines: int) -> dict[str, Any]:
    """Return what the service is asked about one type: of several it would choose one."""
    return {
        "size": machines,
        "distributionPolicy": {"targetShape": SPOT_SHAPE},
        "instanceFlexibilityPolicy": {
            "instanceSelections": {"asked": {"machineTypes": [machine_type]}}
        },
        "instanceProperties": {"scheduling": {"provisioningModel": "SPOT"}},
    }

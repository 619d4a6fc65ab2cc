"""Bill of a training run: machines first, then all other lines."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Protocol

from planner.cost.bill import sum_bill
from planner.cost.bill_line import (
    Usage,
    cache_disk_gb,
    egress_lines,
    service_lines,
)
from planner.market.purchase import COMMITTED_PURCHASES, machine_line
from planner.perf.reliability import interruption
from planner.units import (
    BYTES_PER_GB,
    HOURS_PER_MONTH,
    SECONDS_PER_HOUR,
    SECONDS_PER_MONTH,
)

if TYPE_CHECKING:
    from planner.cost.bill import Bill
    from planner.cost.bill_line import BillLine
    from planner.cost.file_system import FileSystem
    from planner.cost.service_price import PriceBook
    from planner.facts.private_endpoint import EndpointNeed
    from planner.market.offer import Offer
    from planner.perf.training.layout_search import TimedLayout
    from planner.solve.training.requirement import TrainingRequirement


class BilledCluster(Protocol):
    """What a bill needs to know of a cluster: machines, job and storage. Bytes."""

    @property
    def requirement(self) -> TrainingRequirement:
        """The job."""

    @property
    def offer(self) -> Offer:
        """The offer of its machines."""

    @property
    def nodes(self) -> int:
        """Machines that work."""

    @property
    def spares(self) -> int:
        """Machines that stand by."""

    @property
    def timed_layout(self) -> TimedLayout:
        """How the job is laid out."""

    @property
    def file_system(self) -> FileSystem | None:
        """The parallel file system; nothing when objects do."""

    def stored_byte_s(self, duration_s: float) -> float:
        """Bytes of dataset and kept checkpoints, times the seconds that they are stored."""


def training_bill(
    cluster: BilledCluster,
    price_book: PriceBook,
    paid_s: float,
    duration_s: float,
) -> Bill:
    """Return the bill of a run that pays each machine for `paid_s` seconds.

    Storage, network and other services are billed for `duration_s` seconds.
    """
    duration_months = Decimal(duration_s / SECONDS_PER_HOUR) / HOURS_PER_MONTH
    total_nodes = cluster.nodes + cluster.spares
    paid_hours = paid_node_hours(cluster.offer, total_nodes, paid_s, duration_s)
    usage = Usage(
        provider=cluster.offer.provider,
        # A slice has the disks and the addresses of all of its machines.
        node_hours=paid_hours * cluster.offer.instance.machines,
        cache_gb=data_disk_gb(cluster),
        stored_gb_months=Decimal(
            cluster.stored_byte_s(duration_s) / BYTES_PER_GB / SECONDS_PER_MONTH
        ),
        sent_gb=Decimal(0),
        received_gb=Decimal(0),
        serves_traffic=False,
        has_own_network=cluster.requirement.has_own_network,
        has_machine_addresses=cluster.requirement.has_addresses,
        spot_hours=paid_hours
        * cluster.offer.instance.machines
        * _spot_share(cluster),
        endpoint_needs=_endpoint_needs(cluster),
        # What works together, or at a file system, is in one zone.
        zones=cluster.offer.zone_count(
            together=cluster.nodes > 1 or cluster.file_system is not None
        ),
        network_hours=Decimal(duration_s / SECONDS_PER_HOUR),
    )
    cost_lines = [
        machine_line(cluster.offer, total_nodes, paid_hours, pool="train"),
        *service_lines(usage, price_book),
    ]
    cost_lines += (
        [cluster.file_system.priced_line(price_book, duration_months)]
        if cluster.file_system is not None
        else []
    )
    # Data in another cloud cross the internet once.
    cost_lines += data_egress_lines(
        cluster.requirement, cluster.offer.provider, price_book
    )
    return sum_bill(
        cost_lines,
        cluster.offer.usd_hour * total_nodes,
        "run",
        surcharges=price_book.surcharges,
    )


def _spot_share(cluster: BilledCluster) -> Decimal:
    """Return the share of the machines that are bought on spot."""
    mix = cluster.offer.mix
    if mix is None:
        return Decimal(cluster.offer.purchase == "spot")
    spans = zip(mix.tiers, mix.spans(cluster.nodes, 1), strict=True)
    on_spot = sum(
        end - start for tier, (start, end) in spans if tier.purchase == "spot"
    )
    return Decimal(on_spot) / cluster.nodes


def _endpoint_needs(cluster: BilledCluster) -> frozenset[EndpointNeed]:
    """Return what the machines reach by private endpoints; a file system too, if there is one."""
    needs = cluster.requirement.endpoint_needs
    if needs and cluster.file_system is not None:
        return needs | {"files"}
    return needs


def data_disk_gb(cluster: BilledCluster) -> Decimal:
    """Return the disk beside the boot disk of a machine, GB; 0 when local NVMe is large enough.

    The weights that are trained on. Without a file system also two parts of a checkpoint, and on
    several machines a whole one, which each copies when the job starts again.
    """
    checkpoint_bytes = interruption.checkpoint_bytes(cluster.timed_layout.job)
    machines = cluster.nodes * cluster.offer.instance.machines
    # Two parts: the newest checkpoint stays while the next is written.
    held_bytes = 2 * checkpoint_bytes / machines
    if machines > 1:
        held_bytes += checkpoint_bytes
    if cluster.file_system is not None:
        held_bytes = 0.0
    return cache_disk_gb(
        cluster.offer.instance.nvme_gb,
        Decimal((cluster.requirement.loaded_bytes + held_bytes) / BYTES_PER_GB),
    )


def data_egress_lines(
    requirement: TrainingRequirement, provider: str, price_book: PriceBook
) -> list[BillLine]:
    """Return the egress cost of the dataset from its cloud, paid once."""
    if requirement.data_cloud in (None, provider):
        return []
    data_gb = Decimal(requirement.data_bytes / BYTES_PER_GB)
    return egress_lines(
        str(requirement.data_cloud),
        data_gb,
        price_book,
        f"data out of {requirement.data_cloud}",
    )


def paid_node_hours(
    offer: Offer, nodes: int, paid_s: float, duration_s: float
) -> Decimal:
    """Return the billed node-hours.

    Commitments bill `730 * nodes * max(1, months)`, with `months` of `duration_s`; other
    purchase options bill `paid_s` for each node.
    """
    if offer.purchase in COMMITTED_PURCHASES:
        duration_months = (
            Decimal(duration_s / SECONDS_PER_HOUR) / HOURS_PER_MONTH
        )
        # A commitment bills every hour; a month is the least that is counted.
        return HOURS_PER_MONTH * nodes * max(Decimal(1), duration_months)
    return Decimal(paid_s / SECONDS_PER_HOUR) * nodes

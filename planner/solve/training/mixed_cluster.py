"""A cluster of on-demand and spot machines that trains on while spot is reclaimed.

The job changes its number of data-parallel replicas at run time. The global batch stays the same,
so fewer machines take more micro-batches each. Everything else of the layout stays too: a
checkpoint of other replicas is read by every framework, and one of other stages is not.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from planner.cost.bill import sum_bill
from planner.cost.bill_line import SURCHARGE_KINDS
from planner.market.mix import mix_of
from planner.market.purchase import machine_line, tier_offer
from planner.perf.reliability import interruption
from planner.solve.training.bill import paid_node_hours
from planner.solve.training.cluster import Cluster
from planner.solve.training.machine_layouts import (
    possible_layouts,
    timed_layouts,
)

if TYPE_CHECKING:
    from planner.cost.bill import Bill
    from planner.cost.service_price import PriceBook
    from planner.market.offer import Offer
    from planner.perf.reliability.interruption import Hazard
    from planner.perf.training.layout_search import LayoutSearch, TimedLayout

# What a job keeps of its layout while machines come and go.
KEPT_SIZES: Final = ("tp", "pp", "vpp", "cp", "ep", "sharding")


class MixedCluster(Cluster, frozen=True, dict=True, kw_only=True):
    """A cluster whose offer is a mix: the machines of its base are on demand, others on spot.

    base_layout  layout of the job on the base alone
    """

    base_layout: TimedLayout

    @property
    def base_nodes(self) -> int:
        """Machines of the base."""
        return base_nodes(self.offer, self.nodes)

    @cached_property
    def base(self) -> Cluster:
        """The cluster while its machines on spot are away."""
        on_demand, _ = self._tier_offers
        return Cluster(
            self.requirement,
            # Its machines cost the same whether the others are there or not.
            on_demand,
            self.base_nodes,
            self.base_layout,
            self.file_system,
        )

    @cached_property
    def base_speed(self) -> float:
        """Speed of the base alone, as a fraction of that of the cluster.

        At most its share of the machines: that fewer of them are faster each is not counted on.
        """
        return min(self.step_s / self.base.step_s, self.base_nodes / self.nodes)

    @cached_property
    def hazard(self) -> Hazard:
        """Failures of all machines, and reclaims of the spot machines only.

        Half an interval passes until machines that have come back join at a checkpoint:
        wait_s = that of spot + interval / 2. The base begins to work after a restart, and so does
        the whole cluster: partial_speed = base_speed * max(0, 1 - restart_s / wait_s).
        """
        hazard = self._spot_hazard
        interval_s = (
            self.requirement.checkpoint_interval_s
            or interruption.best_interval(self.checkpoint_stall_s, hazard)
        )
        # Machines come back at any time between two checkpoints.
        wait_s = hazard.wait_s + interval_s / 2
        return replace(
            hazard,
            wait_s=wait_s,
            partial_speed=self.base_speed
            * max(0.0, 1 - hazard.restart_s / wait_s),
        )

    @cached_property
    def _spot_hazard(self) -> Hazard:
        """The same without a base: the job waits for all of its machines."""
        instance = self.offer.instance
        spot_hazard = interruption.run_hazard(
            self.nodes - self.base_nodes,
            instance.provider,
            instance.family,
            self.reclaim_rates,
            load_s=self.checkpoint_load_s,
        )
        # Hardware failures do not depend on the purchase option.
        cluster_hazard = interruption.run_hazard(
            self.nodes,
            instance.provider,
            instance.family,
            load_s=self.checkpoint_load_s,
        )
        return replace(
            spot_hazard,
            failures_per_s=cluster_hazard.failures_per_s,
            # A shorter notice saves nothing of the work since a checkpoint.
            notice_s=spot_hazard.notice_s
            if spot_hazard.notice_s >= self.checkpoint_write_s
            else 0.0,
        )

    @property
    def paid_working_s(self) -> float:
        """Mean time between startup and last checkpoint in which spot machines are paid, seconds.

        All but that in which the cloud has none: `working_s * (1 - reclaims_per_s * wait_s)`,
        with the wait of spot alone.
        """
        working_s = self.expected_s - self.startup_s - self.closing_s
        # Machines that wait for a checkpoint are paid, so their wait is that of spot alone.
        hazard = self._spot_hazard
        return working_s * max(0.0, 1 - hazard.reclaims_per_s * hazard.wait_s)

    def with_best_spares(self) -> Cluster:
        """Return the cluster as it is: the base goes on where others would wait for a spare."""
        return self

    def bill_for_run(
        self, price_book: PriceBook, paid_s: float, duration_s: float
    ) -> Bill:
        """Return the bill with both kinds of machines.

        Spot machines are paid for `paid_s` seconds, those on demand for `duration_s`: also
        while the others are away.
        """
        uniform_bill = super().bill_for_run(price_book, paid_s, duration_s)
        nodes = (self.base_nodes, self.nodes - self.base_nodes)
        machine_lines = [
            machine_line(
                offer,
                count,
                paid_node_hours(offer, count, running_s, duration_s),
                pool="train",
            )
            for offer, count, running_s in zip(
                self._tier_offers, nodes, (duration_s, paid_s), strict=True
            )
        ]
        # The first line is that of the machines; services do not change.
        service_lines = [
            line
            for line in uniform_bill.lines[1:]
            if line.kind not in SURCHARGE_KINDS
        ]
        return sum_bill(
            [*machine_lines, *service_lines],
            mix_of(self.offer).usd_hour(self.nodes, 1),
            "run",
            surcharges=price_book.surcharges,
        )

    @cached_property
    def _tier_offers(self) -> tuple[Offer, Offer]:
        """The offers of the base and of the machines on spot."""
        base_tier, spot_tier = mix_of(self.offer).tiers
        return tier_offer(self.offer, base_tier), tier_offer(
            self.offer, spot_tier
        )


def base_nodes(offer: Offer, nodes: int) -> int:
    """Return how many of some machines of a mix are on demand."""
    (_, end), _ = mix_of(offer).spans(nodes, 1)
    return end


def on_base(
    cluster: Cluster, offer: Offer, base_searches: list[LayoutSearch]
) -> MixedCluster | None:
    """Return a cluster bought by an offer of a mix, or `None`.

    `base_searches` are those of the machines of the base. `None` where all machines are of the
    base, or where the job does not fit in the memory of its machines.
    """
    # Rounded up, a large share of few machines is all of them.
    if base_nodes(offer, cluster.nodes) == cluster.nodes:
        return None
    training_job = cluster.timed_layout.job
    whole = training_job.layout
    fitting = [
        timed_layout
        for search_space in base_searches
        # The same precision and kernels, so that a checkpoint means the same.
        if search_space.job.software == training_job.software
        for timed_layout in timed_layouts(
            search_space,
            (
                layout
                for layout in possible_layouts(search_space)
                if all(
                    getattr(layout, size) == getattr(whole, size)
                    for size in KEPT_SIZES
                )
            ),
        )
    ]
    if not fitting:
        return None
    return MixedCluster(
        cluster.requirement,
        offer,
        cluster.nodes,
        cluster.timed_layout,
        file_system=cluster.file_system,
        base_layout=min(fitting, key=lambda candidate: candidate.sort_key),
    )

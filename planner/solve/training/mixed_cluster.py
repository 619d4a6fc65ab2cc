"""A cluster of on-demand and spot machines that trains on while spot is reclaimed.

The job must change its number of data-parallel replicas at run time, as torchrun can. The
global batch stays the same, so fewer machines take more micro-batches each.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from msgspec.structs import replace

from planner.cost.bill import sum_bill
from planner.cost.bill_line import SURCHARGE_KINDS
from planner.market.purchase import machine_line
from planner.perf.reliability import interruption
from planner.solve.training.bill import paid_node_hours
from planner.solve.training.cluster import Cluster

if TYPE_CHECKING:
    from planner.cost.bill import Bill
    from planner.cost.service_price import PriceBook
    from planner.market.offer import Offer
    from planner.perf.reliability.interruption import Hazard


class MixedCluster(Cluster, frozen=True, dict=True, kw_only=True):
    """A cluster with spot machines of `offer` and machines of an on-demand offer.

    on_demand_offer  offer of the on-demand machines
    on_demand_nodes  on-demand machines, counted in `nodes`
    on_demand_speed  speed of these machines alone, as a fraction of that of the cluster
    """

    on_demand_offer: Offer
    on_demand_nodes: int
    on_demand_speed: float

    @cached_property
    def hazard(self) -> Hazard:
        """Failures of all machines, and reclaims of the spot machines only."""
        instance = self.offer.instance
        # Hardware failures do not depend on the purchase option.
        cluster_hazard = interruption.run_hazard(
            self.nodes,
            instance.provider,
            instance.family,
            load_s=self.checkpoint_load_s,
        )
        spot_hazard = interruption.run_hazard(
            self.nodes - self.on_demand_nodes,
            instance.provider,
            instance.family,
            "monthly",
            load_s=self.checkpoint_load_s,
        )
        notice_s = (
            spot_hazard.notice_s
            if spot_hazard.notice_s >= self.checkpoint_write_s
            else 0.0
        )
        return replace(
            spot_hazard,
            failures_per_s=cluster_hazard.failures_per_s,
            notice_s=notice_s,
            # Speed at which the on-demand machines go on during a reclaim.
            partial_speed=self.on_demand_speed,
        )

    def bill_for_run(
        self, price_book: PriceBook, paid_s: float, duration_s: float
    ) -> Bill:
        """Return the bill with both kinds of machines.

        Spot machines are paid for `paid_s` seconds, on-demand machines for `duration_s`.
        """
        uniform_bill = super().bill_for_run(price_book, paid_s, duration_s)
        spot_nodes = self.nodes - self.on_demand_nodes
        machine_lines = [
            machine_line(
                self.offer,
                spot_nodes,
                paid_node_hours(self.offer, spot_nodes, paid_s, duration_s),
                pool="train",
            ),
            machine_line(
                # On-demand machines are paid also during reclaims.
                self.on_demand_offer,
                self.on_demand_nodes,
                paid_node_hours(
                    self.on_demand_offer,
                    self.on_demand_nodes,
                    duration_s,
                    duration_s,
                ),
                pool="train",
            ),
        ]
        # The first line is that of the machines; services do not change.
        service_lines = [
            line
            for line in uniform_bill.lines[1:]
            if line.kind not in SURCHARGE_KINDS
        ]
        return sum_bill(
            [*machine_lines, *service_lines],
            self.offer.usd_hour * self.nodes,
            "run",
            surcharges=price_book.surcharges,
        )

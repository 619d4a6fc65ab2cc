"""A cluster of which a part is never taken back: it goes on, slower, while spot is away.

Needs a job that changes its number of data-parallel copies on the fly (torchrun does); the global
batch stays the same, so fewer machines take more micro-batches each.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from planner.cost.bill import sum_bill
from planner.market.purchase import machine_line
from planner.perf.reliability import interruption
from planner.solve.training.cluster import Cluster, paid_node_hours

if TYPE_CHECKING:
    from planner.cost.bill import Bill
    from planner.cost.service_price import PriceBook
    from planner.market.offer import Offer
    from planner.perf.reliability.interruption import Hazard


@dataclass(frozen=True)
class MixedCluster(Cluster):
    """`on_demand_nodes` of the nodes are bought through `on_demand_offer`; alone they reach `on_demand_speed` of the speed.

    The offer of the cluster is that of its spot machines.
    """

    on_demand_offer: Offer | None = None
    on_demand_nodes: int = 0
    on_demand_speed: float = 0.0

    @cached_property
    def hazard(self) -> Hazard:
        """All machines fail; only those of spot are taken back."""
        instance = self.offer.instance
        cluster_hazard = interruption.run_hazard(
            self.nodes, instance.provider, instance.family
        )
        spot_hazard = interruption.run_hazard(
            self.nodes - self.on_demand_nodes,
            instance.provider,
            instance.family,
            "monthly",
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
            partial_speed=self.on_demand_speed,
        )

    def bill_for_run(
        self, price_book: PriceBook, paid_s: float, duration_s: float
    ) -> Bill:
        """The bill with the machines of both kinds: the base is paid from first to last."""
        uniform_bill = super().bill_for_run(price_book, paid_s, duration_s)
        if self.on_demand_offer is None:
            return uniform_bill
        spot_nodes = self.nodes - self.on_demand_nodes
        machine_lines = [
            machine_line(
                self.offer,
                spot_nodes,
                paid_node_hours(self.offer, spot_nodes, paid_s, duration_s),
                pool="train",
            ),
            machine_line(
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
        return sum_bill(
            [*machine_lines, *uniform_bill.lines[1:]],
            self.offer.usd_hour * self.nodes,
            "run",
        )

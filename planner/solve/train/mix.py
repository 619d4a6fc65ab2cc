"""A cluster of which a part is never taken back: it goes on, slower, while spot is away.

Needs a job that changes its number of data-parallel copies on the fly (torchrun does); the global
batch stays the same, so fewer machines take more micro-batches each.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from planner.perf.train import run
from planner.solve.bill import machines, summed
from planner.solve.train.cluster import Cluster, node_hours

if TYPE_CHECKING:
    from planner.cost.price import PriceBook
    from planner.perf.train.run import Hazard
    from planner.solve.bill import Bill
    from planner.solve.offer import Offer


@dataclass(frozen=True)
class Mixed(Cluster):
    """`base` of the nodes are bought through `fixed`; alone they reach `meanwhile` of the speed.

    The offer of the cluster is that of its spot machines.
    """

    fixed: Offer | None = None
    base: int = 0
    meanwhile: float = 0.0

    @cached_property
    def risk(self) -> Hazard:
        """All machines fail; only those of spot are taken back."""
        instance = self.offer.instance
        cluster_hazard = run.hazard(
            self.nodes, instance.provider, instance.family
        )
        spot_hazard = run.hazard(
            self.nodes - self.base,
            instance.provider,
            instance.family,
            "monthly",
        )
        notice_s = (
            spot_hazard.notice if spot_hazard.notice >= self.written else 0.0
        )
        return replace(
            spot_hazard,
            failures=cluster_hazard.failures,
            notice=notice_s,
            meanwhile=self.meanwhile,
        )

    def billed(
        self, price_book: PriceBook, paid_s: float, duration_s: float
    ) -> Bill:
        """The bill with the machines of both kinds: the base is paid from first to last."""
        uniform_bill = super().billed(price_book, paid_s, duration_s)
        if self.fixed is None:
            return uniform_bill
        spot_nodes = self.nodes - self.base
        machine_lines = [
            machines(
                self.offer,
                spot_nodes,
                node_hours(self.offer, spot_nodes, paid_s, duration_s),
            ),
            machines(
                self.fixed,
                self.base,
                node_hours(self.fixed, self.base, duration_s, duration_s),
            ),
        ]
        return summed(
            [*machine_lines, *uniform_bill.lines[1:]], self.offer, self.nodes
        )

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
        kind = self.offer.instance
        whole = run.hazard(self.nodes, kind.provider, kind.family)
        taken = run.hazard(
            self.nodes - self.base, kind.provider, kind.family, "monthly"
        )
        notice = taken.notice if taken.notice >= self.written else 0.0
        return replace(
            taken,
            failures=whole.failures,
            notice=notice,
            meanwhile=self.meanwhile,
        )

    def billed(self, book: PriceBook, paid: float, lasts: float) -> Bill:
        """The bill with the machines of both kinds: the base is paid from first to last."""
        found = super().billed(book, paid, lasts)
        if self.fixed is None:
            return found
        spot = self.nodes - self.base
        both = [
            machines(
                self.offer, spot, node_hours(self.offer, spot, paid, lasts)
            ),
            machines(
                self.fixed,
                self.base,
                node_hours(self.fixed, self.base, lasts, lasts),
            ),
        ]
        return summed([*both, *found.lines[1:]], self.offer, self.nodes)

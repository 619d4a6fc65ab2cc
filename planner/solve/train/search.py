"""Exact search of the cheapest cluster that finishes a training job in time.

Machine types are tried in the order of a lower bound of what the run costs on them: their price
for the accelerator-hours of its products alone. When the bound exceeds the cheapest found, nothing
that is left can be cheaper.
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Final

from planner.perf.train.search import floor
from planner.solve.train.cluster import Cluster, laid

if TYPE_CHECKING:
    from planner.cost.price import PriceBook
    from planner.perf.train.search import Laid
    from planner.solve.bill import Bill
    from planner.solve.offer import Instance, Offer
    from planner.solve.train.need import TrainNeed

SIZES: Final = tuple(sorted({2**k for k in range(13)} | {3 * 2**k for k in range(12)}))
RELIEF: Final = 1.5  # more machines speed one up by less: recomputation ends, waves grow
TRIED: Final = 3  # sizes from the first that is in time
FABRICS: Final = ("none", "ici")  # no fast network between machines that can be built


@dataclass(frozen=True, slots=True)
class Found:
    """A cluster in time, with the bill of its run."""

    cluster: Cluster
    bill: Bill

    @property
    def rank(self) -> tuple[Decimal, int, tuple[str, str, str, str]]:
        """The documented order: cost of the run, accelerators, names."""
        accelerators = self.cluster.laid.job.spread.accelerators
        return (self.bill.usd_month, accelerators, self.cluster.offer.key)


@dataclass(frozen=True, slots=True)
class Missed:
    """The best that an offer does when it is not in time: seconds, or why it does not run."""

    offer: Offer
    nodes: int
    seconds: float
    reason: str


@dataclass(frozen=True, slots=True)
class Result:
    """Clusters in time, the cheapest first, and offers that are not."""

    found: tuple[Found, ...]
    missed: tuple[Missed, ...]


class TrainSearch:
    """A search that remembers how jobs are laid out on machines."""

    def __init__(self, need: TrainNeed, book: PriceBook) -> None:
        self.need, self.book = need, book
        self._laid: dict[tuple[str, int], tuple[Laid, ...]] = {}

    def solve(self, offers: list[Offer], keep: int) -> Result:
        """Return the cheapest cluster over all offers, and at least `keep` when there are so many.

        The first is the cheapest of all; the others are the cheapest of what was looked at.
        """
        queue = [(self.least(offer), offer.key, offer) for offer in offers]
        heapq.heapify(queue)
        found: list[Found] = []
        missed: list[Missed] = []
        while queue:
            least, _, offer = heapq.heappop(queue)
            if len(found) >= keep and least > found[0].bill.usd_month:
                break
            best = self.on(offer)
            if isinstance(best, Missed):
                missed.append(best)
            else:
                found = sorted([*found, best], key=lambda x: x.rank)
        return Result(tuple(found), tuple(missed))

    def least(self, offer: Offer) -> Decimal:
        """USD that a run costs at least on an offer: its products at the best precision."""
        hours = self.alone(offer.instance) / 3600
        return Decimal(hours) / offer.instance.accelerators * offer.usd_hour

    def alone(self, instance: Instance) -> float:
        """Accelerator-seconds of the products alone."""
        jobs = [self.need.job(instance, p, 1.0) for p in self.need.precisions]
        steps = self.need.work / (self.need.batch * self.need.sequence)
        return min(floor(job).step for job in jobs) * steps

    def on(self, offer: Offer) -> Found | Missed:
        """Return the cheapest cluster of an offer that is in time."""
        found: list[Found] = []
        best: tuple[float, int] = (math.inf, 0)
        least = 0.0
        for nodes in self.sizes(offer.instance):
            cluster = self.cluster(offer, nodes) if nodes >= least else None
            if cluster is None:
                continue
            best = min(best, (cluster.ends, nodes))
            least = nodes * cluster.ends / self.need.limit / RELIEF
            if cluster.ends <= self.need.limit:
                found.append(Found(cluster, cluster.bill(self.book)))
            if len(found) >= TRIED:
                break
        if found:
            return min(found, key=lambda x: x.rank)
        seconds, nodes = best
        reason = "memory: no layout fits" if seconds == math.inf else "train.deadline"
        return Missed(offer, nodes, seconds, reason)

    def sizes(self, instance: Instance) -> list[int]:
        """Numbers of machines that may do it, from the fewest that the bound allows."""
        least = self.alone(instance) / self.need.limit / instance.accelerators
        most = 1 if instance.fabric in FABRICS else SIZES[-1]
        return [n for n in SIZES if least <= n <= most and n * instance.accelerators <= self._most]

    @property
    def _most(self) -> int:
        return max(1, self.need.batch) * 64

    def cluster(self, offer: Offer, nodes: int) -> Cluster | None:
        """The cluster of so many machines, or nothing when no layout fits."""
        key = (offer.instance.instance_type, nodes)
        if key not in self._laid:
            self._laid[key] = laid(self.need, offer.instance, nodes)
        found = self._laid[key]
        return Cluster(self.need, offer, nodes, found[0]) if found else None

"""Exact search of the cheapest cluster that finishes a training job in time, or of the fastest.

What is looked at next is always what could be cheapest: a machine type by the price of what
every layout does, then each number of its machines by the fastest layout there could be, then the
cluster itself. When the bound exceeds the cheapest found, nothing that is left can be cheaper.
The fastest within a budget is found alike, in the order of time.
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING, Final

from planner.cost.line import total
from planner.cost.week import HOURS_PER_MONTH
from planner.perf.constant import constant
from planner.perf.train.floor import floor
from planner.perf.train.job import Spread
from planner.solve.train.cluster import HOUR, Cluster, margin, moved, node_hours
from planner.solve.train.machine import connected, fastest, layouts, shortest

if TYPE_CHECKING:
    from planner.cost.price import PriceBook
    from planner.perf.train.search import Layouts
    from planner.solve.bill import Bill
    from planner.solve.offer import Instance, Offer
    from planner.solve.train.need import TrainNeed

SIZES: Final = tuple(
    sorted({2**k for k in range(13)} | {3 * 2**k for k in range(12)})
)
NEVER: Final = 1e12  # seconds
LOOKS: Final = 2  # at a number of machines, before its cluster is timed
ROUNDED: Final = 0.01  # USD: what a bill may be below its parts


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

    @property
    def monthly(self) -> Decimal:
        """USD that a run costs a month, or in all when it is shorter."""
        months = Decimal(self.cluster.expected / HOUR) / HOURS_PER_MONTH
        return self.bill.usd_month / max(Decimal(1), months)


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


@dataclass(slots=True)
class _Tally:
    """What is known of an offer while it is looked at: sizes that are left, the best so far."""

    offer: Offer
    left: int = 1
    seconds: float = math.inf
    nodes: int = 0
    found: Found | None = None
    dear: str = ""

    def late(self, seconds: float, nodes: int) -> None:
        """A size is not in time: it takes so many seconds, or at least so many."""
        self.seconds, self.nodes = min(
            (self.seconds, self.nodes), (seconds, nodes)
        )

    def missed(self) -> Missed:
        """Why no size will do."""
        reason = (
            "memory: no layout fits"
            if self.seconds == math.inf
            else "train.deadline"
        )
        return Missed(self.offer, self.nodes, self.seconds, self.dear or reason)


@dataclass(frozen=True, slots=True, order=True)
class _Entry:
    """Something to look at, by the least USD or seconds: no `nodes` stand for every number.

    `looks` counts how often so many machines were looked at, each time more closely.
    """

    least: float
    key: tuple[str, str, str, str]
    tally: _Tally = field(compare=False)
    nodes: int = 0
    looks: int = 0


class TrainSearch:
    """A search that remembers how jobs are laid out on machines."""

    def __init__(
        self, need: TrainNeed, book: PriceBook, *, fast: bool = False
    ) -> None:
        self.need, self.book, self.fast = need, book, fast
        self._layouts: dict[tuple[str, int], list[Layouts]] = {}
        self._alone: dict[str, float] = {}
        self._moved: dict[str, Decimal] = {}

    def solve(self, offers: list[Offer], keep: int) -> Result:
        """Return the best cluster over all offers, and at least `keep` when there are so many.

        Each is the best of its offer; nothing that was not looked at is better than the last of
        those that are kept.
        """
        tallies = [_Tally(offer) for offer in offers]
        queue = [
            _Entry(self._measure(self.least(t.offer), 0.0), t.offer.key, t)
            for t in tallies
        ]
        heapq.heapify(queue)
        last = math.inf  # of those that are kept
        while queue and queue[0].least <= last:
            entry = heapq.heappop(queue)
            entry.tally.left -= 1
            for more in self._look(entry, last):
                entry.tally.left += 1
                heapq.heappush(queue, more)
            found = self._found(tallies)
            last = (
                self.rank(found[keep - 1])[0]
                if len(found) >= keep
                else math.inf
            )
        late = [t.missed() for t in tallies if not t.left and not t.found]
        return Result(tuple(self._found(tallies)), tuple(late))

    def _look(self, entry: _Entry, last: float) -> list[_Entry]:
        """Look closer: at each number of machines, at its fastest layout, at the cluster."""
        if not entry.nodes:
            return self._sizes(entry)
        if entry.looks < LOOKS:
            return self._bound(entry)
        self._weigh(entry.tally, entry.nodes, last)
        return []

    def _bound(self, entry: _Entry) -> list[_Entry]:
        """Bound so many machines by their fastest layout; nothing when they cannot do it."""
        tally, nodes, offer = entry.tally, entry.nodes, entry.tally.offer
        seconds = self.shortest(offer.instance, nodes, closely=entry.looks > 0)
        if seconds > self.need.limit:
            tally.late(seconds, nodes)
            return []
        lasts = seconds + constant("boot")
        usd = node_hours(
            offer, nodes, lasts, lasts
        ) * offer.usd_hour + self.moved(offer)
        month = (
            HOURS_PER_MONTH if offer.purchase != "spot" else 0
        )  # is not paid while it is away
        over = self._over(usd, min(usd, offer.usd_hour * nodes * month))
        if over:
            tally.dear = over
            return []
        least = max(self._measure(usd, lasts), entry.least)
        return [_Entry(least, entry.key, tally, nodes, entry.looks + 1)]

    def _weigh(self, tally: _Tally, nodes: int, last: float) -> None:
        """Take the best storage and number of spares of a cluster into its tally.

        What is worse than its best, or than the last that is kept, is left as it is.
        """
        if tally.found is not None:
            last = min(last, self.rank(tally.found)[0])
        cluster = self.cluster(
            tally.offer, nodes, self._within(tally.offer, nodes, last)
        )
        if cluster is None:
            tally.left += 1
            return
        for stored in [x.spared() for x in cluster.stored()]:
            if stored.ends > self.need.limit:
                tally.late(min(stored.ends, NEVER), nodes)
                continue
            found = Found(stored, stored.bill(self.book))
            over = self._over(found.bill.usd_month, found.monthly)
            tally.dear = over or tally.dear
            if not over and (
                tally.found is None or self.rank(found) < self.rank(tally.found)
            ):
                tally.found = found

    def _over(self, usd: Decimal, monthly: Decimal) -> str:
        """The budget that a cost of the run, or of a month, breaks; empty when it keeps both."""
        need = self.need
        if need.budget is not None and usd > need.budget:
            return "train.budget"
        return (
            "buy.budget"
            if need.monthly is not None and monthly > need.monthly
            else ""
        )

    def _sizes(self, entry: _Entry) -> list[_Entry]:
        """Every number of machines, by what every layout takes on so many."""
        kind, found = entry.tally.offer.instance, []
        for nodes in self.sizes(kind):
            seconds = self.alone(kind) / nodes / kind.accelerators + constant(
                "boot"
            )
            standing = (
                float(entry.tally.offer.usd_hour)
                * nodes
                * constant("boot")
                / HOUR
            )
            least = seconds if self.fast else entry.least + standing
            found.append(_Entry(least, entry.key, entry.tally, nodes))
        return found

    def rank(
        self, found: Found
    ) -> tuple[float, Decimal, int, tuple[str, str, str, str]]:
        """The documented order: cost of the run, or its end; then accelerators and names."""
        return (
            self._measure(found.bill.usd_month, found.cluster.ends),
            *found.rank,
        )

    def _measure(self, usd: Decimal, seconds: float) -> float:
        return seconds if self.fast else float(usd)

    def _within(self, offer: Offer, nodes: int, most: float) -> float:
        """Seconds of steps, with their margin, after which a cluster measures more than `most`."""
        lasts = most
        if not self.fast:
            left = most + ROUNDED - float(self.moved(offer))
            lasts = left / float(offer.usd_hour) / nodes * HOUR
        return lasts - constant("boot")

    def _found(self, tallies: list[_Tally]) -> list[Found]:
        """The best cluster of each offer that has one, the best first."""
        return sorted(
            (t.found for t in tallies if t.found is not None), key=self.rank
        )

    def least(self, offer: Offer) -> Decimal:
        """USD that a run costs at least on an offer: what every layout does."""
        hours = self.alone(offer.instance) / HOUR
        alone = Decimal(hours) / offer.instance.accelerators * offer.usd_hour
        return alone + self.moved(offer)

    def moved(self, offer: Offer) -> Decimal:
        """USD for bringing the data to the cloud of an offer."""
        if offer.provider not in self._moved:
            lines = moved(self.need, offer.provider, self.book)
            self._moved[offer.provider] = total(lines)[0]
        return self._moved[offer.provider]

    def alone(self, instance: Instance) -> float:
        """Accelerator-seconds of what every layout does, with the margin."""
        if instance.instance_type not in self._alone:
            jobs = [
                self.need.job(instance, p, 1.0) for p in self.need.precisions
            ]
            least = min(
                floor(job).step * margin(self.need, job) for job in jobs
            )
            self._alone[instance.instance_type] = least * self.need.steps
        return self._alone[instance.instance_type]

    def shortest(
        self, instance: Instance, nodes: int, *, closely: bool
    ) -> float:
        """Seconds that the steps take at least on so many machines, with their margin."""
        least = shortest(self._at(instance, nodes), closely=closely)
        return least * self._stretched(instance, nodes)

    def sizes(self, instance: Instance) -> list[int]:
        """Numbers of machines that may do it, from the fewest that the bound allows."""
        least = self.alone(instance) / self.need.limit / instance.accelerators
        most = SIZES[-1] if connected(instance) else 1
        return [n for n in SIZES if least <= n <= most]

    def cluster(
        self, offer: Offer, nodes: int, within: float = math.inf
    ) -> Cluster | None:
        """The cluster of so many machines, or nothing when no layout fits in so many seconds."""
        limit = within / self._stretched(offer.instance, nodes)
        found = fastest(self._at(offer.instance, nodes), 1, limit)
        return Cluster(self.need, offer, nodes, found[0]) if found else None

    def _stretched(self, instance: Instance, nodes: int) -> float:
        """Steps, stretched by the margin on each, which is that of every precision."""
        job = self.need.job(instance, self.need.precisions[0], 1.0)
        every = Spread(dp=nodes * instance.accelerators)
        return self.need.steps * margin(self.need, job.laid(every))

    def _at(self, instance: Instance, nodes: int) -> list[Layouts]:
        key = (instance.instance_type, nodes)
        if key not in self._layouts:
            self._layouts[key] = layouts(self.need, instance, nodes)
        return self._layouts[key]

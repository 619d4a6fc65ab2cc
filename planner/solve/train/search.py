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
    sorted(
        {2**exponent for exponent in range(13)}
        | {3 * 2**exponent for exponent in range(12)}
    )
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
        duration_months = (
            Decimal(self.cluster.expected / HOUR) / HOURS_PER_MONTH
        )
        return self.bill.usd_month / max(Decimal(1), duration_months)


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

    def late(self, duration_s: float, nodes: int) -> None:
        """A size is not in time: it takes so many seconds, or at least so many."""
        self.seconds, self.nodes = min(
            (self.seconds, self.nodes), (duration_s, nodes)
        )

    def missed(self) -> Missed:
        """Why no size will do."""
        rejected_by = (
            "memory: no layout fits"
            if self.seconds == math.inf
            else "train.deadline"
        )
        return Missed(
            self.offer, self.nodes, self.seconds, self.dear or rejected_by
        )


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
        self,
        requirement: TrainNeed,
        price_book: PriceBook,
        *,
        by_time: bool = False,
    ) -> None:
        self.need, self.book, self.fast = requirement, price_book, by_time
        self._layouts: dict[tuple[str, int], list[Layouts]] = {}
        self._alone: dict[str, float] = {}
        self._moved: dict[str, Decimal] = {}

    def solve(self, offers: list[Offer], cluster_limit: int) -> Result:
        """Return the best cluster over all offers, and at least `keep` when there are so many.

        Each is the best of its offer; nothing that was not looked at is better than the last of
        those that are kept.
        """
        offer_states = [_Tally(offer) for offer in offers]
        queue = [
            _Entry(
                self._measure(self.least(offer_state.offer), 0.0),
                offer_state.offer.key,
                offer_state,
            )
            for offer_state in offer_states
        ]
        heapq.heapify(queue)
        cutoff = math.inf  # of those that are kept
        while queue and queue[0].least <= cutoff:
            candidate = heapq.heappop(queue)
            candidate.tally.left -= 1
            for refined_candidate in self._look(candidate, cutoff):
                candidate.tally.left += 1
                heapq.heappush(queue, refined_candidate)
            feasible = self._found(offer_states)
            cutoff = (
                self.rank(feasible[cluster_limit - 1])[0]
                if len(feasible) >= cluster_limit
                else math.inf
            )
        rejected_offers = [
            offer_state.missed()
            for offer_state in offer_states
            if not offer_state.left and not offer_state.found
        ]
        return Result(tuple(self._found(offer_states)), tuple(rejected_offers))

    def _look(self, candidate: _Entry, cutoff: float) -> list[_Entry]:
        """Look closer: at each number of machines, at its fastest layout, at the cluster."""
        if not candidate.nodes:
            return self._sizes(candidate)
        if candidate.looks < LOOKS:
            return self._bound(candidate)
        self._weigh(candidate.tally, candidate.nodes, cutoff)
        return []

    def _bound(self, candidate: _Entry) -> list[_Entry]:
        """Bound so many machines by their fastest layout; nothing when they cannot do it."""
        offer_state, nodes, offer = (
            candidate.tally,
            candidate.nodes,
            candidate.tally.offer,
        )
        steps_s = self.shortest(
            offer.instance, nodes, refined=candidate.looks > 0
        )
        if steps_s > self.need.limit:
            offer_state.late(steps_s, nodes)
            return []
        duration_s = steps_s + constant("boot")
        run_usd = node_hours(
            offer, nodes, duration_s, duration_s
        ) * offer.usd_hour + self.moved(offer)
        month_hours = (
            HOURS_PER_MONTH if offer.purchase != "spot" else 0
        )  # is not paid while it is away
        broken_budget = self._over(
            run_usd, min(run_usd, offer.usd_hour * nodes * month_hours)
        )
        if broken_budget:
            offer_state.dear = broken_budget
            return []
        objective_bound = max(
            self._measure(run_usd, duration_s), candidate.least
        )
        return [
            _Entry(
                objective_bound,
                candidate.key,
                offer_state,
                nodes,
                candidate.looks + 1,
            )
        ]

    def _weigh(self, offer_state: _Tally, nodes: int, cutoff: float) -> None:
        """Take the best storage and number of spares of a cluster into its tally.

        What is worse than its best, or than the last that is kept, is left as it is.
        """
        if offer_state.found is not None:
            cutoff = min(cutoff, self.rank(offer_state.found)[0])
        cluster = self.cluster(
            offer_state.offer,
            nodes,
            self._within(offer_state.offer, nodes, cutoff),
        )
        if cluster is None:
            offer_state.left += 1
            return
        for storage_option in [
            unspared_option.spared() for unspared_option in cluster.stored()
        ]:
            if storage_option.ends > self.need.limit:
                offer_state.late(min(storage_option.ends, NEVER), nodes)
                continue
            feasible = Found(storage_option, storage_option.bill(self.book))
            broken_budget = self._over(
                feasible.bill.usd_month, feasible.monthly
            )
            offer_state.dear = broken_budget or offer_state.dear
            if not broken_budget and (
                offer_state.found is None
                or self.rank(feasible) < self.rank(offer_state.found)
            ):
                offer_state.found = feasible

    def _over(self, run_usd: Decimal, monthly_usd: Decimal) -> str:
        """The budget that a cost of the run, or of a month, breaks; empty when it keeps both."""
        requirement = self.need
        if requirement.budget is not None and run_usd > requirement.budget:
            return "train.budget"
        return (
            "buy.budget"
            if requirement.monthly is not None
            and monthly_usd > requirement.monthly
            else ""
        )

    def _sizes(self, candidate: _Entry) -> list[_Entry]:
        """Every number of machines, by what every layout takes on so many."""
        instance, candidates = candidate.tally.offer.instance, []
        for nodes in self.sizes(instance):
            duration_s = self.alone(
                instance
            ) / nodes / instance.accelerators + constant("boot")
            startup_usd = (
                float(candidate.tally.offer.usd_hour)
                * nodes
                * constant("boot")
                / HOUR
            )
            objective_bound = (
                duration_s if self.fast else candidate.least + startup_usd
            )
            candidates.append(
                _Entry(objective_bound, candidate.key, candidate.tally, nodes)
            )
        return candidates

    def rank(
        self, feasible: Found
    ) -> tuple[float, Decimal, int, tuple[str, str, str, str]]:
        """The documented order: cost of the run, or its end; then accelerators and names."""
        return (
            self._measure(feasible.bill.usd_month, feasible.cluster.ends),
            *feasible.rank,
        )

    def _measure(self, run_usd: Decimal, duration_s: float) -> float:
        return duration_s if self.fast else float(run_usd)

    def _within(
        self, offer: Offer, nodes: int, objective_cutoff: float
    ) -> float:
        """Seconds of steps, with their margin, after which a cluster measures more than `most`."""
        duration_s = objective_cutoff
        if not self.fast:
            machine_usd = objective_cutoff + ROUNDED - float(self.moved(offer))
            duration_s = machine_usd / float(offer.usd_hour) / nodes * HOUR
        return duration_s - constant("boot")

    def _found(self, offer_states: list[_Tally]) -> list[Found]:
        """The best cluster of each offer that has one, the best first."""
        return sorted(
            (
                offer_state.found
                for offer_state in offer_states
                if offer_state.found is not None
            ),
            key=self.rank,
        )

    def least(self, offer: Offer) -> Decimal:
        """USD that a run costs at least on an offer: what every layout does."""
        accelerator_hours = self.alone(offer.instance) / HOUR
        machine_usd = (
            Decimal(accelerator_hours)
            / offer.instance.accelerators
            * offer.usd_hour
        )
        return machine_usd + self.moved(offer)

    def moved(self, offer: Offer) -> Decimal:
        """USD for bringing the data to the cloud of an offer."""
        if offer.provider not in self._moved:
            transfer_lines = moved(self.need, offer.provider, self.book)
            self._moved[offer.provider] = total(transfer_lines)[0]
        return self._moved[offer.provider]

    def alone(self, instance: Instance) -> float:
        """Accelerator-seconds of what every layout does, with the margin."""
        if instance.instance_type not in self._alone:
            training_jobs = [
                self.need.job(instance, precision, 1.0)
                for precision in self.need.precisions
            ]
            step_s = min(
                floor(training_job).step * margin(self.need, training_job)
                for training_job in training_jobs
            )
            self._alone[instance.instance_type] = step_s * self.need.steps
        return self._alone[instance.instance_type]

    def shortest(
        self, instance: Instance, nodes: int, *, refined: bool
    ) -> float:
        """Seconds that the steps take at least on so many machines, with their margin."""
        step_s = shortest(self._at(instance, nodes), refined=refined)
        return step_s * self._stretched(instance, nodes)

    def sizes(self, instance: Instance) -> list[int]:
        """Numbers of machines that may do it, from the fewest that the bound allows."""
        min_nodes = (
            self.alone(instance) / self.need.limit / instance.accelerators
        )
        max_nodes = SIZES[-1] if connected(instance) else 1
        return [
            node_count
            for node_count in SIZES
            if min_nodes <= node_count <= max_nodes
        ]

    def cluster(
        self, offer: Offer, nodes: int, steps_limit_s: float = math.inf
    ) -> Cluster | None:
        """The cluster of so many machines, or nothing when no layout fits in so many seconds."""
        step_limit_s = steps_limit_s / self._stretched(offer.instance, nodes)
        timed_layouts = fastest(
            self._at(offer.instance, nodes), 1, step_limit_s
        )
        return (
            Cluster(self.need, offer, nodes, timed_layouts[0])
            if timed_layouts
            else None
        )

    def _stretched(self, instance: Instance, nodes: int) -> float:
        """Steps, stretched by the margin on each, which is that of every precision."""
        training_job = self.need.job(instance, self.need.precisions[0], 1.0)
        data_parallel_layout = Spread(dp=nodes * instance.accelerators)
        return self.need.steps * margin(
            self.need, training_job.laid(data_parallel_layout)
        )

    def _at(self, instance: Instance, nodes: int) -> list[Layouts]:
        cache_key = (instance.instance_type, nodes)
        if cache_key not in self._layouts:
            self._layouts[cache_key] = layouts(self.need, instance, nodes)
        return self._layouts[cache_key]

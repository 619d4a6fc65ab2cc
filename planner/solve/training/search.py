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

from planner.cost.bill_line import sum_lines
from planner.cost.weekly_load import HOURS_PER_MONTH
from planner.perf.common.constant import constant
from planner.perf.training.job import ParallelLayout
from planner.perf.training.lower_bound import step_lower_bound
from planner.solve.training.cluster import (
    HOUR_S,
    Cluster,
    data_egress_lines,
    margin_factor,
    paid_node_hours,
)
from planner.solve.training.machine_layouts import (
    fastest_layouts,
    has_fabric,
    layout_searches,
    step_bound_s,
)

if TYPE_CHECKING:
    from planner.cost.bill import Bill
    from planner.cost.service_price import PriceBook
    from planner.market.offer import Instance, Offer
    from planner.perf.training.layout_search import LayoutSearch
    from planner.solve.training.requirement import TrainingRequirement

NODE_COUNTS: Final = tuple(
    sorted(
        {2**exponent for exponent in range(13)}
        | {3 * 2**exponent for exponent in range(12)}
    )
)
NEVER_S: Final = 1e12  # seconds
MAX_REFINEMENTS: Final = (
    2  # at a number of machines, before its cluster is timed
)
ROUNDING_USD: Final = 0.01  # USD: what a bill may be below its parts


@dataclass(frozen=True, slots=True)
class FeasibleCluster:
    """A cluster in time, with the bill of its run."""

    cluster: Cluster
    bill: Bill

    @property
    def rank(self) -> tuple[Decimal, int, tuple[str, str, str, str]]:
        """The documented order: cost of the run, accelerators, names."""
        accelerators = self.cluster.timed_layout.job.layout.accelerators
        return (self.bill.total, accelerators, self.cluster.offer.key)

    @property
    def monthly_usd(self) -> Decimal:
        """USD that a run costs a month, or in all when it is shorter."""
        duration_months = (
            Decimal(self.cluster.expected_s / HOUR_S) / HOURS_PER_MONTH
        )
        return self.bill.total / max(Decimal(1), duration_months)


@dataclass(frozen=True, slots=True)
class RejectedOffer:
    """The best that an offer does when it is not in time: seconds, or why it does not run."""

    offer: Offer
    nodes: int
    duration_s: float
    reason: str


@dataclass(frozen=True, slots=True)
class ClusterRanking:
    """Clusters in time, the cheapest first, and offers that are not."""

    feasible: tuple[FeasibleCluster, ...]
    rejected: tuple[RejectedOffer, ...]


@dataclass(slots=True)
class _OfferState:
    """What is known of an offer while it is looked at: sizes that are left, the best so far."""

    offer: Offer
    open_candidates: int = 1
    duration_s: float = math.inf
    nodes: int = 0
    incumbent: FeasibleCluster | None = None
    broken_budget: str = ""

    def record_late(self, duration_s: float, nodes: int) -> None:
        """A size is not in time: it takes so many seconds, or at least so many."""
        self.duration_s, self.nodes = min(
            (self.duration_s, self.nodes), (duration_s, nodes)
        )

    def rejection(self) -> RejectedOffer:
        """Why no size will do."""
        rejected_by = (
            "memory: no layout fits"
            if self.duration_s == math.inf
            else "train.deadline"
        )
        return RejectedOffer(
            self.offer,
            self.nodes,
            self.duration_s,
            self.broken_budget or rejected_by,
        )


@dataclass(frozen=True, slots=True, order=True)
class _Candidate:
    """Something to look at, by the least USD or seconds: no `nodes` stand for every number.

    `refinement` counts how often so many machines were looked at, each time more closely.
    """

    bound: float
    offer_key: tuple[str, str, str, str]
    offer_state: _OfferState = field(compare=False)
    nodes: int = 0
    refinement: int = 0


class TrainSearch:
    """A search that remembers how jobs are laid out on machines."""

    def __init__(
        self,
        requirement: TrainingRequirement,
        price_book: PriceBook,
        *,
        by_time: bool = False,
    ) -> None:
        self.requirement = requirement
        self.price_book = price_book
        self.by_time = by_time
        self._layout_cache: dict[tuple[str, int], list[LayoutSearch]] = {}
        self._bound_cache: dict[str, float] = {}
        self._egress_cache: dict[str, Decimal] = {}

    def solve(self, offers: list[Offer], cluster_limit: int) -> ClusterRanking:
        """Return the best cluster over all offers, and at least `cluster_limit` when there are so many.

        Each is the best of its offer; nothing that was not looked at is better than the last of
        those that are kept.
        """
        offer_states = [_OfferState(offer) for offer in offers]
        queue = [
            _Candidate(
                self._objective(self.bound_usd(offer_state.offer), 0.0),
                offer_state.offer.key,
                offer_state,
            )
            for offer_state in offer_states
        ]
        heapq.heapify(queue)
        cutoff = math.inf  # of those that are kept
        while queue and queue[0].bound <= cutoff:
            candidate = heapq.heappop(queue)
            candidate.offer_state.open_candidates -= 1
            for refined_candidate in self._refine(candidate, cutoff):
                candidate.offer_state.open_candidates += 1
                heapq.heappush(queue, refined_candidate)
            feasible = self._incumbents(offer_states)
            cutoff = (
                self.cluster_rank(feasible[cluster_limit - 1])[0]
                if len(feasible) >= cluster_limit
                else math.inf
            )
        rejected_offers = [
            offer_state.rejection()
            for offer_state in offer_states
            if not offer_state.open_candidates and not offer_state.incumbent
        ]
        return ClusterRanking(
            tuple(self._incumbents(offer_states)), tuple(rejected_offers)
        )

    def _refine(self, candidate: _Candidate, cutoff: float) -> list[_Candidate]:
        """Look closer: at each number of machines, at its fastest layout, at the cluster."""
        if not candidate.nodes:
            return self._size_candidates(candidate)
        if candidate.refinement < MAX_REFINEMENTS:
            return self._tighten_bound(candidate)
        self._evaluate(candidate.offer_state, candidate.nodes, cutoff)
        return []

    def _tighten_bound(self, candidate: _Candidate) -> list[_Candidate]:
        """Bound so many machines by their fastest layout; nothing when they cannot do it."""
        offer_state = candidate.offer_state
        nodes = candidate.nodes
        offer = candidate.offer_state.offer
        steps_s = self.steps_bound_s(
            offer.instance, nodes, refined=candidate.refinement > 0
        )
        if steps_s > self.requirement.time_limit_s:
            offer_state.record_late(steps_s, nodes)
            return []
        duration_s = steps_s + constant("boot")
        run_usd = paid_node_hours(
            offer, nodes, duration_s, duration_s
        ) * offer.usd_hour + self.egress_usd(offer)
        month_hours = (
            HOURS_PER_MONTH if offer.purchase != "spot" else 0
        )  # is not paid while it is away
        broken_budget = self._broken_budget(
            run_usd, min(run_usd, offer.usd_hour * nodes * month_hours)
        )
        if broken_budget:
            offer_state.broken_budget = broken_budget
            return []
        objective_bound = max(
            self._objective(run_usd, duration_s), candidate.bound
        )
        return [
            _Candidate(
                objective_bound,
                candidate.offer_key,
                offer_state,
                nodes,
                candidate.refinement + 1,
            )
        ]

    def _evaluate(
        self, offer_state: _OfferState, nodes: int, cutoff: float
    ) -> None:
        """Take the best storage and number of spares of a cluster into its tally.

        What is worse than its best, or than the last that is kept, is left as it is.
        """
        if offer_state.incumbent is not None:
            cutoff = min(cutoff, self.cluster_rank(offer_state.incumbent)[0])
        cluster = self.build_cluster(
            offer_state.offer,
            nodes,
            self._steps_limit_s(offer_state.offer, nodes, cutoff),
        )
        if cluster is None:
            offer_state.open_candidates += 1
            return
        for storage_option in [
            unspared_option.with_best_spares()
            for unspared_option in cluster.storage_options()
        ]:
            if storage_option.estimated_end_s > self.requirement.time_limit_s:
                offer_state.record_late(
                    min(storage_option.estimated_end_s, NEVER_S), nodes
                )
                continue
            feasible = FeasibleCluster(
                storage_option, storage_option.expected_bill(self.price_book)
            )
            broken_budget = self._broken_budget(
                feasible.bill.total, feasible.monthly_usd
            )
            offer_state.broken_budget = (
                broken_budget or offer_state.broken_budget
            )
            if not broken_budget and (
                offer_state.incumbent is None
                or self.cluster_rank(feasible)
                < self.cluster_rank(offer_state.incumbent)
            ):
                offer_state.incumbent = feasible

    def _broken_budget(self, run_usd: Decimal, monthly_usd: Decimal) -> str:
        """The budget that a cost of the run, or of a month, breaks; empty when it keeps both."""
        requirement = self.requirement
        if (
            requirement.budget_usd is not None
            and run_usd > requirement.budget_usd
        ):
            return "train.budget"
        return (
            "buy.budget"
            if requirement.monthly_budget_usd is not None
            and monthly_usd > requirement.monthly_budget_usd
            else ""
        )

    def _size_candidates(self, candidate: _Candidate) -> list[_Candidate]:
        """Every number of machines, by what every layout takes on so many."""
        instance = candidate.offer_state.offer.instance
        candidates = []
        for nodes in self.node_counts(instance):
            duration_s = self.accelerator_bound_s(
                instance
            ) / nodes / instance.accelerators + constant("boot")
            startup_usd = (
                float(candidate.offer_state.offer.usd_hour)
                * nodes
                * constant("boot")
                / HOUR_S
            )
            objective_bound = (
                duration_s if self.by_time else candidate.bound + startup_usd
            )
            candidates.append(
                _Candidate(
                    objective_bound,
                    candidate.offer_key,
                    candidate.offer_state,
                    nodes,
                )
            )
        return candidates

    def cluster_rank(
        self, feasible: FeasibleCluster
    ) -> tuple[float, Decimal, int, tuple[str, str, str, str]]:
        """The documented order: cost of the run, or its end; then accelerators and names."""
        return (
            self._objective(
                feasible.bill.total, feasible.cluster.estimated_end_s
            ),
            *feasible.rank,
        )

    def _objective(self, run_usd: Decimal, duration_s: float) -> float:
        return duration_s if self.by_time else float(run_usd)

    def _steps_limit_s(
        self, offer: Offer, nodes: int, objective_cutoff: float
    ) -> float:
        """Seconds of steps, with their margin, after which a cluster measures more than `objective_cutoff`."""
        duration_s = objective_cutoff
        if not self.by_time:
            machine_usd = (
                objective_cutoff + ROUNDING_USD - float(self.egress_usd(offer))
            )
            duration_s = machine_usd / float(offer.usd_hour) / nodes * HOUR_S
        return duration_s - constant("boot")

    def _incumbents(
        self, offer_states: list[_OfferState]
    ) -> list[FeasibleCluster]:
        """The best cluster of each offer that has one, the best first."""
        return sorted(
            (
                offer_state.incumbent
                for offer_state in offer_states
                if offer_state.incumbent is not None
            ),
            key=self.cluster_rank,
        )

    def bound_usd(self, offer: Offer) -> Decimal:
        """USD that a run costs at least on an offer: what every layout does."""
        accelerator_hours = self.accelerator_bound_s(offer.instance) / HOUR_S
        machine_usd = (
            Decimal(accelerator_hours)
            / offer.instance.accelerators
            * offer.usd_hour
        )
        return machine_usd + self.egress_usd(offer)

    def egress_usd(self, offer: Offer) -> Decimal:
        """USD for bringing the data to the cloud of an offer."""
        if offer.provider not in self._egress_cache:
            transfer_lines = data_egress_lines(
                self.requirement, offer.provider, self.price_book
            )
            self._egress_cache[offer.provider] = sum_lines(transfer_lines)[0]
        return self._egress_cache[offer.provider]

    def accelerator_bound_s(self, instance: Instance) -> float:
        """Accelerator-seconds of what every layout does, with the margin."""
        if instance.instance_type not in self._bound_cache:
            training_jobs = [
                self.requirement.build_job(instance, precision, 1.0)
                for precision in self.requirement.precisions
            ]
            step_s = min(
                step_lower_bound(training_job).layout_free_s
                * margin_factor(self.requirement, training_job)
                for training_job in training_jobs
            )
            self._bound_cache[instance.instance_type] = (
                step_s * self.requirement.optimizer_steps
            )
        return self._bound_cache[instance.instance_type]

    def steps_bound_s(
        self, instance: Instance, nodes: int, *, refined: bool
    ) -> float:
        """Seconds that the steps take at least on so many machines, with their margin."""
        step_s = step_bound_s(
            self._layout_searches(instance, nodes), refined=refined
        )
        return step_s * self._stretched_steps(instance, nodes)

    def node_counts(self, instance: Instance) -> list[int]:
        """Numbers of machines that may do it, from the fewest that the bound allows."""
        min_nodes = (
            self.accelerator_bound_s(instance)
            / self.requirement.time_limit_s
            / instance.accelerators
        )
        max_nodes = NODE_COUNTS[-1] if has_fabric(instance) else 1
        return [
            node_count
            for node_count in NODE_COUNTS
            if min_nodes <= node_count <= max_nodes
        ]

    def build_cluster(
        self, offer: Offer, nodes: int, steps_limit_s: float = math.inf
    ) -> Cluster | None:
        """The cluster of so many machines, or nothing when no layout fits in so many seconds."""
        step_limit_s = steps_limit_s / self._stretched_steps(
            offer.instance, nodes
        )
        timed_layouts = fastest_layouts(
            self._layout_searches(offer.instance, nodes), 1, step_limit_s
        )
        return (
            Cluster(self.requirement, offer, nodes, timed_layouts[0])
            if timed_layouts
            else None
        )

    def _stretched_steps(self, instance: Instance, nodes: int) -> float:
        """Steps, stretched by the margin on each, which is that of every precision."""
        training_job = self.requirement.build_job(
            instance, self.requirement.precisions[0], 1.0
        )
        data_parallel_layout = ParallelLayout(dp=nodes * instance.accelerators)
        return self.requirement.optimizer_steps * margin_factor(
            self.requirement, training_job.with_layout(data_parallel_layout)
        )

    def _layout_searches(
        self, instance: Instance, nodes: int
    ) -> list[LayoutSearch]:
        cache_key = (instance.instance_type, nodes)
        if cache_key not in self._layout_cache:
            self._layout_cache[cache_key] = layout_searches(
                self.requirement, instance, nodes
            )
        return self._layout_cache[cache_key]

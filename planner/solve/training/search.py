"""Exact search for the cluster of the least cost, time, or both together, within the limits.

Best-first search over one frontier with lower bounds of the objective:

1. machine type: cost of the work that no layout avoids
2. machine count: cost or time of the fastest layout that is possible, first over any network,
   then over the network of the machines
3. cluster: fastest layout, storage and spares

What is minimized is one of `planner/solve/training/objective.py`.
"""

from __future__ import annotations

import math
from decimal import Decimal
from typing import TYPE_CHECKING, Final

from planner.cost.bill_line import sum_lines
from planner.frontier import Frontier
from planner.market.capacity import gang_limit, quota_limit
from planner.perf.common.constant import constant
from planner.perf.training.job import ParallelLayout
from planner.perf.training.lower_bound import step_lower_bound
from planner.solve.cause import because
from planner.solve.cloud_rule import (
    GROUP_LIMIT,
    ExceededLimit,
)
from planner.solve.training.bill import data_egress_lines, paid_node_hours
from planner.solve.training.cluster import LONGEST_RUN_S, Cluster
from planner.solve.training.feeding import machine_prepare_s
from planner.solve.training.machine_layouts import (
    fastest_layouts,
    has_fabric,
    layout_searches,
    step_bound_s,
)
from planner.solve.training.mixed_cluster import base_nodes, on_base
from planner.solve.training.objective import (
    longest_duration_s,
    objective_value,
)
from planner.solve.training.ranking import ClusterRanking, FeasibleCluster
from planner.solve.training.search_queue import Candidate, OfferState
from planner.solve.training.step_margin import margin_factor
from planner.units import HOURS_PER_MONTH, SECONDS_PER_HOUR

if TYPE_CHECKING:
    from planner.cost.service_price import PriceBook
    from planner.market.offer import Instance, Offer
    from planner.perf.training.layout_search import LayoutSearch
    from planner.solve.training.mixed_cluster import MixedCluster
    from planner.solve.training.objective import Objective
    from planner.solve.training.requirement import TrainingRequirement

# Powers of two and three times those, up to 6,144 machines.
NODE_COUNTS: Final = tuple(
    sorted(
        {2**exponent for exponent in range(13)}
        | {3 * 2**exponent for exponent in range(12)}
    )
)
# At a number of machines, before its cluster is timed.
MAX_REFINEMENTS: Final = 2


class TrainSearch:
    """An exact search over offers and machine counts, with cached bounds."""

    def __init__(
        self,
        requirement: TrainingRequirement,
        price_book: PriceBook,
        *,
        objective: Objective = "cost",
    ) -> None:
        self.requirement = requirement
        self.price_book = price_book
        self.objective: Objective = objective
        self._layout_cache: dict[tuple[str, int], list[LayoutSearch]] = {}
        self._bound_cache: dict[str, float] = {}
        self._prepare_cache: dict[str, float] = {}
        self._steps_cache: dict[tuple[str, int], float] = {}
        self._egress_cache: dict[str, Decimal] = {}

    def with_limits(
        self, requirement: TrainingRequirement, objective: Objective
    ) -> TrainSearch:
        """Return the search of the same job under other limits, which shares what is cached.

        `requirement` differs in its deadline and its budgets alone: layouts, bounds and egress
        depend on neither.
        """
        search = TrainSearch(requirement, self.price_book, objective=objective)
        search._layout_cache = self._layout_cache
        search._bound_cache = self._bound_cache
        search._prepare_cache = self._prepare_cache
        search._steps_cache = self._steps_cache
        search._egress_cache = self._egress_cache
        return search

    def solve(
        self,
        offers: list[Offer],
        cluster_limit: int,
        known_cutoff: float = math.inf,
    ) -> ClusterRanking:
        """Return the best cluster of each offer, proved for the first `cluster_limit`.

        The cutoff is the objective of the cluster at position `cluster_limit`, so no cluster that
        was not evaluated belongs before it. It is at most `known_cutoff`, see `least_known`.
        """
        offer_states = [
            OfferState(offer, self.requirement.time_limit_key)
            for offer in offers
        ]
        frontier: Frontier[Candidate] = Frontier()
        for offer_state in offer_states:
            # Without a machine count no time is known but 0.
            bound = self._objective(self.bound_usd(offer_state.offer), 0.0)
            _push(frontier, Candidate(bound, offer_state))
        # Objective of the last cluster that is kept.
        cutoff = known_cutoff
        while (taken := frontier.take(cutoff)) is not None:
            _, candidate = taken
            candidate.offer_state.open_candidates -= 1
            for refined_candidate in self._refine(candidate, cutoff):
                candidate.offer_state.open_candidates += 1
                _push(frontier, refined_candidate)
            feasible = self._incumbents(offer_states)
            if len(feasible) >= cluster_limit:
                cutoff = min(
                    known_cutoff,
                    self.cluster_rank(feasible[cluster_limit - 1])[0],
                )
        rejected_offers = [
            offer_state.rejection()
            for offer_state in offer_states
            # An offer with entries in the queue is dearer, not infeasible.
            if not offer_state.open_candidates and not offer_state.incumbent
        ]
        return ClusterRanking(
            tuple(self._incumbents(offer_states)), tuple(rejected_offers)
        )

    def least_known(self, clusters: list[FeasibleCluster]) -> float:
        """Return the least objective of known clusters within the limits of this search.

        The best cluster has no larger one, where they are of the same job and the same offers.
        """
        return min(
            (
                self.cluster_rank(known)[0]
                for known in clusters
                if known.cluster.estimated_end_s
                <= self.requirement.time_limit_s
                and not self._broken_budget(known.bill.total, known.monthly_usd)
            ),
            default=math.inf,
        )

    def _refine(self, candidate: Candidate, cutoff: float) -> list[Candidate]:
        """Return the refinements of a candidate, or evaluate its cluster.

        All counts become single counts, single counts get two tighter bounds, then a cluster.
        """
        if not candidate.nodes:
            return self._size_candidates(candidate)
        # Cheap bounds first: timing layouts is the expensive part.
        if candidate.refinement < MAX_REFINEMENTS:
            return self._tighten_bound(candidate)
        self._evaluate(candidate.offer_state, candidate.nodes, cutoff)
        return []

    def _tighten_bound(self, candidate: Candidate) -> list[Candidate]:
        """Tighten the bound of a machine count by its fastest possible layout.

        Proves `objective >= max(previous bound, objective of steps_bound_s + boot)`. Empty
        when that bound violates the time limit or a budget.
        """
        offer_state = candidate.offer_state
        nodes = candidate.nodes
        offer = candidate.offer_state.offer
        steps_s = self.steps_bound_s(
            offer.instance, nodes, refined=candidate.refinement > 0
        )
        if steps_s > self.requirement.time_limit_s:
            offer_state.record_late(steps_s, nodes)
            return []
        # Interruptions, reading and checkpoints only add to this duration.
        duration_s = steps_s + constant("boot")
        # Machines and egress only: services and storage add to the cost.
        run_usd = paid_node_hours(
            offer, nodes, duration_s, duration_s
        ) * offer.usd_hour + self.egress_usd(offer)
        # A spot machine is not paid while it is away, so a month may cost nothing.
        month_hours = HOURS_PER_MONTH if "spot" not in offer.purchases else 0
        broken_budget = self._broken_budget(
            # A month costs at least the run, or all of its hours.
            run_usd,
            min(run_usd, offer.usd_hour * nodes * month_hours),
        )
        if broken_budget:
            offer_state.broken_budget = broken_budget
            return []
        objective_bound = max(
            # The larger of two valid bounds is valid.
            self._objective(run_usd, duration_s),
            candidate.bound,
        )
        return [
            Candidate(
                objective_bound,
                offer_state,
                nodes,
                candidate.refinement + 1,
            )
        ]

    def _evaluate(
        self, offer_state: OfferState, nodes: int, cutoff: float
    ) -> None:
        """Evaluate a cluster and its storage, and update the incumbent.

        A cluster whose objective exceeds the incumbent or `cutoff` is not built.
        """
        if offer_state.incumbent is not None:
            # Only a cluster better than the incumbent of its offer matters.
            cutoff = min(cutoff, self.cluster_rank(offer_state.incumbent)[0])
        cluster = self.build_cluster(
            offer_state.offer,
            nodes,
            self._steps_limit_s(offer_state.offer, nodes, cutoff),
        )
        if cluster is None:
            # No layout beats the cutoff, so the offer is not infeasible.
            offer_state.open_candidates += 1
            return
        # Only a cluster that is worth it is looked at on its base.
        if offer_state.offer.mix is not None:
            cluster = self.on_base(cluster, offer_state.offer)
        if cluster is None:
            offer_state.unmixed = because("no-base", "buy")
            return
        for storage_option in [
            unspared_option.with_best_spares()
            for unspared_option in cluster.storage_options()
        ]:
            if not storage_option.ends:
                # Most of its runs may be in time, but their mean has no cost.
                offer_state.record_late(LONGEST_RUN_S, nodes)
                continue
            if storage_option.estimated_end_s > self.requirement.time_limit_s:
                offer_state.record_late(storage_option.estimated_end_s, nodes)
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
        """Return the key of the violated budget, or an empty text.

        `run_usd` is the cost of the run, `monthly_usd` that of a month.
        """
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

    def _size_candidates(self, candidate: Candidate) -> list[Candidate]:
        """Return a candidate for each machine count.

        Proves `time >= compute_bound_s + boot`, and `cost >= that of the machines for so long`.
        """
        offer = candidate.offer_state.offer
        hourly_usd = float(offer.usd_hour) / SECONDS_PER_HOUR
        egress_usd = float(self.egress_usd(offer))
        candidates = []
        for nodes in self.node_counts(candidate.offer_state):
            duration_s = self.compute_bound_s(offer.instance, nodes) + constant(
                "boot"
            )
            run_usd = duration_s * nodes * hourly_usd + egress_usd
            bound = objective_value(self.objective, run_usd, duration_s)
            candidates.append(Candidate(bound, candidate.offer_state, nodes))
        return candidates

    def cluster_rank(
        self, feasible: FeasibleCluster
    ) -> tuple[float, Decimal, tuple[int, int], int, tuple[str, str, str, str]]:
        """Order of clusters: objective, then cost, place, accelerators and offer key."""
        return (
            self._objective(
                feasible.bill.total, feasible.cluster.estimated_end_s
            ),
            *feasible.rank,
        )

    def _objective(self, run_usd: Decimal, duration_s: float) -> float:
        return objective_value(self.objective, float(run_usd), duration_s)

    def _steps_limit_s(
        self, offer: Offer, nodes: int, objective_cutoff: float
    ) -> float:
        """Time of all steps beyond which a cluster exceeds a cutoff, seconds.

        The inverse of the objective: without egress and boot, and with the margin.
        """
        duration_s = longest_duration_s(
            self.objective,
            objective_cutoff,
            float(offer.usd_hour) * nodes / SECONDS_PER_HOUR,
            float(self.egress_usd(offer)),
        )
        return duration_s - constant("boot")

    def _incumbents(
        self, offer_states: list[OfferState]
    ) -> list[FeasibleCluster]:
        """Return the best cluster of each offer that has one, in rank order."""
        return sorted(
            (
                offer_state.incumbent
                for offer_state in offer_states
                if offer_state.incumbent is not None
            ),
            key=self.cluster_rank,
        )

    def bound_usd(self, offer: Offer) -> Decimal:
        """Lower bound of the cost of a run on an offer, USD.

        Proves `cost >= accelerator_bound_s / 3600 / accelerators * usd_hour + egress`.
        """
        accelerator_hours = (
            self.accelerator_bound_s(offer.instance) / SECONDS_PER_HOUR
        )
        machine_usd = (
            Decimal(accelerator_hours)
            / offer.instance.accelerators
            * offer.usd_hour
        )
        return machine_usd + self.egress_usd(offer)

    def egress_usd(self, offer: Offer) -> Decimal:
        """Egress cost of the data to the cloud of an offer, USD."""
        if offer.provider not in self._egress_cache:
            transfer_lines = data_egress_lines(
                self.requirement, offer.provider, self.price_book
            )
            self._egress_cache[offer.provider] = sum_lines(transfer_lines)[0]
        return self._egress_cache[offer.provider]

    def accelerator_bound_s(self, instance: Instance) -> float:
        """Lower bound of the work of a run, accelerator-seconds with the margin.

        Proves `accelerators * progress_s >= bound` for every layout and precision: a run takes
        its steps, and the time in which cores prepare its data.
        """
        if instance.instance_type not in self._bound_cache:
            training_jobs = [
                self.requirement.build_job(instance, precision, 1.0)
                for precision in self.requirement.precisions
            ]
            step_s = min(
                # Work that does not depend on the layout or count.
                step_lower_bound(training_job).layout_free_s
                # The margin of one accelerator is the smallest.
                * margin_factor(self.requirement, training_job)
                for training_job in training_jobs
            )
            self._bound_cache[instance.instance_type] = max(
                step_s * self.requirement.optimizer_steps,
                # The cores of a machine come with its accelerators.
                self._machine_prepare_s(instance) * instance.accelerators,
            )
        return self._bound_cache[instance.instance_type]

    def compute_bound_s(self, instance: Instance, nodes: int) -> float:
        """Lower bound of the time of all steps and of their data, seconds with the margin.

        Proves `progress_s >= bound` for every layout on `nodes` machines, by the work that no
        layout avoids; it builds no layout.
        """
        step_s = min(
            (
                layout_search.bound_compute
                for layout_search in self._layout_searches(instance, nodes)
            ),
            # No precision is supported: see `steps_bound_s`.
            default=0.0,
        )
        return max(
            step_s * self._stretched_steps(instance, nodes),
            self._machine_prepare_s(instance) / nodes,
        )

    def steps_bound_s(
        self, instance: Instance, nodes: int, *, refined: bool
    ) -> float:
        """Lower bound of the time of all steps and of their data, seconds with the margin.

        Proves `progress_s >= bound` for every layout on `nodes` machines. See `step_bound_s` for
        `refined`.
        """
        step_s = step_bound_s(
            self._layout_searches(instance, nodes), refined=refined
        )
        return max(
            step_s * self._stretched_steps(instance, nodes),
            self._machine_prepare_s(instance) / nodes,
        )

    def node_counts(self, offer_state: OfferState) -> list[int]:
        """Return the machine counts that the bound of the work and the cloud allow.

        Records in the state of the offer what cuts counts off.
        """
        instance = offer_state.offer.instance
        is_mixed = offer_state.offer.mix is not None
        # A job on one machine leaves nothing to be bought in another way.
        if is_mixed and not has_fabric(instance):
            offer_state.unmixed = because("undivided", "buy")
            return []
        # Fewer machines cannot do the work within the time limit.
        min_nodes = (
            self.accelerator_bound_s(instance)
            / self.requirement.time_limit_s
            / instance.accelerators
        )
        # Without a fabric a job stays on one machine.
        max_nodes = NODE_COUNTS[-1] if has_fabric(instance) else 1
        group_nodes = self.requirement.joined_nodes(instance)
        if group_nodes is not None:
            # Its cloud joins no more by one fabric.
            max_nodes = min(max_nodes, group_nodes)
        node_counts = [
            node_count
            for node_count in NODE_COUNTS
            if min_nodes <= node_count <= max_nodes
        ]
        if not node_counts:
            # The work alone takes so long on the most machines.
            offer_state.record_late(
                self.accelerator_bound_s(instance)
                / (max_nodes * instance.accelerators),
                max_nodes,
            )
            if group_nodes is not None and max_nodes == group_nodes:
                offer_state.machine_limit = group_nodes
                offer_state.cut_by = ExceededLimit(
                    GROUP_LIMIT, math.ceil(min_nodes), group_nodes
                ).reason
        elif is_mixed:
            node_counts = [
                node_count
                for node_count in node_counts
                if base_nodes(offer_state.offer, node_count) < node_count
            ]
            offer_state.unmixed = because("undivided", "buy")
        machine_limit = gang_limit(
            offer_state.offer, spot_by_name=self.requirement.spot_by_name
        )
        if machine_limit is None or machine_limit >= max(
            node_counts, default=0
        ):
            return node_counts
        offer_state.machine_limit = machine_limit
        offer_state.cut_by = because(
            "capacity",
            _limiting_key(offer_state.offer),
            machines=machine_limit,
        )
        return [count for count in node_counts if count <= machine_limit]

    def build_cluster(
        self, offer: Offer, nodes: int, steps_limit_s: float = math.inf
    ) -> Cluster | None:
        """Return the cluster with the fastest layout, or `None`.

        `None` means that no layout fits in memory with steps of at most `steps_limit_s`
        seconds in all.
        """
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

    def on_base(self, cluster: Cluster, offer: Offer) -> MixedCluster | None:
        """Return a cluster bought by an offer of a mix, or `None`: see `mixed_cluster.on_base`."""
        nodes = base_nodes(offer, cluster.nodes)
        return on_base(
            cluster, offer, self._layout_searches(offer.instance, nodes)
        )

    def _machine_prepare_s(self, instance: Instance) -> float:
        machine = instance.instance_type
        if machine not in self._prepare_cache:
            self._prepare_cache[machine] = machine_prepare_s(
                self.requirement, instance
            )
        return self._prepare_cache[machine]

    def _stretched_steps(self, instance: Instance, nodes: int) -> float:
        """Optimizer steps times the margin factor.

        The margin depends on the accelerator count, and is the same for all precisions and
        layouts.
        """
        cache_key = (instance.instance_type, nodes)
        if cache_key not in self._steps_cache:
            training_job = self.requirement.build_job(
                instance, self.requirement.precisions[0], 1.0
            )
            # Any layout with this accelerator count has the same margin.
            data_parallel_layout = ParallelLayout(
                dp=nodes * instance.accelerators
            )
            self._steps_cache[cache_key] = (
                self.requirement.optimizer_steps
                * margin_factor(
                    self.requirement,
                    training_job.with_layout(data_parallel_layout),
                )
            )
        return self._steps_cache[cache_key]

    def _layout_searches(
        self, instance: Instance, nodes: int
    ) -> list[LayoutSearch]:
        cache_key = (instance.instance_type, nodes)
        if cache_key not in self._layout_cache:
            self._layout_cache[cache_key] = layout_searches(
                self.requirement, instance, nodes
            )
        return self._layout_cache[cache_key]


def _limiting_key(offer: Offer) -> str:
    """Return the key of the spec that bounds how many machines of an offer there are."""
    if offer.block is not None:
        return "buy.block"
    if offer.reservation is not None:
        return "buy.reservations"
    return "buy.spot" if quota_limit(offer) is None else "quota"


def _push(frontier: Frontier[Candidate], candidate: Candidate) -> None:
    frontier.push(
        candidate.bound,
        candidate,
        (
            candidate.offer_state.offer.key,
            candidate.nodes,
            candidate.refinement,
        ),
    )

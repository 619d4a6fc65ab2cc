"""Exact search for the cheapest serving fleet that passes the simulation.

Every layout on every machine type is a candidate, in the cheapest region of each type. Formulas
name the fleets that come first. Then every layout that could be cheaper than the cheapest fleet
is simulated with the most groups that cost no more: where these miss a limit, fewer do too.
"""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

from msgspec import Struct

from planner import figures
from planner.frontier import Frontier
from planner.perf.serving.replica import Confidence, Replica
from planner.solve.serving.batch_run import cheapest_run
from planner.solve.serving.best_fleets import (
    TIE_USD,
    BestFleets,
    purchase_key,
)
from planner.solve.serving.bill import (
    bought_bill,
    serving_bill,
    settled_fleet,
)
from planner.solve.serving.candidate import ServingCandidate
from planner.solve.serving.cloud_limit import beyond_reach, obtainable
from planner.solve.serving.cost_bound import (
    bound_nodes,
    layout_bounds_usd,
    offer_bound_usd,
)
from planner.solve.serving.group_search import GroupSearch
from planner.solve.serving.layout_choice import serving_layouts
from planner.solve.serving.quota import beyond_quota
from planner.solve.serving.rejection import offer_rejections
from planner.solve.serving.shared_search import SharedSearch
from planner.solve.serving.sizing import (
    MULTI_NODE_SIZES,
    ONE_NODE,
    FleetSizing,
    LayoutRejection,
    ReplicaGroup,
    group_lower_bound,
    replica_group,
    size_fleet,
    sized_fleet,
)
from planner.solve.serving.spare_groups import counted_zones
from planner.solve.serving.verify import FleetJudge

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from decimal import Decimal

    from planner.cost.bill import Bill
    from planner.cost.service_price import PriceBook
    from planner.facts.llm import Llm
    from planner.market.offer import Offer
    from planner.perf.common.layout import Node, ReplicaLayout
    from planner.perf.serving.load import ServingLoad
    from planner.perf.serving.margin import LimitedMetric
    from planner.solve.serving.cost_bound import LayoutOption
    from planner.solve.serving.group_search import GroupJudge
    from planner.solve.serving.rejection import (
        RejectedLayout,
        ServingRejection,
    )
    from planner.solve.serving.requirement import ServingRequirement
    from planner.spec.model import LatencyLimit

# Chip, its memory and share of compute, its links, and between nodes their network and how many
# accelerators share it.
HardwareKey: TypeAlias = (
    "tuple[str, float, float, str, tuple[float, int] | None]"
)
ReplicaCache: TypeAlias = (
    "dict[tuple[HardwareKey, ReplicaLayout], dict[ConfidenceKey, Replica]]"
)
# Wished confidence, and what it has to hold for.
ConfidenceKey: TypeAlias = "tuple[Confidence, tuple[LimitedMetric, ...]]"
# An offer, how many nodes a replica spans, and a layout; None stands for all of these.
_SearchEntry: TypeAlias = "tuple[Offer, tuple[int, ...], LayoutOption | None]"
# The fewest groups of a layout on an offer that cost no more than so many USD, or the limit that
# it misses; nothing when it is dearer.
_Sizer: TypeAlias = "Callable[[Offer, LayoutOption, float], FleetSizing | LayoutRejection | None]"
# Models with the lengths of their requests that are remembered. Each takes some megabytes.
MOST_SHAPES: Final = 16


class ServingResult(Struct, frozen=True, kw_only=True):
    """The cheapest fleet, the next ones by formula, and the offers without one.

    `best`  the cheapest fleet that passes the simulation
    `estimated`  fleets of other machine types that are dearer by formula, in rank order
    `rejected_offers`  by cost bound, one for each machine type and purchase option
    """

    best: ServingCandidate | None
    estimated: tuple[ServingCandidate, ...]
    rejected_offers: tuple[ServingRejection, ...]


class _RequirementCache(Struct, frozen=True):
    """Results that are cached for one requirement.

    `sizing_results`  fewest groups by formula, by replica and group
    `layout_options`  layouts with their bounds by node, zones, group sizes and precisions
    `replicas`        replicas by hardware and layout, then by confidence: those of every
                      requirement with the same model and lengths
    """

    sizing_results: dict[
        tuple[Replica, ReplicaGroup], FleetSizing | LayoutRejection
    ]
    layout_options: dict[
        tuple[Node, int, tuple[int, ...], tuple[str, ...], tuple[str, ...]],
        list[LayoutOption],
    ]
    replicas: ReplicaCache


class ServingSearch:
    """Searches offers for the cheapest fleets, and caches replicas and sizings.

    Requirements may differ in anything: what is shared is looked up by all that it depends on.
    """

    def __init__(self, price_book: PriceBook) -> None:
        self.price_book = price_book
        # A bill is at least so many times the bound of its lines.
        self.markup = float(price_book.surcharges.factor)
        self.judge = FleetJudge()
        self._replicas_by_shape: dict[
            tuple[Llm, ServingLoad], ReplicaCache
        ] = {}
        self._caches: dict[ServingRequirement, _RequirementCache] = {}
        self._last_requirement: ServingRequirement | None = None
        self._current_cache = _RequirementCache({}, {}, {})

    def solve(
        self,
        requirement: ServingRequirement,
        offers: list[Offer],
        estimate_count: int = 0,
        *,
        ceiling_usd: float = math.inf,
        tells_why: bool = True,
        judge: GroupJudge | None = None,
    ) -> ServingResult:
        """Return the cheapest fleet, and `estimate_count` dearer ones by formula.

        Fleets that cost more than `ceiling_usd` a month are not looked for. Formulas name
        candidates; the simulation then proves that no fleet is cheaper. With `tells_why` off
        the offers without a fleet are not all named: proving that they miss takes less time.
        `judge` says which fleets pass; without one it is that of the search.
        Of machines that several services share no offer is named.
        """
        if requirement.beside:
            shared = SharedSearch(requirement, self).cheapest(
                offers, 1 + estimate_count, ceiling_usd
            )
            return ServingResult(
                best=shared[0] if shared else None,
                estimated=tuple(shared[1:]),
                rejected_offers=(),
            )
        estimates, rejected_offers = self._best_first(
            requirement,
            offers,
            lambda _offer, option, _limit_usd: self.size_layout(
                requirement, *option[:2]
            ),
            result_count=1 + estimate_count,
            ceiling_usd=ceiling_usd,
        )
        verified = estimates[:1]
        if requirement.is_simulated:
            groups = GroupSearch(requirement, self, judge or self.judge)
            verified, rejected_offers = self._best_first(
                requirement,
                offers,
                partial(groups.fewest, tells_why=tells_why),
                result_count=1,
                ceiling_usd=ceiling_usd,
                known_candidates=self._first_verified(
                    requirement, groups, estimates, ceiling_usd
                ),
            )
        best = verified[0] if verified else None
        return ServingResult(
            best=best,
            estimated=tuple(
                candidate
                for candidate in estimates
                if best is not None
                and candidate.bill.total >= best.bill.total
                and purchase_key(candidate.offer) != purchase_key(best.offer)
            )[:estimate_count],
            rejected_offers=rejected_offers,
        )

    def _first_verified(
        self,
        requirement: ServingRequirement,
        groups: GroupSearch,
        estimates: list[ServingCandidate],
        ceiling_usd: float,
    ) -> list[ServingCandidate]:
        """Return the first of the estimated fleets that passes, with the groups that takes.

        Where its own groups do not, another layout of the same cost comes before more of them.
        """
        for estimate in estimates:
            usd = float(estimate.bill.total + TIE_USD)
            own_option, *others = self._as_cheap(requirement, estimate)
            for option, limit_usd in (
                (own_option, usd),
                *((other, usd) for other in others),
                (own_option, ceiling_usd),
            ):
                verified = obtainable(
                    requirement,
                    estimate.offer,
                    groups.fewest(
                        estimate.offer,
                        option,
                        min(limit_usd, ceiling_usd),
                        tells_why=False,
                    ),
                )
                if verified is None:
                    continue
                found = self.bought(requirement, estimate.offer, verified)
                if isinstance(found, ServingCandidate):
                    return [found]
        return []

    def _as_cheap(
        self, requirement: ServingRequirement, estimate: ServingCandidate
    ) -> list[LayoutOption]:
        """Return the layouts whose fleets by formula cost as much as the best one, that first."""
        offer, best = estimate.offer, estimate.sizing
        options: list[LayoutOption] = []
        for option in self.layout_options(
            requirement, offer, (best.nodes_per_group,)
        ):
            replica, group, _ = option
            if (replica, group) == (best.replica, best.group):
                options.insert(0, option)
                continue
            sizing = self.size_layout(requirement, replica, group)
            if (
                isinstance(sizing, FleetSizing)
                and self.bill(requirement, sizing, offer).total
                <= estimate.bill.total
            ):
                options.append(option)
        return options

    def _best_first(
        self,
        requirement: ServingRequirement,
        offers: list[Offer],
        size_option: _Sizer,
        *,
        result_count: int,
        ceiling_usd: float,
        known_candidates: Iterable[ServingCandidate] = (),
    ) -> tuple[list[ServingCandidate], tuple[ServingRejection, ...]]:
        """Run the best-first search over offers and their layouts.

        Returns the cheapest fleets, one of each machine type and purchase, and the offers
        without one. `known_candidates` are fleets to begin with.
        The entry with the least bound is next: an offer is expanded, a layout is sized.
        """
        frontier = _offer_frontier(requirement, offers, self.markup)
        rejected_layouts: list[RejectedLayout] = []
        best = BestFleets(result_count, ceiling_usd, known_candidates)
        while (taken := frontier.take(best.cutoff_usd)) is not None:
            bound_usd, (offer, group_sizes, layout_option) = taken
            if layout_option is None:
                self._push_layouts(requirement, offer, group_sizes, frontier)
                continue
            limit_usd = best.limit_usd(offer, layout_option[0].layout)
            if bound_usd > limit_usd:
                continue
            outcome = beyond_reach(
                requirement, offer, layout_option
            ) or obtainable(
                requirement, offer, size_option(offer, layout_option, limit_usd)
            )
            if outcome is None:
                continue
            candidate = self.bought(requirement, offer, outcome)
            if isinstance(candidate, LayoutRejection):
                rejected_layouts.append(
                    self._rejected(requirement, offer, layout_option, candidate)
                    if candidate.groups
                    else (
                        bound_usd,
                        offer,
                        candidate,
                        bound_nodes(layout_option),
                    )
                )
                continue
            best.keep(candidate)
        return best.ranked(), offer_rejections(
            rejected_layouts, best.by_purchase
        )

    def bought(
        self,
        requirement: ServingRequirement,
        offer: Offer,
        outcome: FleetSizing | LayoutRejection,
    ) -> ServingCandidate | LayoutRejection:
        """Return a fleet with its bill, or what keeps it from being had; a quota may be that."""
        if isinstance(outcome, LayoutRejection):
            return outcome
        candidate = self._candidate(requirement, offer, outcome)
        return (
            beyond_quota(requirement, candidate.sizing, candidate.bought)
            or candidate
        )

    def _candidate(
        self, requirement: ServingRequirement, offer: Offer, sizing: FleetSizing
    ) -> ServingCandidate:
        """Return a fleet with its bill; a batch that runs once may take more groups."""

        def bill_of(fleet: FleetSizing) -> Bill:
            return self.bill(requirement, fleet, offer)

        runs_once = requirement.mode == "batch" and not requirement.runs_daily
        if runs_once:
            sizing = cheapest_run(requirement, offer, sizing, bill_of)
        sizing, bought = settled_fleet(
            requirement, sizing, offer, self.price_book
        )
        return ServingCandidate(
            offer=offer,
            bought=bought,
            sizing=sizing,
            bill=bought_bill(requirement, sizing, bought, self.price_book),
        )

    def _rejected(
        self,
        requirement: ServingRequirement,
        offer: Offer,
        layout_option: LayoutOption,
        rejection: LayoutRejection,
    ) -> RejectedLayout:
        """Return a rejected number of groups with its cost and its nodes."""
        replica, group, _ = layout_option
        fleet = sized_fleet(requirement, replica, group, rejection.groups or 1)
        usd = float(self.bill(requirement, fleet, offer).total)
        return usd, offer, rejection, fleet.nodes

    def _push_layouts(
        self,
        requirement: ServingRequirement,
        offer: Offer,
        group_sizes: tuple[int, ...],
        frontier: Frontier[_SearchEntry],
    ) -> None:
        """Let the layouts of an offer take its place."""
        layout_options = self.layout_options(requirement, offer, group_sizes)
        for option, option_usd in zip(
            layout_options,
            layout_bounds_usd(requirement, offer, layout_options),
            strict=True,
        ):
            frontier.push(option_usd, (offer, group_sizes, option), offer.key)

    def same_fleet(
        self, requirement: ServingRequirement, candidate: ServingCandidate
    ) -> FleetSizing:
        """Return the fleet of a candidate, as slow as another requirement asks."""
        sizing = candidate.sizing
        replica = self.shared_replica(
            requirement, sizing.layout, sizing.replica.node
        )
        return sized_fleet(
            requirement, replica, sizing.group, sizing.peak_groups
        )

    def kept_seconds(
        self,
        requirement: ServingRequirement,
        limit: LatencyLimit,
        candidate: ServingCandidate,
    ) -> Decimal:
        """Return a value of a limit that a fleet keeps, as slow as all limits ask for."""
        reached = self.judge.reached(
            requirement, self.same_fleet(requirement, candidate), limit
        )
        return figures.printed_seconds(reached.high_s)

    def bill(
        self, requirement: ServingRequirement, sizing: FleetSizing, offer: Offer
    ) -> Bill:
        """Return the monthly bill of a fleet bought through an offer."""
        return serving_bill(requirement, sizing, offer, self.price_book)

    def layout_options(
        self,
        requirement: ServingRequirement,
        offer: Offer,
        group_sizes: tuple[int, ...],
    ) -> list[LayoutOption]:
        """Return each layout on a kind of node with its group bound."""
        return self.node_options(
            requirement,
            offer.instance.node,
            counted_zones(requirement, offer),
            group_sizes,
        )

    def node_options(
        self,
        requirement: ServingRequirement,
        node: Node,
        zones: int,
        group_sizes: tuple[int, ...],
    ) -> list[LayoutOption]:
        """Return each layout on nodes that are spread over some zones, with its group bound."""
        cached_options = self._cache_for(requirement).layout_options
        # Precisions are in the key: a relaxation may add one.
        cache_key = (
            node,
            zones,
            group_sizes,
            requirement.precisions,
            requirement.kv_precisions,
        )
        if cache_key not in cached_options:
            cached_options[cache_key] = [
                self._layout_option(
                    requirement,
                    layout,
                    node,
                    # The nodes of a group are close to each other.
                    replica_group(layout, node, nodes_per_group, zones)
                    if nodes_per_group == 1
                    else replica_group(layout, node, nodes_per_group),
                )
                for nodes_per_group in group_sizes
                for layout in serving_layouts(
                    requirement.llm, requirement, node, nodes_per_group
                )
            ]
        return cached_options[cache_key]

    def _layout_option(
        self,
        requirement: ServingRequirement,
        layout: ReplicaLayout,
        node: Node,
        group: ReplicaGroup,
    ) -> LayoutOption:
        replica = self.shared_replica(requirement, layout, node)
        # 0: the model does not fit, with any number of groups.
        if not replica.max_batch:
            return replica, group, math.inf
        return replica, group, group_lower_bound(requirement, replica, group)

    def one_node_replicas(
        self, requirement: ServingRequirement, offer: Offer
    ) -> Iterator[tuple[Replica, ReplicaGroup]]:
        """Yield the layouts of one node of an offer, as (replica, group of 1 node)."""
        node = offer.instance.node
        for layout in serving_layouts(requirement.llm, requirement, node, 1):
            yield (
                self.shared_replica(requirement, layout, node),
                replica_group(
                    layout, node, 1, counted_zones(requirement, offer)
                ),
            )

    def size_layout(
        self,
        requirement: ServingRequirement,
        replica: Replica,
        group: ReplicaGroup,
    ) -> FleetSizing | LayoutRejection:
        """Return the sizing of a replica, computed once for each requirement."""
        cached_sizings = self._cache_for(requirement).sizing_results
        sizing_result = cached_sizings.get((replica, group))
        if sizing_result is None:
            sizing_result = cached_sizings[replica, group] = size_fleet(
                requirement, replica, group
            )
        return sizing_result

    def shared_replica(
        self,
        requirement: ServingRequirement,
        layout: ReplicaLayout,
        node: Node,
    ) -> Replica:
        """Return the replica of a layout on a node; equal hardware shares one.

        A replica depends on the model, on lengths and on the variation of arrivals, not on
        their rate.
        """
        cache_key = (_hardware_key(node, layout), layout)
        cached_replicas = self._cache_for(requirement).replicas.setdefault(
            cache_key, {}
        )
        confidence_key = (requirement.confidence, requirement.metrics)
        replica = cached_replicas.get(confidence_key)
        if replica is None:
            replica = cached_replicas[confidence_key] = Replica(
                requirement.llm,
                layout,
                node,
                requirement.load.shape,
                requirement.confidence,
                metrics=requirement.metrics,
            )
        return replica

    def _cache_for(self, requirement: ServingRequirement) -> _RequirementCache:
        """Return the cache of a requirement; repeated lookups of one are fast."""
        if requirement is not self._last_requirement:
            self._last_requirement = requirement
            load_shape = requirement.load.shape
            if len(self._replicas_by_shape) >= MOST_SHAPES:
                self._forget()
            replicas = self._replicas_by_shape.setdefault(
                (requirement.llm, load_shape), {}
            )
            self._current_cache = self._caches.setdefault(
                requirement, _RequirementCache({}, {}, replicas)
            )
        return self._current_cache

    def _forget(self) -> None:
        """Drop what is remembered of other requirements, with their simulated runs."""
        self._caches.clear()
        self._replicas_by_shape.clear()
        self.judge = FleetJudge()


def _hardware_key(node: Node, layout: ReplicaLayout) -> HardwareKey:
    # A replica within one node sends nothing over the network, and has no use for
    # accelerators that are not its own.
    spans_nodes = layout.accelerators > node.accelerator_count
    return (
        # All inputs of memory and step time that a node has.
        node.accelerator.accelerator,
        node.memory_gib,
        node.compute_fraction,
        node.scaleup_link,
        (node.network_gb_s, node.accelerator_count) if spans_nodes else None,
    )


def _offer_frontier(
    requirement: ServingRequirement, offers: list[Offer], markup: float
) -> Frontier[_SearchEntry]:
    """Return the offers by their bounds, for replicas on one node and on several."""
    frontier: Frontier[_SearchEntry] = Frontier(markup)
    for offer in offers:
        bound_usd = offer_bound_usd(requirement, offer)
        frontier.push(bound_usd, (offer, ONE_NODE, None), offer.key)
        # Nodes of a group need a fabric between them.
        if offer.instance.fabric != "none":
            frontier.push(
                min(MULTI_NODE_SIZES) * bound_usd,
                (offer, MULTI_NODE_SIZES, None),
                offer.key,
            )
    return frontier

"""Exact best-first search for the cheapest serving fleet.

Every layout on every machine type is a candidate, in the cheapest region of each type. An entry
of the frontier is an offer or a layout on an offer, with bound <= cost of each of its fleets.
"""

from __future__ import annotations

import math
from decimal import Decimal
from typing import TYPE_CHECKING, Final, TypeAlias

from msgspec import Struct

from planner.frontier import Frontier
from planner.perf.serving.replica import Replica
from planner.solve.serving.bill import serving_bill
from planner.solve.serving.cost_bound import (
    bound_nodes,
    layout_bounds_usd,
    offer_bound_usd,
)
from planner.solve.serving.rejection import offer_rejections
from planner.solve.serving.sizing import (
    MULTI_NODE_SIZES,
    FleetSizing,
    LayoutRejection,
    ReplicaGroup,
    group_lower_bound,
    replica_group,
    serving_layouts,
    size_fleet,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from planner.cost.bill import Bill
    from planner.cost.service_price import PriceBook
    from planner.facts.llm import Llm
    from planner.market.offer import Offer
    from planner.perf.common.layout import Node, ReplicaLayout
    from planner.perf.serving.load import ServingLoad
    from planner.solve.serving.cost_bound import LayoutOption
    from planner.solve.serving.rejection import (
        RejectedLayout,
        ServingRejection,
    )
    from planner.solve.serving.requirement import ServingRequirement

# Chip, its memory and share of compute, its links, and the network between nodes.
HardwareKey: TypeAlias = "tuple[str, float, float, str, float | None]"
ReplicaCache: TypeAlias = (
    "dict[tuple[HardwareKey, ReplicaLayout], dict[float, Replica]]"
)
# All layouts of an offer, or one of them.
_SearchEntry: TypeAlias = "tuple[Offer, LayoutOption | None]"
TIE_USD: Final = Decimal("0.005")


class ServingCandidate(Struct, frozen=True, kw_only=True):
    """A sized fleet on an offer, with its monthly bill."""

    offer: Offer
    sizing: FleetSizing
    bill: Bill

    @property
    def rank(
        self,
    ) -> tuple[Decimal, int, int, int, int, tuple[str, str, str, str]]:
        """Sort key in the documented order of ties.

        Cost, nodes, accelerators of a replica, pipeline stages, ep, names of the offer.
        """
        layout = self.sizing.layout
        tie_breakers = (layout.accelerators, layout.pp, layout.ep)
        return (
            self.bill.total,
            self.sizing.nodes,
            *tie_breakers,
            self.offer.key,
        )


class ServingResult(Struct, frozen=True, kw_only=True):
    """The cheapest fleets, and the offers without one.

    `candidates`  in rank order, one region for each machine type and purchase option
    `rejected_offers`  by cost bound, one for each machine type and purchase option
    """

    candidates: tuple[ServingCandidate, ...]
    rejected_offers: tuple[ServingRejection, ...]


class _RequirementCache(Struct, frozen=True):
    """Results that are cached for one requirement.

    `sizing_results`  sizing by replica and group
    `layout_options`  layouts with their bounds by node, group sizes and precisions
    `replicas`        replicas by hardware and layout, then by confidence: those of every
                      requirement with the same model and lengths
    """

    sizing_results: dict[
        tuple[Replica, ReplicaGroup], FleetSizing | LayoutRejection
    ]
    layout_options: dict[
        tuple[Node, tuple[int, ...], tuple[str, ...]], list[LayoutOption]
    ]
    replicas: ReplicaCache


class ServingSearch:
    """Searches offers for the cheapest fleets, and caches replicas and sizings.

    Requirements may differ in anything: what is shared is looked up by all that it depends on.
    """

    def __init__(self, price_book: PriceBook) -> None:
        self.price_book = price_book
        self._replicas_by_shape: dict[
            tuple[Llm, ServingLoad], ReplicaCache
        ] = {}
        self._caches: dict[tuple[object, ...], _RequirementCache] = {}
        self._last_requirement: ServingRequirement | None = None
        self._current_cache = _RequirementCache({}, {}, {})

    def solve(
        self,
        requirement: ServingRequirement,
        offers: list[Offer],
        result_count: int = 1,
    ) -> ServingResult:
        """Return the cheapest fleets, one region of each machine type.

        Replicas on one node come first. Replicas over several nodes are searched only when no
        single-node fleet meets the requirement.
        """
        single_node_result = self._best_first(
            requirement, offers, result_count, (1,)
        )
        # Several nodes per replica only when one node cannot hold it.
        if single_node_result.candidates:
            return single_node_result
        multi_node_result = self._best_first(
            requirement, offers, result_count, MULTI_NODE_SIZES
        )
        return (
            multi_node_result
            if multi_node_result.candidates
            else single_node_result
        )

    def _best_first(
        self,
        requirement: ServingRequirement,
        offers: list[Offer],
        result_count: int,
        group_sizes: tuple[int, ...],
    ) -> ServingResult:
        """Run the best-first search over offers and their layouts.

        The entry with the least bound is next: an offer is expanded, a layout is sized.
        The cutoff is the cost of the `result_count`-th best fleet + 0.005 USD.
        """
        frontier: Frontier[_SearchEntry] = Frontier()
        for offer in offers:
            # Nodes of a group need a fabric between them.
            if group_sizes == (1,) or offer.instance.fabric != "none":
                bound_usd = offer_bound_usd(requirement, offer)
                frontier.push(bound_usd, (offer, None), offer.key)
        rejected_layouts: list[RejectedLayout] = []
        best_candidates: dict[tuple[str, str, str], ServingCandidate] = {}
        cutoff_usd = math.inf
        while (taken := frontier.take(cutoff_usd)) is not None:
            bound_usd, (offer, layout_option) = taken
            # An offer that is not expanded yet: its layouts take its place.
            if layout_option is None:
                layout_options = self._layout_options(
                    requirement, offer.instance.node, group_sizes
                )
                offer_key = offer.key
                for option, option_usd in zip(
                    layout_options,
                    layout_bounds_usd(requirement, offer, layout_options),
                    strict=True,
                ):
                    frontier.push(option_usd, (offer, option), offer_key)
                continue
            # Sizing is the expensive step, so the cheapest bound goes first.
            sizing_result = self.size_layout(
                requirement, layout_option[0], layout_option[1]
            )
            if isinstance(sizing_result, LayoutRejection):
                node_count = bound_nodes(layout_option)
                rejected_layouts.append(
                    (bound_usd, offer, sizing_result, node_count)
                )
                continue
            candidate = ServingCandidate(
                offer=offer,
                sizing=sizing_result,
                bill=self.bill(requirement, sizing_result, offer),
            )
            _keep_cheaper(best_candidates, candidate)
            cutoff_usd = _cutoff_usd(best_candidates, result_count)
        ranked_candidates = sorted(
            best_candidates.values(), key=lambda candidate: candidate.rank
        )
        return ServingResult(
            candidates=tuple(ranked_candidates[:result_count]),
            rejected_offers=offer_rejections(rejected_layouts, best_candidates),
        )

    def bill(
        self, requirement: ServingRequirement, sizing: FleetSizing, offer: Offer
    ) -> Bill:
        """Return the monthly bill of a fleet bought through an offer."""
        return serving_bill(requirement, sizing, offer, self.price_book)

    def _layout_options(
        self,
        requirement: ServingRequirement,
        node: Node,
        group_sizes: tuple[int, ...],
    ) -> list[LayoutOption]:
        """Return each layout on a kind of node with its group bound."""
        cached_options = self._cache_for(requirement).layout_options
        # Precisions are in the key: a relaxation may add one.
        cache_key = (node, group_sizes, requirement.precisions)
        if cache_key not in cached_options:
            cached_options[cache_key] = [
                self._layout_option(requirement, layout, node, nodes_per_group)
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
        nodes_per_group: int,
    ) -> LayoutOption:
        replica = self.shared_replica(requirement, layout, node)
        group = replica_group(layout, node, nodes_per_group)
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
                replica_group(layout, node, 1),
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
        replica = cached_replicas.get(requirement.confidence.level)
        if replica is None:
            # Step times do not depend on the confidence; only margins do.
            similar_replica = next(iter(cached_replicas.values()), None)
            replica = cached_replicas[requirement.confidence.level] = (
                similar_replica.with_confidence(requirement.confidence.level)
                if similar_replica
                else Replica(
                    requirement.llm,
                    layout,
                    node,
                    requirement.load,
                    requirement.confidence,
                )
            )
        return replica

    def _cache_for(self, requirement: ServingRequirement) -> _RequirementCache:
        """Return the cache of a requirement; repeated lookups of one are fast."""
        if requirement is not self._last_requirement:
            self._last_requirement = requirement
            load_shape = requirement.load.shape
            replicas = self._replicas_by_shape.setdefault(
                (requirement.llm, load_shape), {}
            )
            self._current_cache = self._caches.setdefault(
                (requirement.llm, load_shape, *_requirement_key(requirement)),
                _RequirementCache({}, {}, replicas),
            )
        return self._current_cache


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
        node.network_gb_s if spans_nodes else None,
    )


def _requirement_key(requirement: ServingRequirement) -> tuple[object, ...]:
    return (
        # All inputs of sizing that differ between requirements.
        requirement.mode,
        requirement.limits,
        requirement.load.rate_per_s,
        requirement.load.concurrency,
        requirement.availability,
        requirement.request_count,
        requirement.deadline_s,
        requirement.confidence.level,
    )


def _keep_cheaper(
    best_candidates: dict[tuple[str, str, str], ServingCandidate],
    candidate: ServingCandidate,
) -> None:
    """Store a candidate if it ranks first for its machine type and purchase option."""
    offer = candidate.offer
    purchase_key = (
        offer.provider,
        offer.instance.instance_type,
        offer.purchase,
    )
    if (
        purchase_key not in best_candidates
        or candidate.rank < best_candidates[purchase_key].rank
    ):
        best_candidates[purchase_key] = candidate


def _cutoff_usd(
    best_candidates: dict[tuple[str, str, str], ServingCandidate],
    result_count: int,
) -> float:
    """Return the cost of the `result_count`-th best fleet + 0.005 USD, else infinity."""
    cutoff_costs = sorted(
        candidate.bill.total for candidate in best_candidates.values()
    )[result_count - 1 : result_count]
    return (
        # A bill is rounded to the cent: it may lie half a cent below its bound.
        float(cutoff_costs[0] + TIE_USD) if cutoff_costs else math.inf
    )

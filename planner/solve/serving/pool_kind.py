"""What the pools of a fleet of two machine types may be, and which two go together."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Final, TypeAlias

from msgspec import Struct

from planner.solve.serving.cost_bound import (
    layout_bounds_usd,
    offer_bound_usd,
)
from planner.solve.serving.mixed_fleet import PoolKind
from planner.solve.serving.replica_capacity import ReplicaCapacity
from planner.solve.serving.sizing import (
    MULTI_NODE_SIZES,
    ONE_NODE,
    SCREEN_FACTOR,
    idle_rejection,
    unfit_rejection,
)
from planner.solve.serving.spare_groups import counted_zones
from planner.solve.serving.spot_promise import has_promise

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from planner.market.offer import Offer
    from planner.perf.common.layout import Node
    from planner.perf.serving.replica import Replica
    from planner.solve.serving.requirement import ServingRequirement
    from planner.solve.serving.search import ServingSearch
    from planner.solve.serving.sizing import ReplicaGroup

# More than any fleet has.
MANY_GROUPS: Final = 1e6
# A replica on a node, and the unit in which it scales.
_Layout: TypeAlias = "tuple[Replica, ReplicaGroup]"
# Prices of a machine of each of two offers, and the offers.
_PricedPair: TypeAlias = "tuple[tuple[float, float], tuple[Offer, Offer]]"


class CostFloor(Struct, frozen=True):
    """What groups cost at least: `fixed_usd` + groups * `group_usd`, USD in the period.

    Of what is owned the fixed part is below zero.
    """

    fixed_usd: float
    group_usd: float


class PoolKinds:
    """Kinds of pools for one requirement, and bounds of what their groups carry and cost."""

    def __init__(
        self, requirement: ServingRequirement, search: ServingSearch
    ) -> None:
        self._requirement = requirement
        self._search = search
        self._rate_rps = requirement.load.rate_per_s
        self._capacity = ReplicaCapacity(requirement, search.judge)
        # Upper bounds by formula, requests/s of a replica.
        self._most_rps: dict[_Layout, float] = {}
        self._kinds: dict[Offer, tuple[PoolKind, ...]] = {}
        self._layouts: dict[tuple[Node, int, bool], list[_Layout]] = {}
        self._bounds_usd: dict[tuple[PoolKind, float], float] = {}
        self._cost_floors: dict[PoolKind, CostFloor] = {}

    def usable(
        self, offers: Iterable[Offer], ceiling_usd: float
    ) -> Iterator[tuple[float, Offer]]:
        """Yield the offers of which a pool below a ceiling may be, with what one costs at least.

        No promise hangs on their reclaims.
        """
        for offer in offers:
            if has_promise(self._requirement, offer):
                continue
            # Layouts take time, and no machine is cheaper with one of them.
            if offer_bound_usd(self._requirement, offer) >= ceiling_usd:
                continue
            least_usd = min(
                (self.bound_usd(kind, 1) for kind in self.of(offer)),
                default=math.inf,
            )
            if least_usd < ceiling_usd:
                yield least_usd, offer

    def least_usd(self, offers: Iterable[Offer]) -> float:
        """Return a lower bound of the machines that carry all requests, USD in the period.

        They are of one kind. It is infinite where no kind may carry them.
        """
        least_usd = math.inf
        ordered = sorted(
            offers,
            key=lambda offer: offer_bound_usd(self._requirement, offer),
        )
        for offer in ordered:
            # Layouts take time, and no machine is cheaper with one of them.
            if offer_bound_usd(self._requirement, offer) >= least_usd:
                break
            for kind in self.of(offer):
                group_rps = self.most_rps(kind) * kind.group.replicas
                usd = self.bound_usd(kind, self._rate_rps / group_rps)
                least_usd = min(least_usd, usd)
        return least_usd

    def of(self, offer: Offer) -> tuple[PoolKind, ...]:
        """Return the layouts on an offer that a simulation may confirm."""
        if offer not in self._kinds:
            self._kinds[offer] = tuple(
                [
                    PoolKind(offer, replica, group)
                    for replica, group in self._fit_layouts(offer)
                ]
            )
        return self._kinds[offer]

    def _fit_layouts(self, offer: Offer) -> list[_Layout]:
        """Return the layouts that formulas do not rule out; offers of one node share them."""
        instance = offer.instance
        has_fabric = instance.fabric != "none"
        key = (
            instance.node,
            counted_zones(self._requirement, offer),
            has_fabric,
        )
        if key not in self._layouts:
            self._layouts[key] = []
            sizes = (ONE_NODE, MULTI_NODE_SIZES) if has_fabric else (ONE_NODE,)
            for replica, group, group_bound in itertools.chain.from_iterable(
                self._search.layout_options(self._requirement, offer, size)
                for size in sizes
            ):
                # By the formulas no number of groups is enough.
                if (
                    group_bound == math.inf
                    or unfit_rejection(self._requirement, replica, group)
                    or idle_rejection(self._requirement, replica, SCREEN_FACTOR)
                ):
                    continue
                self._layouts[key].append((replica, group))
                self._most_rps[replica, group] = self._rate_rps / (
                    group_bound * group.replicas
                )
        return self._layouts[key]

    def most_rps(self, kind: PoolKind) -> float:
        """Return what a replica of a kind carries at most by formulas, requests/s."""
        return self._most_rps[kind.replica, kind.group]

    def group_rps(self, kind: PoolKind) -> tuple[float, float]:
        """Return the bounds of what a group carries, requests/s."""
        bounds = self._capacity.bounds(kind.replica, self.most_rps(kind))
        replicas = kind.group.replicas
        return bounds.low_rps * replicas, bounds.high_rps * replicas

    def refine(self, kind: PoolKind, group_rps: float) -> None:
        """Simulate a replica of a group that gets so many requests/s."""
        self._capacity.refine(kind.replica, group_rps / kind.group.replicas)

    def is_open(self, kind: PoolKind) -> bool:
        """Return whether more can be learned of what a group carries."""
        return self._capacity.is_open(kind.replica)

    def halve(self, kind: PoolKind) -> None:
        """Halve the distance of the bounds of what a group carries."""
        self._capacity.halve(kind.replica)

    def bound_usd(self, kind: PoolKind, groups: float) -> float:
        """Return a lower bound of the cost of some groups, USD in the period."""
        key = (kind, groups)
        if key not in self._bounds_usd:
            [self._bounds_usd[key]] = layout_bounds_usd(
                self._requirement,
                kind.offer,
                [(kind.replica, kind.group, groups)],
            )
        return self._bounds_usd[key]

    def cost_floor(self, kind: PoolKind) -> CostFloor:
        """Return a line below the cost of any number of groups.

        Their lower bounds are convex, so that none is below the line through two large ones.
        """
        if kind not in self._cost_floors:
            many_usd, more_usd = layout_bounds_usd(
                self._requirement,
                kind.offer,
                [
                    (kind.replica, kind.group, groups)
                    for groups in (MANY_GROUPS, 2 * MANY_GROUPS)
                ],
            )
            self._cost_floors[kind] = CostFloor(
                fixed_usd=2 * many_usd - more_usd,
                group_usd=(more_usd - many_usd) / MANY_GROUPS,
            )
        return self._cost_floors[kind]


def offer_pairs(
    offers: Iterable[tuple[float, Offer]], ceiling_usd: float
) -> Iterator[tuple[Offer, Offer]]:
    """Yield two offers of different machine types in one region, without dominated regions.

    Each comes with what a pool of it costs at least: together they stay below a ceiling. Where
    both cost as much or more than in another region, and the account has as much of both there,
    nothing is gained.
    """
    regions: dict[tuple[str, str], list[tuple[float, Offer]]] = {}
    for priced in offers:
        place = (priced[1].provider, priced[1].region)
        regions.setdefault(place, []).append(priced)
    found: dict[tuple[int, int], list[_PricedPair]] = {}
    # Numbers of what may take the place of each other, which compare faster.
    likenesses: dict[tuple[object, ...], int] = {}
    # Of regions with the same prices the one that the spec lists first.
    for regional_offers in sorted(regions.values(), key=_region_order):
        numbered = [
            (
                usd,
                offer,
                likenesses.setdefault(_likeness(offer), len(likenesses)),
            )
            for usd, offer in sorted(
                regional_offers, key=lambda priced: priced[1].key
            )
        ]
        for first_of, second_of in itertools.combinations(numbered, 2):
            first_usd, first, first_number = first_of
            second_usd, second, second_number = second_of
            if first_usd + second_usd >= ceiling_usd:
                continue
            is_owned_twice = first.owned_nodes and second.owned_nodes
            if (
                first.instance.instance_type != second.instance.instance_type
                # One commitment may be to both types, and counts once.
                and not is_owned_twice
            ):
                kept = found.setdefault((first_number, second_number), [])
                _keep_undominated(kept, first, second)
    for priced_pairs in found.values():
        for _, pair in priced_pairs:
            yield pair


def _region_order(
    offers: list[tuple[float, Offer]],
) -> tuple[tuple[int, int], str, str]:
    _, first = offers[0]
    return first.place_rank, first.provider, first.region


def _likeness(offer: Offer) -> tuple[object, ...]:
    """Return what is equal of two offers when the price alone tells which one is better."""
    return (
        offer.provider,
        offer.instance.instance_type,
        offer.purchase,
        offer.owned_nodes,
        offer.quotas,
        offer.reservation,
        # Where a zone may fail, more of them need fewer spares.
        offer.zone_count(together=False),
    )


def _keep_undominated(
    kept: list[_PricedPair], first: Offer, second: Offer
) -> None:
    """Add a pair unless another region sells both for no more; drop those that it beats."""
    prices = (float(first.usd_hour), float(second.usd_hour))
    if any(
        known[0] <= prices[0] and known[1] <= prices[1] for known, _ in kept
    ):
        return
    kept[:] = [
        (known, pair)
        for known, pair in kept
        if not (prices[0] <= known[0] and prices[1] <= known[1])
    ]
    kept.append((prices, (first, second)))

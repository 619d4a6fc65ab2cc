"""Exact search for the cheapest fleet of two machine types in one region.

What a replica carries does not depend on its neighbours, so a fleet is two numbers of groups:

    groups * requests/s of a group, summed over both pools >= requests/s at the peak

Bounds of what a replica carries come from formulas, and are drawn closer by simulation only where
a cheaper fleet depends on them. The last word on a fleet is its own simulation.
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, TypeAlias

from planner.frontier import Frontier
from planner.solve.serving.cost_bound import (
    layout_bounds_usd,
    offer_bound_usd,
)
from planner.solve.serving.mixed_fleet import (
    MixedFleet,
    PoolCount,
    PoolKind,
    keeps_limits,
    may_be_had,
    mixed_fleet,
)
from planner.solve.serving.pool_split import PoolBounds, telling_rate
from planner.solve.serving.replica_capacity import (
    CLOSE_SHARE,
    SAME_SHARE,
    ReplicaCapacity,
    groups_for,
)
from planner.solve.serving.sizing import (
    MULTI_NODE_SIZES,
    ONE_NODE,
    SCREEN_FACTOR,
    idle_rejection,
    unfit_rejection,
)
from planner.solve.serving.spot_promise import has_promise

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from planner.market.offer import Offer
    from planner.perf.serving.replica import Replica
    from planner.solve.serving.requirement import ServingRequirement
    from planner.solve.serving.search import ServingSearch
    from planner.solve.serving.sizing import ReplicaGroup

# Two kinds of pools, and their groups.
_Fleet: TypeAlias = "tuple[tuple[PoolKind, PoolKind], tuple[int, int]]"
# The same, and whether the cost is that of the fleet or a bound of it.
_Entry: TypeAlias = "tuple[tuple[PoolKind, PoolKind], tuple[int, int], bool]"
# Prices of a machine of each of two offers, and the offers.
_PricedPair: TypeAlias = "tuple[tuple[float, float], tuple[Offer, Offer]]"


class MixedSearch:
    """Searches pairs of pools for one requirement."""

    def __init__(
        self, requirement: ServingRequirement, search: ServingSearch
    ) -> None:
        self._requirement = requirement
        self._search = search
        self._rate_rps = requirement.load.rate_per_s
        self._capacity = ReplicaCapacity(requirement, search.judge)
        # Upper bounds by formula, requests/s of a replica.
        self._first_high: dict[PoolKind, float] = {}
        self._kinds: dict[Offer, tuple[PoolKind, ...]] = {}
        self._unfit: dict[tuple[Replica, ReplicaGroup], bool] = {}
        self._bounds_usd: dict[tuple[PoolKind, int], float] = {}
        self._totals_usd: dict[_Fleet, float] = {}
        # Fleets that were added, with a bound of their cost, by each of their kinds.
        self._fleets: dict[PoolKind, dict[_Fleet, float]] = {}

    def cheapest(
        self, offers: Iterable[Offer], ceiling_usd: float
    ) -> MixedFleet | None:
        """Return the cheapest fleet of two types that costs less than a ceiling, if there is one.

        USD in the period of the bill.
        """
        frontier: Frontier[_Entry] = Frontier()
        for pair in _pairs(self._usable(offers, ceiling_usd), ceiling_usd):
            self._push_pair(frontier, pair, ceiling_usd)
        best: MixedFleet | None = None
        while (taken := frontier.take(ceiling_usd)) is not None:
            usd, (kinds, groups, is_exact) = taken
            if not is_exact:
                self._push(frontier, kinds, groups, is_exact=True)
                continue
            if usd >= ceiling_usd:
                continue
            if self._needed_groups(kinds, groups[0]) > groups[1]:
                self._push_more(frontier, kinds, groups, ceiling_usd)
                continue
            if self._is_open(kinds, groups):
                if self._ask(kinds, groups, ceiling_usd):
                    self._push(frontier, kinds, groups, is_exact=True)
                else:
                    self._push_more(frontier, kinds, groups, ceiling_usd)
                continue
            carried_rps = [self._group_rps(kind)[0] for kind in kinds]
            fleet = self._fleet(kinds, groups, carried_rps)
            if not may_be_had(fleet.pools):
                continue
            if keeps_limits(fleet, self._search.judge):
                best, ceiling_usd = fleet, float(fleet.bill.total)
            elif self._halve(kinds):
                self._push(frontier, kinds, groups, is_exact=True)
            else:
                self._push_more(frontier, kinds, groups, ceiling_usd)
        return best

    def _usable(
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
                (self._bound_usd(kind, 1) for kind in self._kinds_of(offer)),
                default=math.inf,
            )
            if least_usd < ceiling_usd:
                yield least_usd, offer

    def _kinds_of(self, offer: Offer) -> tuple[PoolKind, ...]:
        """Return the layouts on an offer that a simulation may confirm."""
        if offer not in self._kinds:
            self._kinds[offer] = tuple(self._find_kinds(offer))
        return self._kinds[offer]

    def _find_kinds(self, offer: Offer) -> Iterator[PoolKind]:
        sizes: list[tuple[int, ...]] = [ONE_NODE]
        if offer.instance.fabric != "none":
            sizes.append(MULTI_NODE_SIZES)
        for replica, group, group_bound in itertools.chain.from_iterable(
            self._search.layout_options(self._requirement, offer, size)
            for size in sizes
        ):
            if group_bound == math.inf or self._is_unfit(replica, group):
                continue
            kind = PoolKind(offer, replica, group)
            self._first_high[kind] = self._rate_rps / (
                group_bound * group.replicas
            )
            yield kind

    def _is_unfit(self, replica: Replica, group: ReplicaGroup) -> bool:
        """Whether formulas tell that no number of groups will do; offers share their replicas."""
        key = (replica, group)
        if key not in self._unfit:
            self._unfit[key] = bool(
                unfit_rejection(self._requirement, replica, group)
                or idle_rejection(self._requirement, replica, SCREEN_FACTOR)
            )
        return self._unfit[key]

    def _push_pair(
        self,
        frontier: Frontier[_Entry],
        pair: tuple[Offer, Offer],
        ceiling_usd: float,
    ) -> None:
        """Add the fleets of two offers that may cost less than a ceiling.

        For each number of groups of one kind the fewest of the other are enough.
        """
        first_offer, second_offer = pair
        for first, second in itertools.product(
            self._kinds_of(first_offer), self._kinds_of(second_offer)
        ):
            if not _answers_alike(first, second):
                continue
            self._push_chain(frontier, (first, second), 1, ceiling_usd)

    def _push_chain(
        self,
        frontier: Frontier[_Entry],
        kinds: tuple[PoolKind, PoolKind],
        least_groups: int,
        ceiling_usd: float,
    ) -> None:
        """Add the fleets with so many groups of the first kind and more, below a ceiling."""
        first, second = kinds
        one_usd = self._bound_usd(second, 1)
        for first_groups in itertools.count(least_groups):
            if self._bound_usd(first, first_groups) + one_usd >= ceiling_usd:
                return
            second_groups = self._push_fewest(frontier, kinds, first_groups)
            # Beside one of the second kind more of the first serve nothing.
            if second_groups <= 1 or second_groups == math.inf:
                return

    def _push_fewest(
        self,
        frontier: Frontier[_Entry],
        kinds: tuple[PoolKind, PoolKind],
        first_groups: int,
    ) -> float:
        """Add the fleet with the fewest groups of the second kind, and return how many."""
        second_groups = self._needed_groups(kinds, first_groups)
        if second_groups < math.inf:
            self._push(frontier, kinds, (first_groups, int(second_groups)))
        return second_groups

    def _push_more(
        self,
        frontier: Frontier[_Entry],
        kinds: tuple[PoolKind, PoolKind],
        groups: tuple[int, int],
        ceiling_usd: float,
    ) -> None:
        """Add what comes after a fleet that is not enough."""
        first_groups, second_groups = groups
        needed_groups = max(
            second_groups + 1, self._needed_groups(kinds, first_groups)
        )
        if needed_groups < math.inf:
            self._push(frontier, kinds, (first_groups, int(needed_groups)))
        if second_groups == 1:
            # Where one was thought to be enough, more of the first were not tried.
            self._push_chain(frontier, kinds, first_groups + 1, ceiling_usd)

    def _push(
        self,
        frontier: Frontier[_Entry],
        kinds: tuple[PoolKind, PoolKind],
        groups: tuple[int, int],
        *,
        is_exact: bool = False,
    ) -> None:
        usd = (
            self._total_usd(kinds, groups)
            if is_exact
            else sum(map(self._bound_usd, kinds, groups))
            * float(self._search.price_book.surcharges.factor)
        )
        for kind in kinds:
            self._fleets.setdefault(kind, {})[kinds, groups] = usd
        frontier.push(
            usd,
            (kinds, groups, is_exact),
            (
                *(kind.offer.key for kind in kinds),
                # Of layouts on the same machines first those that may carry most.
                *(-self._first_high[kind] for kind in kinds),
            ),
        )

    def _group_rps(self, kind: PoolKind) -> tuple[float, float]:
        """Return the bounds of what a group carries, requests/s."""
        bounds = self._capacity.bounds(kind.replica, self._first_high[kind])
        replicas = kind.group.replicas
        return bounds.low_rps * replicas, bounds.high_rps * replicas

    def _needed_groups(
        self, kinds: tuple[PoolKind, PoolKind], first_groups: int
    ) -> float:
        """Return the fewest groups of the second kind by what both may carry at most."""
        first_rps, second_rps = (self._group_rps(kind)[1] for kind in kinds)
        if not first_rps:
            return math.inf
        return groups_for(self._rate_rps - first_groups * first_rps, second_rps)

    def _is_open(
        self, kinds: tuple[PoolKind, PoolKind], groups: tuple[int, int]
    ) -> bool:
        """Whether groups that may be enough are not known to be."""
        carried_rps = sum(
            count * self._group_rps(kind)[0]
            for count, kind in zip(groups, kinds, strict=True)
        )
        return carried_rps < self._rate_rps * (1 - SAME_SHARE)

    def _useful_rps(self, kind: PoolKind, ceiling_usd: float) -> float:
        """Return the least that a fleet below a ceiling may ask of a group, requests/s.

        It is what the other kind leaves at most. Fleets that are too few ask for nothing.
        """
        parts_rps: list[float] = []
        for (kinds, groups), usd in self._fleets[kind].items():
            own, other = (0, 1) if kinds[0] == kind else (1, 0)
            other_rps = groups[other] * self._group_rps(kinds[other])[1]
            part_rps = (self._rate_rps - other_rps) / groups[own]
            if usd < ceiling_usd and part_rps <= self._group_rps(kind)[1]:
                parts_rps.append(max(0.0, part_rps))
        return min(parts_rps, default=math.inf)

    def _ask(
        self,
        kinds: tuple[PoolKind, PoolKind],
        groups: tuple[int, int],
        ceiling_usd: float,
    ) -> bool:
        """Simulate a replica of one kind at the rate that tells most of these groups.

        False when there is nothing to ask: they are too few, or hardly enough.
        """
        pools = [
            PoolBounds(
                count,
                *self._group_rps(kind),
                self._useful_rps(kind, ceiling_usd),
            )
            for kind, count in zip(kinds, groups, strict=True)
        ]
        question = telling_rate(pools, self._rate_rps, CLOSE_SHARE)
        if question is None:
            return False
        index, group_rps = question
        kind = kinds[index]
        self._capacity.refine(kind.replica, group_rps / kind.group.replicas)
        return True

    def _halve(self, kinds: tuple[PoolKind, PoolKind]) -> bool:
        """Learn more of both kinds, so that each pool gets its share of the room.

        Weights in whole numbers give a pool a little more than it is known to carry. False when
        all is known.
        """
        open_kinds = [
            kind for kind in kinds if self._capacity.is_open(kind.replica)
        ]
        for kind in open_kinds:
            self._capacity.halve(kind.replica)
        return bool(open_kinds)

    def _total_usd(
        self, kinds: tuple[PoolKind, PoolKind], groups: tuple[int, int]
    ) -> float:
        """Return what some groups cost with all beside the machines, USD in the period.

        Who gets which part of the requests changes nothing of it.
        """
        key = (kinds, groups)
        if key not in self._totals_usd:
            fleet = self._fleet(kinds, groups, (1.0, 1.0))
            self._totals_usd[key] = float(fleet.bill.total)
        return self._totals_usd[key]

    def _fleet(
        self,
        kinds: tuple[PoolKind, PoolKind],
        groups: tuple[int, int],
        groups_rps: Sequence[float],
    ) -> MixedFleet:
        counts = [
            PoolCount(kind, count, group_rps)
            for kind, count, group_rps in zip(
                kinds, groups, groups_rps, strict=True
            )
        ]
        return mixed_fleet(
            self._requirement,
            # The pool that carries most comes first.
            tuple(
                sorted(
                    counts,
                    key=lambda count: count.groups * count.group_rps,
                    reverse=True,
                )
            ),
            self._search.price_book,
        )

    def _bound_usd(self, kind: PoolKind, groups: int) -> float:
        """Return a lower bound of the cost of some groups, USD in the period."""
        key = (kind, groups)
        if key not in self._bounds_usd:
            [self._bounds_usd[key]] = layout_bounds_usd(
                self._requirement,
                kind.offer,
                [(kind.replica, kind.group, groups)],
            )
        return self._bounds_usd[key]


def _answers_alike(first: PoolKind, second: PoolKind) -> bool:
    """Whether a request gets the same answer from both: weights and cache have one precision."""
    layouts = (first.replica.layout, second.replica.layout)
    return len({(each.precision, each.kv_precision) for each in layouts}) == 1


def _pairs(
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
    found: dict[tuple[object, ...], list[_PricedPair]] = {}
    # Of regions with the same prices the one that the spec lists first.
    for regional_offers in sorted(regions.values(), key=_region_order):
        ordered = sorted(regional_offers, key=lambda priced: priced[1].key)
        for (first_usd, first), (second_usd, second) in itertools.combinations(
            ordered, 2
        ):
            if first_usd + second_usd >= ceiling_usd:
                continue
            is_owned_twice = first.owned_nodes and second.owned_nodes
            if (
                first.instance.instance_type != second.instance.instance_type
                # One commitment may be to both types, and counts once.
                and not is_owned_twice
            ):
                _keep_undominated(found, first, second)
    for priced_pairs in found.values():
        for _, pair in priced_pairs:
            yield pair


def _region_order(
    offers: list[tuple[float, Offer]],
) -> tuple[tuple[int, int], str, str]:
    _, first = offers[0]
    return first.place_rank, first.provider, first.region


def _keep_undominated(
    found: dict[tuple[object, ...], list[_PricedPair]],
    first: Offer,
    second: Offer,
) -> None:
    """Add a pair unless another region sells both for no more; drop those that it beats."""
    key = tuple(
        (
            offer.provider,
            offer.instance.instance_type,
            offer.purchase,
            offer.owned_nodes,
            offer.quotas,
            # Where a zone may fail, more of them need fewer spares.
            offer.zone_count(together=False),
        )
        for offer in (first, second)
    )
    prices = (float(first.usd_hour), float(second.usd_hour))
    kept = found.setdefault(key, [])
    if any(
        known[0] <= prices[0] and known[1] <= prices[1] for known, _ in kept
    ):
        return
    found[key] = [
        (known, pair)
        for known, pair in kept
        if not (prices[0] <= known[0] and prices[1] <= known[1])
    ]
    found[key].append((prices, (first, second)))

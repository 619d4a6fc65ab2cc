"""Exact search for the cheapest fleet of two machine types in one region.

What a replica carries does not depend on its neighbours, so a fleet is two numbers of groups:

    groups * requests/s of a group, summed over both pools >= requests/s at the peak

Bounds of what a replica carries come from formulas, and are drawn closer by simulation only where
a cheaper fleet depends on them. The last word on a fleet is its own simulation.
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Final, TypeAlias

from msgspec import Struct

from planner.frontier import Frontier
from planner.numeric import bisect_up
from planner.solve.serving.effort import (
    BILL_STEPS,
    LOOK_STEPS,
    SIMULATION_STEPS,
    Effort,
)
from planner.solve.serving.hour_program import WHOLE_ERROR
from planner.solve.serving.mixed_fleet import (
    MixedFleet,
    PoolCount,
    keeps_limits,
    may_be_had,
    mixed_fleet,
)
from planner.solve.serving.pool_kind import (
    PoolKinds,
    offer_pairs,
)
from planner.solve.serving.pool_split import PoolBounds, telling_rate
from planner.solve.serving.replica_capacity import (
    CLOSE_SHARE,
    SAME_SHARE,
    groups_for,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from planner.market.offer import Offer
    from planner.solve.serving.mixed_fleet import PoolKind
    from planner.solve.serving.requirement import ServingRequirement
    from planner.solve.serving.search import ServingSearch

# Bounds of what a group carries that differ by more are drawn closer before fleets are counted.
WIDE_SHARE: Final = 0.05
# Halvings of what a kind may carry, until it tells whether a pair is too dear.
TELLING_STEPS: Final = 4
_Kinds: TypeAlias = "tuple[PoolKind, PoolKind]"
# Two kinds of pools, and their groups.
_Fleet: TypeAlias = "tuple[_Kinds, tuple[int, int]]"


class _CountedFleet(Struct, frozen=True):
    """One fleet that may be the cheapest.

    `is_exact` says whether its cost is known, or a bound of it.
    """

    kinds: _Kinds
    groups: tuple[int, int]
    is_exact: bool = False


class MixedSearch:
    """Searches pairs of pools for one requirement."""

    def __init__(
        self,
        requirement: ServingRequirement,
        search: ServingSearch,
        effort: Effort | None = None,
    ) -> None:
        self._requirement = requirement
        self._search = search
        self._effort = effort or Effort()
        self._rate_rps = requirement.load.rate_per_s
        self._kinds = PoolKinds(requirement, search)
        self._totals_usd: dict[_Fleet, float] = {}
        # Fleets that were added, with a bound of their cost, by each of their kinds.
        self._fleets: dict[PoolKind, dict[_Fleet, float]] = {}

    def cheapest(
        self, offers: Iterable[Offer], ceiling_usd: float
    ) -> MixedFleet | None:
        """Return the cheapest fleet of two types that costs less than a ceiling, if there is one.

        USD in the period of the bill. Without a step left it is the cheapest that was seen.
        """
        # All fleets of two kinds, until one of them is looked at.
        frontier: Frontier[_CountedFleet | _Kinds] = Frontier()
        for pair in offer_pairs(
            self._kinds.usable(offers, ceiling_usd), ceiling_usd
        ):
            for first, second in itertools.product(*map(self._kinds.of, pair)):
                if (
                    first.replica.layout.precisions
                    == second.replica.layout.precisions
                ):
                    self._push_kinds(frontier, (first, second), ceiling_usd)
        best: MixedFleet | None = None
        while (taken := frontier.take(ceiling_usd)) is not None:
            usd, entry = taken
            if self._effort.is_spent:
                self._effort.leave(usd)
                break
            self._effort.spend(LOOK_STEPS)
            if not isinstance(entry, _CountedFleet):
                self._look_at_kinds(frontier, usd, entry, ceiling_usd)
                continue
            fleet = self._look_at(frontier, usd, entry, ceiling_usd)
            if fleet is not None:
                best, ceiling_usd = fleet, float(fleet.bill.total)
        return best

    def _look_at(
        self,
        frontier: Frontier[_CountedFleet | _Kinds],
        usd: float,
        entry: _CountedFleet,
        ceiling_usd: float,
    ) -> MixedFleet | None:
        """Return a fleet if it keeps the limits below a ceiling, or replace it by what may do."""
        kinds, groups = entry.kinds, entry.groups
        if self._needed_groups(kinds, groups[0]) > groups[1]:
            self._push_more(frontier, kinds, groups, ceiling_usd)
        elif not entry.is_exact:
            self._push(frontier, kinds, groups, is_exact=True)
        elif usd < ceiling_usd:
            return self._confirmed(frontier, kinds, groups, ceiling_usd)
        return None

    def _confirmed(
        self,
        frontier: Frontier[_CountedFleet | _Kinds],
        kinds: _Kinds,
        groups: tuple[int, int],
        ceiling_usd: float,
    ) -> MixedFleet | None:
        """Return a fleet that is seen to keep the limits, or replace it by what may do."""
        if self._is_open(kinds, groups):
            has_learned = self._ask(kinds, groups, ceiling_usd)
        else:
            carried_rps = [self._kinds.group_rps(kind)[0] for kind in kinds]
            fleet = self._fleet(kinds, groups, carried_rps)
            if not may_be_had(fleet.pools):
                return None
            if keeps_limits(fleet, self._search.judge):
                return fleet
            has_learned = self._halve(kinds)
        if has_learned:
            self._push(frontier, kinds, groups, is_exact=True)
        else:
            self._push_more(frontier, kinds, groups, ceiling_usd)
        return None

    def _push_kinds(
        self,
        frontier: Frontier[_CountedFleet | _Kinds],
        kinds: _Kinds,
        ceiling_usd: float,
    ) -> None:
        """Add all fleets of two kinds by a lower bound of their cost, if it is below a ceiling."""
        usd = self._line_usd(kinds)
        if usd < ceiling_usd:
            frontier.push(usd, kinds, self._tie_order(kinds))

    def _look_at_kinds(
        self,
        frontier: Frontier[_CountedFleet | _Kinds],
        usd: float,
        kinds: _Kinds,
        ceiling_usd: float,
    ) -> None:
        """Replace all fleets of two kinds by a better bound of them, or by each of them."""
        # What was learned since they were added may have raised their bound.
        if self._line_usd(kinds) > usd or self._learn(kinds, ceiling_usd):
            self._push_kinds(frontier, kinds, ceiling_usd)
        else:
            self._push_chain(frontier, kinds, 1, ceiling_usd)

    def _line_usd(
        self, kinds: _Kinds, factors: tuple[float, float] = (1.0, 1.0)
    ) -> float:
        """Return a lower bound of the cost of any fleet of two kinds, USD in the period.

        n groups of one kind cost a + b * n at least, and m of the other c + d * m. There is one of
        each, and together they carry all requests with so many times what they may carry at most:

            minimize  a + b * n + c + d * m
            while     r * n + s * m >= rate, n >= 1, m >= 1

        The least is where there is one group of either kind.
        """
        first_rps, second_rps = (
            factor * self._kinds.group_rps(kind)[1]
            for kind, factor in zip(kinds, factors, strict=True)
        )
        if not first_rps or not second_rps:
            return math.inf
        first, second = map(self._kinds.cost_floor, kinds)
        most_first = max(1.0, (self._rate_rps - second_rps) / first_rps)
        most_second = max(1.0, (self._rate_rps - first_rps) / second_rps)
        more_usd = min(
            first.group_usd * most_first + second.group_usd,
            first.group_usd + second.group_usd * most_second,
        )
        return (
            first.fixed_usd + second.fixed_usd + more_usd
        ) * self._search.markup

    def _learn(self, kinds: _Kinds, ceiling_usd: float) -> bool:
        """Simulate a replica of the kind of which less is known; False where enough is known.

        It is asked whether it carries so little that any fleet of both costs a ceiling, or the
        middle of its bounds, whatever is more.
        """
        bounds = [self._kinds.group_rps(kind) for kind in kinds]
        width, number = max(
            ((high_rps - low_rps) / high_rps, number)
            for number, (low_rps, high_rps) in enumerate(bounds)
        )
        if width <= WIDE_SHARE:
            return False
        low_rps, high_rps = bounds[number]

        def is_too_dear(step: float) -> bool:
            factor = 1 - step
            factors = (factor, 1.0) if number == 0 else (1.0, factor)
            return self._line_usd(kinds, factors) > ceiling_usd

        telling = 1 - bisect_up(is_too_dear, 0.0, width, TELLING_STEPS)
        if low_rps or not telling:
            telling = max(1 - width / 2, telling)
        self._refine(kinds[number], telling * high_rps)
        return True

    def _push_chain(
        self,
        frontier: Frontier[_CountedFleet | _Kinds],
        kinds: _Kinds,
        least_groups: int,
        ceiling_usd: float,
    ) -> None:
        """Add the fleets with so many groups of the first kind and more, below a ceiling.

        For each number of groups of the first kind the fewest of the second one are enough.
        """
        least, most = self._affordable_groups(kinds, ceiling_usd)
        for first_groups in itertools.count(max(least_groups, least)):
            if first_groups > most:
                return
            second_groups = self._push_fewest(frontier, kinds, first_groups)
            # Beside one of the second kind more of the first serve nothing.
            if second_groups <= 1 or second_groups == math.inf:
                return

    def _affordable_groups(
        self, kinds: _Kinds, ceiling_usd: float
    ) -> tuple[int, float]:
        """Return the least and the most groups of the first kind that may be below a ceiling.

        n groups cost a + b * n at least, and m of the second kind c + d * m. These are one or
        more, and carry what the first ones leave with what both carry at most:

            a + c + b * n + d <= ceiling
            a + c + b * n + d * (rate - r * n) / s <= ceiling
        """
        first, second = map(self._kinds.cost_floor, kinds)
        first_rps, second_rps = (
            self._kinds.group_rps(kind)[1] for kind in kinds
        )
        if not first_rps or not second_rps:
            return 1, 0
        left_usd = (
            ceiling_usd / self._search.markup
            - first.fixed_usd
            - second.fixed_usd
        )
        request_usd = second.group_usd / second_rps
        # What one more of the first kind costs beside that it saves of the second one.
        more_usd = first.group_usd - first_rps * request_usd
        spare_usd = left_usd - self._rate_rps * request_usd
        most = _quotient(left_usd - second.group_usd, first.group_usd)
        if more_usd >= 0:
            return 1, min(most, _quotient(spare_usd, more_usd))
        least = max(1.0, _quotient(-spare_usd, -more_usd))
        return math.ceil(least - WHOLE_ERROR), most

    def _push_fewest(
        self,
        frontier: Frontier[_CountedFleet | _Kinds],
        kinds: _Kinds,
        first_groups: int,
    ) -> float:
        """Add the fleet with the fewest groups of the second kind, and return how many."""
        second_groups = self._needed_groups(kinds, first_groups)
        if second_groups < math.inf:
            self._push(frontier, kinds, (first_groups, int(second_groups)))
        return second_groups

    def _push_more(
        self,
        frontier: Frontier[_CountedFleet | _Kinds],
        kinds: _Kinds,
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
        frontier: Frontier[_CountedFleet | _Kinds],
        kinds: _Kinds,
        groups: tuple[int, int],
        *,
        is_exact: bool = False,
    ) -> None:
        usd = (
            self._total_usd(kinds, groups)
            if is_exact
            else sum(map(self._kinds.bound_usd, kinds, groups))
            * self._search.markup
        )
        for kind in kinds:
            self._fleets.setdefault(kind, {})[kinds, groups] = usd
        frontier.push(
            usd, _CountedFleet(kinds, groups, is_exact), self._tie_order(kinds)
        )

    def _tie_order(self, kinds: _Kinds) -> tuple[object, ...]:
        return (
            *(kind.offer.key for kind in kinds),
            # Of layouts on the same machines first those that may carry most.
            *(-self._kinds.most_rps(kind) for kind in kinds),
        )

    def _needed_groups(self, kinds: _Kinds, first_groups: int) -> float:
        """Return the fewest groups of the second kind by what both may carry at most."""
        first_rps, second_rps = (
            self._kinds.group_rps(kind)[1] for kind in kinds
        )
        if not first_rps:
            return math.inf
        return groups_for(self._rate_rps - first_groups * first_rps, second_rps)

    def _is_open(self, kinds: _Kinds, groups: tuple[int, int]) -> bool:
        """Whether groups that may be enough are not known to be."""
        carried_rps = sum(
            count * self._kinds.group_rps(kind)[0]
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
            other_rps = groups[other] * self._kinds.group_rps(kinds[other])[1]
            part_rps = (self._rate_rps - other_rps) / groups[own]
            if usd < ceiling_usd and part_rps <= self._kinds.group_rps(kind)[1]:
                parts_rps.append(max(0.0, part_rps))
        return min(parts_rps, default=math.inf)

    def _ask(
        self,
        kinds: _Kinds,
        groups: tuple[int, int],
        ceiling_usd: float,
    ) -> bool:
        """Simulate a replica of one kind at the rate that tells most of these groups.

        False when there is nothing to ask: they are too few, or hardly enough.
        """
        pools = [
            PoolBounds(
                count,
                *self._kinds.group_rps(kind),
                self._useful_rps(kind, ceiling_usd),
            )
            for kind, count in zip(kinds, groups, strict=True)
        ]
        question = telling_rate(pools, self._rate_rps, CLOSE_SHARE)
        if question is None:
            return False
        index, group_rps = question
        kind = kinds[index]
        self._refine(kind, group_rps)
        return True

    def _refine(self, kind: PoolKind, group_rps: float) -> None:
        self._effort.spend(SIMULATION_STEPS)
        self._kinds.refine(kind, group_rps)

    def _halve(self, kinds: _Kinds) -> bool:
        """Learn more of both kinds, so that each pool gets its share of the room.

        Weights in whole numbers give a pool a little more than it is known to carry. False when
        all is known.
        """
        open_kinds = [kind for kind in kinds if self._kinds.is_open(kind)]
        for kind in open_kinds:
            self._effort.spend(SIMULATION_STEPS)
            self._kinds.halve(kind)
        return bool(open_kinds)

    def _total_usd(self, kinds: _Kinds, groups: tuple[int, int]) -> float:
        """Return what some groups cost with all beside the machines, USD in the period.

        Who gets which part of the requests changes nothing of it.
        """
        key = (kinds, groups)
        if key not in self._totals_usd:
            self._effort.spend(BILL_STEPS)
            fleet = self._fleet(kinds, groups, (1.0, 1.0))
            self._totals_usd[key] = float(fleet.bill.total)
        return self._totals_usd[key]

    def _fleet(
        self,
        kinds: _Kinds,
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


def _quotient(usd: float, each_usd: float) -> float:
    """Return how often a cost is in another one; without limit where it is nothing."""
    if each_usd:
        return usd / each_usd * (1 + WHOLE_ERROR)
    return math.copysign(math.inf, usd)

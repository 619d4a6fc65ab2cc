"""Exact search for the cheapest fleet of one or two machine types that follow the hours.

In each hour of the week there are the groups that it takes, of one type or of both:

    groups * requests/s of a group, summed over both >= requests/s of the hour

Kinds, and pairs of them, are looked at in the order of lower bounds of their cost. What a group
carries is simulated only where a cheaper fleet depends on it, and the last word on a fleet is its
own simulation.
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Final, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from planner.frontier import Frontier
from planner.market.capacity import PEAK_LOAD
from planner.numeric import bisect_up
from planner.solve.serving.effort import LOOK_STEPS, SIMULATION_STEPS, Effort
from planner.solve.serving.hour_bound import HourBounds
from planner.solve.serving.hour_capacity import HourCapacity
from planner.solve.serving.hour_fleet import HourlyCount, hour_fleet
from planner.solve.serving.hour_price import HourPrices, beside_spares
from planner.solve.serving.hour_program import HourLoad, HourProgram, no_kind
from planner.solve.serving.mixed_fleet import (
    keeps_limits,
    may_be_had,
    whole_weights,
)
from planner.solve.serving.pool_kind import PoolKinds, offer_pairs
from planner.solve.serving.replica_capacity import SAME_SHARE, groups_for
from planner.solve.serving.spot_promise import has_promise

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from planner.market.offer import Offer
    from planner.solve.serving.hour_bound import BoundKind
    from planner.solve.serving.hour_price import GroupPrices
    from planner.solve.serving.mixed_fleet import MixedFleet, PoolKind
    from planner.solve.serving.requirement import ServingRequirement
    from planner.solve.serving.search import ServingSearch

# One, or two that answer alike.
Families: TypeAlias = "tuple[_Family, ...]"
# Bounds that differ by more are halved before a fleet asks for one rate.
WIDE_SHARE: Final = 0.05
# Groups of one type that are tried one by one.
FEW_GROUPS: Final = 8
# Bounds of families: by parts of machines, by whole machines, and by all lines of a bill.
ALL_BOUNDS: Final = 3
# Halvings of what a kind may carry, until it tells whether a pair is too dear.
TELLING_STEPS: Final = 4
# Lines of a bill are rounded to cents, so a bound by their sums may be as much too high.
ROUNDING_USD: Final = 0.1


# Each is made once, and two are the same where they are one object.
class _Family(Struct, frozen=True, eq=False):
    """Kinds on one offer that cost the same and answer alike: the one that carries most counts."""

    offer: Offer
    nodes: int
    precisions: tuple[str, str]
    kinds: tuple[PoolKind, ...]


class _KnownBound(Struct, frozen=True):
    """A kind as bounds see it while its groups carry so much at most."""

    most_rps: Mapping[float, float]
    kind: BoundKind


class _Entry(Struct, frozen=True):
    """What is left to look at: one or two families of kinds, or a fleet of these.

    bounds  how many of the bounds of families it has, the coarsest first
    learned  simulations that were known then
    """

    families: Families
    bounds: int
    learned: int
    fleet: MixedFleet | None = None


class HourSearch:
    """Searches kinds and pairs of them, and their groups in each hour, for one requirement.

    What one search has learned of a group, the next one knows.
    """

    def __init__(
        self, requirement: ServingRequirement, search: ServingSearch
    ) -> None:
        self.requirement = requirement
        self.search = search
        self._effort = Effort()
        self._rate_rps = requirement.load.rate_per_s
        self._kinds = PoolKinds(requirement, search)
        self._has_clumps = requirement.load.arrival_variation != 1
        self._machines_of: dict[Offer, BoundKind] = {}
        self._families_of: dict[Offer, tuple[_Family, ...]] = {}
        self._hours = tuple(
            HourLoad(self._rate_rps * load, float(share))
            for load, share in zip(
                requirement.week.relative_load,
                requirement.week.running_share,
                strict=True,
            )
        )
        self._week_hours = sum(hour.hours for hour in self._hours)
        # No order matters to a bound, so each load counts once.
        self._loads = tuple(
            HourLoad(self._rate_rps * load, share * self._week_hours)
            for load, share in requirement.week.load_shares
        )
        self._capacity = HourCapacity(
            requirement, search.judge, self._kinds, self._loads
        )
        self._prices = HourPrices(requirement, search.price_book)
        self._no_kind = no_kind(self._loads)
        self._bounds = HourBounds(self._loads)
        # By what their groups carry at most, which changes with what is learned.
        self._machine_bounds: dict[_Family, _KnownBound] = {}
        self._group_bounds: dict[_Family, _KnownBound] = {}
        promised = requirement.availability
        self._availability = None if promised is None else float(promised)

    def cheapest(
        self, offers: Iterable[Offer], ceiling_usd: float
    ) -> MixedFleet | None:
        """Return the cheapest fleet of one type that costs less than a ceiling, if there is one.

        USD in the period of the bill.
        """
        self._effort = Effort()
        # Layouts take time, and one machine runs in all hours with any of them.
        affordable = (
            offer
            for offer in offers
            if self._week_hours * self._prices.of_machines(offer, 1)
            < ceiling_usd
        )
        return self._cheapest(
            (
                (family,)
                for offer in self._usable(affordable)
                for family in self._families(offer)
            ),
            ceiling_usd,
        )

    def cheapest_pair(
        self,
        offers: Iterable[Offer],
        ceiling_usd: float,
        effort: Effort | None = None,
    ) -> MixedFleet | None:
        """Return the cheapest fleet of two types that costs less than a ceiling, if there is one.

        USD in the period of the bill. Where a failure has to be survived there is none: spares of
        each type would stand in the hours of the other. It is the cheapest until no step is left.
        """
        if self.requirement.survives is not None:
            return None
        self._effort = effort or Effort()
        return self._cheapest(self._pairs(offers, ceiling_usd), ceiling_usd)

    def _cheapest(
        self, all_families: Iterable[Families], ceiling_usd: float
    ) -> MixedFleet | None:
        frontier: Frontier[_Entry] = Frontier()
        for families in all_families:
            linear_usd = self._linear_usd(families)
            if linear_usd < ceiling_usd:
                self._push(frontier, linear_usd, self._entry(families, 1))
        while (taken := frontier.take(ceiling_usd)) is not None:
            usd, entry = taken
            if entry.fleet is None and self._effort.is_spent:
                self._effort.leave(usd)
            elif entry.fleet is None:
                self._effort.spend(LOOK_STEPS)
                self._look_at(frontier, usd, entry, ceiling_usd)
            elif usd < ceiling_usd and keeps_limits(
                entry.fleet, self.search.judge
            ):
                return entry.fleet
        return None

    def _look_at(
        self,
        frontier: Frontier[_Entry],
        usd: float,
        entry: _Entry,
        ceiling_usd: float,
    ) -> None:
        """Replace families by themselves with a better bound, or by their cheapest fleet."""
        families = entry.families
        bounds = (self._linear_usd, self._machines_usd, self._whole_usd)
        # What was learned since it was pushed may have raised its bound.
        is_current = entry.learned == self._capacity.learned
        first = entry.bounds if is_current else 0
        for number, bound in enumerate(bounds[first:], first + 1):
            bound_usd = bound(families)
            if bound_usd > usd:
                self._push(frontier, bound_usd, self._entry(families, number))
                return
        # Of one type a fleet is found as fast as its bound.
        is_pair = len(families) > 1
        if is_pair and self._ask(
            families, self._asked_by_bound(families), ceiling_usd
        ):
            self._push_bounded(frontier, families)
            return
        counts = self._counts(families, ceiling_usd)
        if self._effort.is_spent:
            # Cheaper weeks of these may not have been looked at.
            self._effort.leave(usd)
        if counts is None:
            return
        # One type that costs less alone is another search.
        is_whole = all(count.most_groups for count in counts)
        fleet: MixedFleet | None = None
        if is_whole:
            fleet = hour_fleet(self.requirement, counts, self.search.price_book)
            # With groups that carry less than they may it costs no less.
            if float(fleet.bill.total) >= ceiling_usd:
                return
        asked = map(self._asked_rates, counts)
        if self._ask(families, asked, ceiling_usd):
            self._push_bounded(frontier, families)
            return
        if fleet is not None and may_be_had(fleet.pools):
            self._push(
                frontier, float(fleet.bill.total), replace(entry, fleet=fleet)
            )

    def _entry(self, families: Families, bounds: int) -> _Entry:
        """Return families with so many bounds, by all that is known now."""
        return _Entry(families, bounds, self._capacity.learned)

    def _push_bounded(
        self, frontier: Frontier[_Entry], families: Families
    ) -> None:
        """Add families again, of which something was learned."""
        usd = self._whole_usd(families)
        self._push(frontier, usd, self._entry(families, ALL_BOUNDS))

    def _push(
        self, frontier: Frontier[_Entry], usd: float, entry: _Entry
    ) -> None:
        if usd < math.inf:
            frontier.push(
                usd,
                entry,
                tuple(
                    (family.offer.key, family.nodes, -len(family.kinds))
                    for family in entry.families
                ),
            )

    def _usable(self, offers: Iterable[Offer]) -> Iterator[Offer]:
        """Yield the offers that may have hours of their own, and layouts that may do."""
        for offer in offers:
            if (
                not has_promise(self.requirement, offer)
                # By which load others of an account need it, hours of its own do not tell.
                and all(quota.load == PEAK_LOAD for quota in offer.quotas)
                and self._families(offer)
            ):
                yield offer

    def _pairs(
        self, offers: Iterable[Offer], ceiling_usd: float
    ) -> Iterator[Families]:
        """Yield families of two machine types in one region that answer alike.

        Those that cost more than a ceiling, whatever is known of them, are left out.
        """
        usable = [(0.0, offer) for offer in self._usable(offers)]
        for pair in offer_pairs(usable, math.inf):
            machines = [*map(self._machines, pair)]
            # The first takes less time.
            if (
                self._bounds.linear_usd(machines) >= ceiling_usd
                or self._bounds.whole_usd(machines) >= ceiling_usd
            ):
                continue
            for first, second in itertools.product(*map(self._families, pair)):
                if first.precisions == second.precisions:
                    yield first, second

    def _machines(self, offer: Offer) -> BoundKind:
        """Return what machines of an offer cost at least, and carry at most with any layout."""
        if offer not in self._machines_of:
            most_rps = {
                load.rate_rps: max(
                    self._most_rps(family)[load.rate_rps] / family.nodes
                    for family in self._families(offer)
                )
                for load in self._loads
            }
            self._machines_of[offer] = self._bounds.kind(
                self._prices.of_machines(offer, 1),
                most_rps,
                always_usd=self._prices.of_all_hours(offer, 1),
            )
        return self._machines_of[offer]

    def _families(self, offer: Offer) -> tuple[_Family, ...]:
        """Return the kinds on an offer by what a group of them costs, and how it answers."""
        if offer not in self._families_of:
            by_likeness: dict[tuple[object, ...], list[PoolKind]] = {}
            for kind in self._kinds.of(offer):
                layout = kind.replica.layout
                likeness = (
                    kind.group.nodes,
                    layout.precisions,
                    # Where requests come in clumps, one may carry more by day, another by night.
                    layout if self._has_clumps else None,
                )
                by_likeness.setdefault(likeness, []).append(kind)
            self._families_of[offer] = tuple(
                _Family(
                    offer,
                    kinds[0].group.nodes,
                    kinds[0].replica.layout.precisions,
                    tuple(kinds),
                )
                for kinds in by_likeness.values()
            )
        return self._families_of[offer]

    def _linear_usd(self, families: Families) -> float:
        """Return a lower bound by parts of machines alone, USD in the period."""
        return self._bounds.linear_usd([*map(self._machine_bound, families)])

    def _machines_usd(self, families: Families) -> float:
        """Return a lower bound by the machines of whole groups, USD in the period."""
        return self._bounds.whole_usd([*map(self._machine_bound, families)])

    def _whole_usd(
        self, families: Families, factors: tuple[float, float] = (1.0, 1.0)
    ) -> float:
        """Return a lower bound by whole groups and all lines of a bill, USD in the period.

        It is that of groups that carry so many times what they may carry at most.
        """
        return (
            self._bounds.whole_usd(
                [
                    self._group_bound(family).carrying(factor)
                    # Without a second family its factor is of nothing.
                    for family, factor in zip(families, factors, strict=False)
                ]
            )
            + self._fixed_usd(families)
            - ROUNDING_USD
        )

    def _fixed_usd(self, families: Families) -> float:
        """Return what stands beside the groups of two pools: no less than beside those of one."""
        return max(self._price_of(family).fixed_usd for family in families)

    def _machine_bound(self, family: _Family) -> BoundKind:
        """Return groups that cost what their machines cost at least."""
        most_rps = self._most_rps(family)
        known = self._machine_bounds.get(family)
        if known is None or known.most_rps is not most_rps:
            machines = family.offer, family.nodes
            kind = self._bounds.kind(
                self._prices.of_machines(*machines),
                most_rps,
                always_usd=self._prices.of_all_hours(*machines),
            )
            known = _KnownBound(most_rps, kind)
            self._machine_bounds[family] = known
        return known.kind

    def _group_bound(self, family: _Family) -> BoundKind:
        """Return groups that cost what all lines of their bill do."""
        most_rps = self._most_rps(family)
        known = self._group_bounds.get(family)
        if known is None or known.most_rps is not most_rps:
            price = self._price_of(family).kind
            kind = self._bounds.kind(
                price.least_usd(self._week_hours),
                most_rps,
                price.most_groups,
                self._prices.of_all_hours(family.offer, family.nodes),
            )
            known = _KnownBound(most_rps, kind)
            self._group_bounds[family] = known
        return known.kind

    def _price_of(self, family: _Family) -> GroupPrices:
        return self._prices.of_groups(family.kinds[0])

    def _counts(
        self, families: Families, ceiling_usd: float
    ) -> tuple[HourlyCount, ...] | None:
        """Return the cheapest groups in each hour by what they may carry at most.

        None where nothing carries the load, or two types cost a ceiling without a start.
        """
        rates_rps = [
            self._most_rps(family)[self._rate_rps] for family in families
        ]
        if not all(rates_rps):
            return None
        weights = whole_weights(rates_rps)
        program = self._program(families, weights)
        hourly = program.cheapest(
            ceiling_usd - self._fixed_usd(families) + ROUNDING_USD,
            self._effort,
        )
        if hourly is None:
            return None
        up_weight = tuple(
            program.sure_weight(counts, hour.rate_rps)
            for counts, hour in zip(hourly, self._hours, strict=True)
        )
        return tuple(
            HourlyCount(
                kind=self._strongest(family),
                groups=tuple(counts[number] for counts in hourly),
                weight=weight,
                up_weight=up_weight,
            )
            for number, (family, weight) in enumerate(
                zip(families, weights, strict=True)
            )
        )

    def _program(
        self, families: Families, weights: tuple[int, ...]
    ) -> HourProgram:
        """Return the hours of groups that carry as much as they may, and no more than needed."""
        first, *others = (
            replace(
                kind,
                group_rps=most_rps,
                weight=weight,
                most_groups=min(kind.most_groups, enough),
                most_always=min(kind.most_always, enough),
            )
            for family, weight in zip(families, weights, strict=True)
            for kind in [self._prices.with_starts(family.kinds[0])]
            for most_rps in [self._most_rps(family)]
            for enough in [self._enough_groups(most_rps)]
        )
        if not others:
            # Spare groups of one kind are a matter of its fleet.
            kind = self._strongest(families[0])
            alone = beside_spares(self.requirement, first, kind)
            return HourProgram((alone, self._no_kind), self._hours)
        return HourProgram((first, others[0]), self._hours, self._availability)

    def _enough_groups(self, most_rps: Mapping[float, float]) -> int:
        """Return groups that carry all hours alone, also when some of them are down."""
        groups = max(
            int(groups_for(rate_rps, group_rps)) if group_rps else 0
            for rate_rps, group_rps in most_rps.items()
        )
        return groups if self._availability is None else 2 * groups + 2

    def _ask(
        self,
        families: Families,
        asked: Iterable[Mapping[float, float]],
        ceiling_usd: float,
    ) -> bool:
        """Simulate a replica of which it is not known that it carries what is asked of it.

        `asked` has for each family what one of its groups gets by the rate of an hour, requests/s.
        False where all is known. A group that carries less than the rate that is asked for makes
        the fleet dearer than a ceiling, or it is the middle of wide bounds.
        """
        # The one of which least is known tells most.
        unknown = [
            (
                (bounds.high_rps - bounds.low_rps) / bounds.high_rps,
                number,
                rate_rps,
                asked_rps,
            )
            for number, rates in enumerate(asked)
            for kind in [self._strongest(families[number])]
            for rate_rps, asked_rps in rates.items()
            for bounds in [self._capacity.group_bounds(kind, rate_rps)]
            if bounds.low_rps < asked_rps * (1 - SAME_SHARE)
        ]
        if not unknown:
            return False
        width, number, rate_rps, asked_rps = max(unknown)
        kind = self._strongest(families[number])
        bounds = self._capacity.group_bounds(kind, rate_rps)
        is_wide = (
            width > WIDE_SHARE
            if len(families) > 1
            # Of a few groups more or fewer the fewest are asked for.
            else bounds.group_range(rate_rps) > FEW_GROUPS
        )
        if not bounds.low_rps or is_wide:
            telling = self._telling_factor(families, number, width, ceiling_usd)
            # Most kinds are too dear. One of which that is not known is asked for it first.
            if bounds.low_rps or not telling:
                telling = max(1 - width / 2, telling)
            telling_rps = telling * bounds.high_rps
            if len(families) == 1:
                # Up to a number of groups that carry the hour, no rate tells more of it.
                telling_rps = rate_rps / max(1, rate_rps // telling_rps)
            asked_rps = min(asked_rps, telling_rps)
        elif (
            len(families) > 1
            and not bounds.are_close
            and bounds.is_near_high(asked_rps)
            # A group that carries all requests of an hour is asked for no more.
            and bounds.high_rps < rate_rps
        ):
            asked_rps = (bounds.low_rps + bounds.high_rps) / 2
        self._effort.spend(SIMULATION_STEPS)
        self._capacity.refine(
            kind, rate_rps, asked_rps, is_alone=len(families) == 1
        )
        return True

    def _telling_factor(
        self,
        families: Families,
        number: int,
        width: float,
        ceiling_usd: float,
    ) -> float:
        """Return below which part of what a kind may carry a pair is dearer than a ceiling.

        `width` is how much less it may be that it carries, as a part of it.
        """

        def is_too_dear(step: float) -> bool:
            factor = 1 - step
            factors = (factor, 1.0) if number == 0 else (1.0, factor)
            return self._whole_usd(families, factors) > ceiling_usd

        return 1 - bisect_up(is_too_dear, 0.0, width, TELLING_STEPS)

    def _asked_by_bound(self, families: Families) -> list[dict[float, float]]:
        """Return what a group of each family gets by the rate of an hour, in the bound of a fleet.

        A fleet takes longer to find, and of most it is told by this that they cost too much.
        """
        asked: list[dict[float, float]] = [{} for _ in families]
        for load, shares in self._bounds.cheapest(
            [*map(self._group_bound, families)]
        ):
            for rates, (groups, group_rps) in zip(asked, shares, strict=True):
                if groups:
                    rates[load.rate_rps] = group_rps
        return asked

    def _asked_rates(self, count: HourlyCount) -> dict[float, float]:
        """Return the most requests/s that a group gets in hours of each rate."""
        asked: dict[float, float] = {}
        for groups, hour, up_weight in zip(
            count.groups, self._hours, count.up_weight, strict=True
        ):
            if groups:
                group_rps = hour.rate_rps * count.weight / up_weight
                known_rps = asked.get(hour.rate_rps, 0.0)
                asked[hour.rate_rps] = max(group_rps, known_rps)
        return asked

    def _most_rps(self, family: _Family) -> Mapping[float, float]:
        """Return what a group of a family carries at most in hours of each rate, requests/s."""
        return self._capacity.most_rps(self._strongest(family))

    def _strongest(self, family: _Family) -> PoolKind:
        """Return the kind that may carry most, of equal ones that which is known to."""
        if len(family.kinds) == 1:
            return family.kinds[0]
        return max(family.kinds, key=self._strength)

    def _strength(self, kind: PoolKind) -> tuple[float, float]:
        """Return what a group carries at most and at least at the peak, requests/s."""
        bounds = self._capacity.group_bounds(kind, self._rate_rps)
        return bounds.high_rps, bounds.low_rps

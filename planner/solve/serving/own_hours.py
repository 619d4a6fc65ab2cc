"""The machines of one type that each hour of a week takes, of the cheapest fleet and of others."""

from __future__ import annotations

import math
from bisect import bisect_right
from functools import partial
from typing import TYPE_CHECKING

from planner.cost.weekly_load import needed_groups
from planner.market.capacity import PEAK_LOAD
from planner.solve.serving.hour_fleet import HourlyCount, hour_fleet
from planner.solve.serving.hour_program import WHOLE_ERROR
from planner.solve.serving.hour_rule import follows_hours
from planner.solve.serving.mixed_fleet import PoolKind, may_be_had
from planner.solve.serving.sizing import sized_fleet

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from planner.cost.service_price import PriceBook
    from planner.market.offer import Offer
    from planner.solve.serving.candidate import ServingCandidate
    from planner.solve.serving.hour_search import HourSearch
    from planner.solve.serving.mixed_fleet import MixedFleet
    from planner.solve.serving.requirement import ServingRequirement
    from planner.solve.serving.sizing import FleetSizing
    from planner.solve.serving.verify import FleetJudge


def cheapest_by_hours(
    hours: HourSearch,
    alone: ServingCandidate | None,
    offers: Collection[Offer],
    ceiling_usd: float = math.inf,
) -> MixedFleet | None:
    """Return a fleet of one type whose hours have the fewest machines, where that costs less.

    It costs less than `alone`, whose hours have a share of those of its peak, and than a ceiling.
    Where these miss a limit in quiet hours, it has more of them and may cost more than either.
    Other types are those of `offers`.
    """
    requirement, search = hours.requirement, hours.search
    best: MixedFleet | None = None
    if alone is not None:
        groups_at = fewest_groups(requirement, alone.sizing, search.judge)
        has_to = _is_short(alone.sizing, groups_at)
        own = _fleet_by_hours(requirement, alone, groups_at, search.price_book)
        if own is not None and (has_to or own.bill.total < alone.bill.total):
            best = own
        if best is not None or not has_to:
            known_usd = float((best or alone).bill.total)
            ceiling_usd = min(ceiling_usd, known_usd)
    if offers and follows_hours(requirement):
        best = hours.cheapest(offers, ceiling_usd) or best
    return best


def fewest_groups(
    requirement: ServingRequirement, sizing: FleetSizing, judge: FleetJudge
) -> dict[float, int]:
    """Return the fewest groups that keep the limits in the hours of each load.

    `sizing` has the fewest of the peak, so in every hour one group carries less than the peak
    brings to one group fewer. Nothing where an hour cannot be judged by itself.
    """
    most_groups = sizing.peak_groups
    if not is_judged_by_hours(requirement) or most_groups == 1:
        return {}
    hours = _JudgedHours(requirement, sizing, judge)
    loads = [load for load, _ in requirement.week.load_shares]
    groups_at: dict[float, int] = {}
    for groups in range(1, most_groups):
        # More load never takes fewer groups, so those of a number are next to each other.
        first = len(groups_at)
        end = bisect_right(
            loads,
            groups,
            lo=first,
            key=lambda load: math.floor((most_groups - 1) * load) + 1,
        )
        # 0 is what does not miss.
        missed = bisect_right(
            loads, 0, lo=first, hi=end, key=partial(hours.misses, groups)
        )
        groups_at |= dict.fromkeys(loads[first:missed], groups)
    # The peak, which takes no less, is known to be carried.
    return groups_at | dict.fromkeys(loads[len(groups_at) :], most_groups)


class _JudgedHours:
    """Judges some groups in hours of a load, more and more groups, and keeps what it has seen.

    What a group carries beside few others, it carries beside many. Where it carries as much beside
    few as beside many, what it misses says as much.
    """

    def __init__(
        self,
        requirement: ServingRequirement,
        sizing: FleetSizing,
        judge: FleetJudge,
    ) -> None:
        self._requirement = requirement
        self._sizing = sizing
        self._judge = judge
        self._are_alike = is_alike(requirement)
        # Loads of one group, relative to the peak of all.
        self._carried = 1 / sizing.peak_groups if self._are_alike else 0.0
        self._missed = 1 / (sizing.peak_groups - 1)

    def misses(self, groups: int, load: float) -> bool:
        """Return whether some groups miss a limit in hours of a load."""
        each = load / groups
        if each <= self._carried * (1 + WHOLE_ERROR):
            return False
        if each >= self._missed:
            return True
        hour = self._requirement.with_scaled_load(load)
        sizing = self._sizing
        is_missed = self._judge.misses(
            hour, sized_fleet(hour, sizing.replica, sizing.group, groups)
        )
        if not is_missed:
            self._carried = max(self._carried, each)
        elif self._are_alike:
            self._missed = min(self._missed, each)
        return is_missed


def _is_short(sizing: FleetSizing, groups_at: Mapping[float, int]) -> bool:
    """Return whether some hours take more groups than a share of those of the peak."""
    return any(
        groups > needed_groups(sizing.peak_groups * load)
        for load, groups in groups_at.items()
    )


def _fleet_by_hours(
    requirement: ServingRequirement,
    alone: ServingCandidate,
    groups_at: Mapping[float, int],
    price_book: PriceBook,
) -> MixedFleet | None:
    """Return a fleet with so many groups in the hours of each load.

    None where nothing is known of them, or where what it is bought of does not allow it, or has
    less left in some hours.
    """
    if not groups_at or any(
        quota.load != PEAK_LOAD for quota in alone.offer.quotas
    ):
        return None
    hourly = tuple(
        groups_at[load] if share else 0
        for load, share in zip(
            requirement.week.relative_load,
            requirement.week.running_share,
            strict=True,
        )
    )
    count = HourlyCount(
        kind=PoolKind(alone.offer, alone.sizing.replica, alone.sizing.group),
        groups=hourly,
        weight=1,
        up_weight=tuple(map(float, hourly)),
    )
    fleet = hour_fleet(requirement, (count,), price_book)
    return fleet if may_be_had(fleet.pools) else None


def is_judged_by_hours(requirement: ServingRequirement) -> bool:
    """Return whether the load of an hour says what it takes, also that of the peak."""
    *_, (highest, _) = requirement.week.load_shares
    return (
        requirement.mode == "open"
        and highest == PEAK_LOAD
        and requirement.elastic is None
        and requirement.trace is None
        and not requirement.beside
    )


def is_alike(requirement: ServingRequirement) -> bool:
    """Return whether a group carries as much beside few others as beside many.

    That is so where what arrives comes by chance alone, and is spread at random.
    """
    load = requirement.load
    return load.arrival_variation == 1 and load.routing == "random"

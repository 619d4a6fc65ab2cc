"""Hours of less load, in which fewer machines of a fleet run."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from planner.cost.weekly_load import needed_groups
from planner.market.capacity import PEAK_LOAD
from planner.solve.cause import because
from planner.solve.serving.hour_fleet import HourlyCount, hour_fleet
from planner.solve.serving.hour_program import WHOLE_ERROR
from planner.solve.serving.mixed_fleet import PoolKind, may_be_had
from planner.solve.serving.sizing import sized_fleet
from planner.solve.solution import PlanWarning

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from planner.cost.service_price import PriceBook
    from planner.solve.serving.candidate import ServingCandidate
    from planner.solve.serving.mixed_fleet import MixedFleet
    from planner.solve.serving.requirement import ServingRequirement
    from planner.solve.serving.sizing import FleetSizing
    from planner.solve.serving.verify import FleetJudge


def fewest_groups(
    requirement: ServingRequirement, sizing: FleetSizing, judge: FleetJudge
) -> dict[float, int]:
    """Return the fewest groups that keep the limits in the hours of each load.

    `sizing` has the fewest of the peak, so in every hour one group carries less than the peak
    brings to one group fewer. Nothing where an hour cannot be judged by itself.
    """
    most_groups = sizing.peak_groups
    if not _is_judged_by_hours(requirement) or most_groups == 1:
        return {}
    groups_at: dict[float, int] = {}
    groups = 1
    is_alike = _is_alike(requirement)
    # What a group is known to carry, and not to: loads relative to the peak.
    carried, missed = 1 / most_groups, 1 / (most_groups - 1)
    for load, _ in requirement.week.load_shares:
        # More load never takes fewer groups.
        groups = max(groups, math.floor((most_groups - 1) * load) + 1)
        hour = requirement.with_scaled_load(load)
        while groups < most_groups:
            each = load / groups
            if is_alike and each <= carried * (1 + WHOLE_ERROR):
                break
            if not is_alike or each < missed:
                fleet = sized_fleet(hour, sizing.replica, sizing.group, groups)
                if not judge.misses(hour, fleet):
                    carried = max(carried, each)
                    break
                missed = min(missed, each)
            groups += 1
        groups_at[load] = groups
    return groups_at


def is_short(sizing: FleetSizing, groups_at: Mapping[float, int]) -> bool:
    """Return whether some hours take more groups than a share of those of the peak."""
    return any(
        groups > needed_groups(sizing.peak_groups * load)
        for load, groups in groups_at.items()
    )


def fleet_by_hours(
    requirement: ServingRequirement,
    alone: ServingCandidate,
    groups_at: Mapping[float, int],
    price_book: PriceBook,
) -> MixedFleet | None:
    """Return a fleet with so many groups in the hours of each load.

    None where what it is bought of does not allow it, or has less left in some hours.
    """
    if any(quota.load != PEAK_LOAD for quota in alone.offer.quotas):
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


def quiet_hour_warnings(
    requirement: ServingRequirement, sizing: FleetSizing, judge: FleetJudge
) -> Iterator[PlanWarning]:
    """Yield the hours of least load whose machines miss a limit, where there are some.

    No machine gets more requests than at the peak. But clumps of requests weigh more on few
    machines, and so does a router that knows of few which are free.
    """
    for groups, load in _busiest_hours(requirement, sizing).items():
        quiet = requirement.with_scaled_load(load)
        fleet = sized_fleet(quiet, sizing.replica, sizing.group, groups)
        missed = judge.missed_limit(quiet, fleet)
        if missed is not None:
            yield PlanWarning(
                code="quiet-hours",
                reason=because(
                    "quiet-hours",
                    missed.constraint,
                    load_share=load,
                    reached_s=missed.reached,
                    limit_s=missed.limit,
                ),
            )
            return


def _is_judged_by_hours(requirement: ServingRequirement) -> bool:
    """Return whether the load of an hour says what it takes, also that of the peak."""
    *_, (highest, _) = requirement.week.load_shares
    return (
        requirement.mode == "open"
        and highest == PEAK_LOAD
        and requirement.elastic is None
        and requirement.trace is None
        and not requirement.beside
    )


def _is_alike(requirement: ServingRequirement) -> bool:
    """Return whether a group carries as much beside few others as beside many.

    That is so where what arrives comes by chance alone, and is spread at random.
    """
    load = requirement.load
    return load.arrival_variation == 1 and load.routing == "random"


def _busiest_hours(
    requirement: ServingRequirement, sizing: FleetSizing
) -> dict[int, float]:
    """Return numbers of groups below those of the peak, with the highest load that each carries.

    Nothing where a group carries as much beside few as beside many.
    """
    if _is_alike(requirement) or not _is_judged_by_hours(requirement):
        return {}
    busiest = {
        needed_groups(sizing.peak_groups * hour_load): hour_load
        for hour_load, _ in requirement.week.load_shares
    }
    return {
        groups: hour_load
        for groups, hour_load in busiest.items()
        if groups < sizing.peak_groups
    }

"""Hours of less load, in which fewer machines of a fleet run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from planner.cost.weekly_load import needed_groups
from planner.solve.cause import because
from planner.solve.serving.own_hours import is_alike, is_judged_by_hours
from planner.solve.serving.sizing import sized_fleet
from planner.solve.solution import PlanWarning

if TYPE_CHECKING:
    from collections.abc import Iterator

    from planner.solve.serving.requirement import ServingRequirement
    from planner.solve.serving.sizing import FleetSizing
    from planner.solve.serving.verify import FleetJudge


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


def _busiest_hours(
    requirement: ServingRequirement, sizing: FleetSizing
) -> dict[int, float]:
    """Return numbers of groups below those of the peak, with the highest load that each carries.

    Nothing where a group carries as much beside few as beside many.
    """
    if is_alike(requirement) or not is_judged_by_hours(requirement):
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

"""Hours of less load, in which fewer machines of a fleet run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from planner.cost.weekly_load import needed_groups
from planner.solve.cause import because
from planner.solve.serving.sizing import sized_fleet
from planner.solve.solution import PlanWarning

if TYPE_CHECKING:
    from collections.abc import Iterator

    from planner.solve.serving.requirement import ServingRequirement
    from planner.solve.serving.sizing import FleetSizing
    from planner.solve.serving.verify import FleetJudge


def misses_hours(
    requirement: ServingRequirement, sizing: FleetSizing, judge: FleetJudge
) -> bool:
    """Return whether a share of the machines of the peak misses a limit in some quieter hours."""
    return any(
        judge.misses(quiet, fleet)
        for _, quiet, fleet in _quiet_fleets(requirement, sizing)
    )


def quiet_hour_warnings(
    requirement: ServingRequirement, sizing: FleetSizing, judge: FleetJudge
) -> Iterator[PlanWarning]:
    """Yield the hours of least load whose machines miss a limit, where there are some.

    No machine gets more requests than at the peak. But clumps of requests weigh more on few
    machines, and so does a router that knows of few which are free.
    """
    for load, quiet, fleet in _quiet_fleets(requirement, sizing):
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


def _quiet_fleets(
    requirement: ServingRequirement, sizing: FleetSizing
) -> Iterator[tuple[float, ServingRequirement, FleetSizing]]:
    """Yield loads below the peak with what they ask of fewer groups, and these."""
    for groups, load in _busiest_hours(requirement, sizing).items():
        quiet = requirement.with_scaled_load(load)
        yield (
            load,
            quiet,
            sized_fleet(quiet, sizing.replica, sizing.group, groups),
        )


def _busiest_hours(
    requirement: ServingRequirement, sizing: FleetSizing
) -> dict[int, float]:
    """Return numbers of groups below those of the peak, with the highest load that each carries.

    Nothing where all that arrives comes by chance alone and is spread at random: then a group
    carries as much beside few as beside many.
    """
    load = requirement.load
    is_alike = load.arrival_variation == 1 and load.routing == "random"
    if (
        is_alike
        or requirement.mode != "open"
        or requirement.elastic is not None
        or requirement.trace is not None
        or requirement.beside
    ):
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

"""The selected fleet with one group fewer, and the limit that it misses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from planner.cost.weekly_load import SpareGroups
from planner.solve.cause import because
from planner.solve.rival import billed_rival
from planner.solve.serving.bill import bought_bill, settled_offer
from planner.solve.serving.rejection import rejection_reason
from planner.solve.serving.sizing import run_time_s, sized_fleet
from planner.solve.serving.spare_groups import spare_rule, up_share
from planner.solve.serving.spot_promise import (
    SpotPromise,
    base_groups,
    has_promise,
)

if TYPE_CHECKING:
    from planner.solve.cause import Cause
    from planner.solve.rival import RivalFleet
    from planner.solve.serving.candidate import ServingCandidate
    from planner.solve.serving.requirement import ServingRequirement
    from planner.solve.serving.search import ServingSearch
    from planner.solve.serving.sizing import FleetSizing


def smaller_fleet(
    requirement: ServingRequirement,
    search: ServingSearch,
    selection: ServingCandidate,
) -> RivalFleet | None:
    """Return the selected fleet with one group fewer, and the limit that it misses.

    None for a fleet of one group, and for one that several services share: the limit may be that
    of any of them.
    """
    sizing = selection.sizing
    if sizing.total_groups == 1 or sizing.beside:
        return None
    if sizing.spares.count and has_promise(requirement, selection.bought):
        return _with_fewer_on_spot(requirement, search, selection)
    fewer = (
        replace(sizing, spares=SpareGroups(sizing.spares.count - 1))
        if sizing.spares.count
        else sized_fleet(
            requirement, sizing.replica, sizing.group, sizing.peak_groups - 1
        )
    )
    return billed_rival(
        settled_offer(requirement, fewer, selection.offer),
        fewer.nodes,
        search.bill(requirement, fewer, selection.offer),
        _failure_reason(requirement, search, sizing, fewer),
    )


def _with_fewer_on_spot(
    requirement: ServingRequirement,
    search: ServingSearch,
    selection: ServingCandidate,
) -> RivalFleet:
    """Return the fleet with a spare group fewer on spot, and how often too few are up then."""
    sizing, bought = selection.sizing, selection.bought
    fewer = replace(sizing, spares=SpareGroups(sizing.spares.count - 1))
    promise = SpotPromise(requirement, fewer, bought)
    share = promise.share(fewer.spares, base_groups(bought, fewer))
    return billed_rival(
        bought,
        fewer.nodes,
        bought_bill(requirement, fewer, bought, search.price_book),
        _unkept(requirement, share),
    )


def _unkept(requirement: ServingRequirement, share: float) -> Cause:
    """Return why a spare group on spot is there: for what is promised, or for what is survived.

    Else it lets the base be smaller, which costs less.
    """
    wanted = float(requirement.availability or 0)
    if share < wanted:
        return because(
            "availability", "sla.availability", reached=share, wanted=wanted
        )
    if requirement.survives is not None:
        return because("spare-node", "sla.survives")
    return because("price")


def _failure_reason(
    requirement: ServingRequirement,
    search: ServingSearch,
    sizing: FleetSizing,
    fewer: FleetSizing,
) -> Cause:
    if requirement.mode == "batch":
        slowest_s = run_time_s(
            requirement, fewer.replica, fewer.group, fewer.peak_groups
        )
        # More machines than the deadline needs are there because they cost less.
        is_late = slowest_s > requirement.deadline_s
        return because("late", "deadline") if is_late else because("price")
    # With spare groups one group fewer still carries the peak.
    if sizing.spares.count:
        return _missing_spare(requirement, sizing)
    rejection = search.judge.missed_limit(requirement, fewer)
    # Without a limit the load exceeds the completion rate or the slots.
    return (
        because("overload", "traffic")
        if rejection is None
        else rejection_reason(rejection)
    )


def _missing_spare(
    requirement: ServingRequirement, sizing: FleetSizing
) -> Cause:
    rule = spare_rule(requirement)
    share = up_share(
        rule,
        sizing.peak_groups,
        SpareGroups(sizing.spares.count - 1),
        sizing.nodes_per_group,
    )
    if rule.availability is not None and share < rule.availability:
        return because(
            "availability",
            "sla.availability",
            reached=share,
            wanted=rule.availability,
        )
    return because("spare-node", "sla.survives")

"""Judges fleets of one class of requests: with those that go either way, and without them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from planner.solve.serving.sizing import sized_fleet

if TYPE_CHECKING:
    from planner.perf.serving.replica import Replica
    from planner.solve.serving.length_class import LengthClass
    from planner.solve.serving.requirement import ServingRequirement
    from planner.solve.serving.search import ServingSearch
    from planner.solve.serving.sizing import FleetSizing, LayoutRejection


class ClassJudge:
    """Lets pass what surely keeps all limits with the most and with the fewest requests.

    What is between the two makes no limit harder: the share of late requests is convex in the
    load, and is divided by a number of requests that grows evenly. What a simulation cannot
    decide does not pass, because a class may have few requests that count.
    """

    def __init__(
        self, search: ServingSearch, length_class: LengthClass
    ) -> None:
        self._search = search
        self._least = length_class.least

    def misses(
        self, requirement: ServingRequirement, sizing: FleetSizing
    ) -> bool:
        """Return whether a fleet may miss a limit in one of both cases."""
        return not (
            self._holds(requirement, sizing)
            and self._holds(self._least, self._least_fleet(sizing))
        )

    def missed_limit(
        self, requirement: ServingRequirement, sizing: FleetSizing
    ) -> LayoutRejection | None:
        """Return the limit that a fleet misses in one of both cases."""
        judge = self._search.judge
        return judge.missed_limit(requirement, sizing) or judge.missed_limit(
            self._least, self._least_fleet(sizing)
        )

    def idle_rejection(
        self, requirement: ServingRequirement, replica: Replica
    ) -> LayoutRejection | None:
        """Return the limit that no number of groups keeps in one of both cases."""
        judge = self._search.judge
        return judge.idle_rejection(requirement, replica) or (
            judge.idle_rejection(self._least, self._least_replica(replica))
        )

    def _holds(
        self, requirement: ServingRequirement, sizing: FleetSizing
    ) -> bool:
        judge = self._search.judge
        # A miss is found much sooner than it is sure that there is none.
        if judge.misses(requirement, sizing):
            return False
        check = judge.check(requirement, sizing, 0)
        return check is None or check.verdict == "holds"

    def _least_fleet(self, sizing: FleetSizing) -> FleetSizing:
        return sized_fleet(
            self._least,
            self._least_replica(sizing.replica),
            sizing.group,
            sizing.peak_groups,
        )

    def _least_replica(self, replica: Replica) -> Replica:
        """Return the same layout on the same machine, with the lengths of the fewest requests."""
        return self._search.shared_replica(
            self._least, replica.layout, replica.node
        )

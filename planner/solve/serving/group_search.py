"""The fewest groups of a layout that pass the simulation, within a cost."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Protocol

from planner.solve.serving.cloud_limit import most_nodes
from planner.solve.serving.cost_bound import (
    most_groups_within,
    owned_usd,
)
from planner.solve.serving.group_bracket import GroupBracket
from planner.solve.serving.sizing import (
    MAX_GROUPS,
    SCREEN_FACTOR,
    FleetSizing,
    LayoutRejection,
    groups_ruled_out,
    idle_rejection,
    sized_fleet,
    unfit_rejection,
    unreachable_rejection,
    violated_limit,
)

if TYPE_CHECKING:
    from planner.cost.bill import Bill
    from planner.market.offer import Offer
    from planner.perf.serving.replica import Replica
    from planner.solve.serving.cost_bound import LayoutOption
    from planner.solve.serving.requirement import ServingRequirement
    from planner.solve.serving.sizing import ReplicaGroup


class GroupJudge(Protocol):
    """Who says whether a number of groups passes."""

    def misses(
        self, requirement: ServingRequirement, sizing: FleetSizing
    ) -> bool:
        """Return whether a fleet misses a limit; more groups miss none that fewer keep."""

    def missed_limit(
        self, requirement: ServingRequirement, sizing: FleetSizing
    ) -> LayoutRejection | None:
        """Return the limit that a fleet misses, None when it keeps all."""

    def idle_rejection(
        self, requirement: ServingRequirement, replica: Replica
    ) -> LayoutRejection | None:
        """Return the limit that no number of groups keeps, None when some may."""


class FleetPricer(Protocol):
    """What a search of groups asks of the search of fleets."""

    def bill(
        self, requirement: ServingRequirement, sizing: FleetSizing, offer: Offer
    ) -> Bill:
        """Return the monthly bill of a fleet bought through an offer."""

    def size_layout(
        self,
        requirement: ServingRequirement,
        replica: Replica,
        group: ReplicaGroup,
    ) -> FleetSizing | LayoutRejection:
        """Return the fewest groups by formula."""


class GroupSearch:
    """Finds the fewest groups of layouts for one requirement, and keeps what was said of them.

    One is made for each search: what an earlier one asked would decide which number of groups is
    named as too few. Runs of equal fleets are kept by the judge, so little is simulated again.
    """

    def __init__(
        self,
        requirement: ServingRequirement,
        pricer: FleetPricer,
        judge: GroupJudge,
    ) -> None:
        self._requirement = requirement
        self._pricer = pricer
        self._judge = judge
        self._brackets: dict[tuple[Replica, ReplicaGroup], GroupBracket] = {}

    def fewest(
        self,
        offer: Offer,
        layout_option: LayoutOption,
        limit_usd: float,
        *,
        tells_why: bool = True,
    ) -> FleetSizing | LayoutRejection | None:
        """Return the fewest groups that pass the simulation, or what they miss.

        The rejection is that of any number of groups, or of the most groups that cost at most
        `limit_usd`. None when a lower bound of the groups already costs more. With `tells_why` off
        also instead of a rejection that has to be measured, and where more groups are needed than
        may be had.
        """
        requirement = self._requirement
        replica, group, _ = layout_option
        rejection = unfit_rejection(
            requirement, replica, group
        ) or idle_rejection(requirement, replica, SCREEN_FACTOR)
        if rejection is not None:
            return rejection
        bracket = self._bracket(layout_option)
        ceiling = self._most_groups(
            offer, layout_option, bracket.too_few, limit_usd
        )
        if not tells_why:
            # Where nobody asks why, more than may be had are not looked for.
            ceiling = min(
                ceiling, most_nodes(requirement, offer, group) // group.nodes
            )
        estimate = self._estimated_groups(replica, group, ceiling)
        while (groups := bracket.next_groups(estimate, ceiling)) is not None:
            fleet = sized_fleet(requirement, replica, group, groups)
            # How far a limit is missed takes longer, and is of interest where no number passes.
            if not self._judge.misses(requirement, fleet):
                bracket.accept(groups)
                continue
            bracket.reject(groups)
            if bracket.enough is None and ceiling == math.inf:
                hopeless = self._hopeless(replica, groups)
                if hopeless is not None:
                    return hopeless
        # A fleet that passes may be known, and cost too much at this offer.
        if bracket.enough is not None and bracket.enough <= ceiling:
            return sized_fleet(requirement, replica, group, bracket.enough)
        if tells_why and bracket.is_untold:
            fleet = sized_fleet(requirement, replica, group, bracket.too_few)
            bracket.tell(self._judge.missed_limit(requirement, fleet))
        return bracket.rejection

    def _bracket(self, layout_option: LayoutOption) -> GroupBracket:
        replica, group, group_bound = layout_option
        return self._brackets.setdefault(
            (replica, group), GroupBracket(groups_ruled_out(group_bound))
        )

    def _hopeless(
        self, replica: Replica, groups: int
    ) -> LayoutRejection | None:
        """Return why more than `groups` groups do not pass either, None if they may."""
        if groups > MAX_GROUPS:
            return unreachable_rejection(self._requirement, replica)
        return self._judge.idle_rejection(self._requirement, replica)

    def _estimated_groups(
        self,
        replica: Replica,
        group: ReplicaGroup,
        ceiling: float,
    ) -> int | None:
        """Return the fewest groups by formula, None when they are more than `ceiling`."""
        requirement = self._requirement
        if ceiling < math.inf:
            largest_fleet = sized_fleet(
                requirement, replica, group, int(ceiling)
            )
            if violated_limit(largest_fleet.service, requirement.limits):
                return None
        estimate = self._pricer.size_layout(requirement, replica, group)
        return (
            estimate.peak_groups if isinstance(estimate, FleetSizing) else None
        )

    def _most_groups(
        self,
        offer: Offer,
        layout_option: LayoutOption,
        too_few: int,
        limit_usd: float,
    ) -> float:
        """Return the most groups that cost at most `limit_usd`, at least `too_few`."""
        requirement = self._requirement
        if limit_usd == math.inf:
            # Nothing is known to pass yet: the number that does is looked for.
            return math.inf
        replica, group, _ = layout_option

        def usd_month(groups: int) -> float:
            fleet = sized_fleet(requirement, replica, group, groups)
            return float(self._pricer.bill(requirement, fleet, offer).total)

        groups = max(
            too_few,
            math.floor(
                most_groups_within(requirement, offer, group, limit_usd)
            ),
        )
        # Without the machines that are owned so many groups would cost this more.
        saved_usd = owned_usd(requirement, offer)
        while groups > too_few and (cost_usd := usd_month(groups)) > limit_usd:
            # Part of the cost is fixed, so that this number is too large, or exact.
            share = (limit_usd + saved_usd) / (cost_usd + saved_usd)
            groups = max(too_few, min(groups - 1, math.ceil(groups * share)))
        return groups

"""The cheapest fleet as a spec allows it: of one pool, or of two where these cost less."""

from __future__ import annotations

import math
from copy import copy
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from msgspec.structs import replace

from planner import figures
from planner.solve.serving.apart_fleet import ApartFleet
from planner.solve.serving.apart_judge import ApartJudge, ChainEnd
from planner.solve.serving.apart_search import ApartSearch
from planner.solve.serving.best_fleets import CENT_USD
from planner.solve.serving.candidate import ServingCandidate
from planner.solve.serving.class_search import ClassSearch
from planner.solve.serving.effort import WISH_STEPS, Effort
from planner.solve.serving.hour_rule import follows_hours, needs_shares
from planner.solve.serving.hour_search import HourSearch
from planner.solve.serving.length_class import text_bytes
from planner.solve.serving.mixed_fleet import MixedFleet, pool_candidates
from planner.solve.serving.mixed_search import MixedSearch
from planner.solve.serving.own_hours import cheapest_by_hours

if TYPE_CHECKING:
    from decimal import Decimal

    from planner.market.offer_filter import OfferFilter
    from planner.perf.serving.trial import SimulatedPercentile
    from planner.solve.serving.length_class import TextBytes
    from planner.solve.serving.requirement import ServingRequirement
    from planner.solve.serving.search import ServingSearch
    from planner.spec.model import Batch, Inference, LatencyLimit

# Machines of each hour saved up to 6 % where that was measured: decision 112.
MOST_SAVED: Final = 1.1
# Of a limit: `explain --pareto` asks for no longer ones either.
MOST_TIMES: Final = 4
AnyFleet: TypeAlias = ServingCandidate | MixedFleet | ApartFleet


class FleetFinder:
    """Finds fleets of as many machine types as a spec allows, under its rules or without one.

    `text` is what the router divides requests by where a spec lets it; None where it does not.
    `pools` says whether machines that compute prompts also answer, as serving.pools of a spec.
    Each hour may have the machines that it takes, in place of a share of those of the peak.
    """

    def __init__(
        self,
        search: ServingSearch,
        offer_filter: OfferFilter,
        machine_types: int,
        pools: Literal["together", "auto"] = "together",
        text: TextBytes | None = None,
    ) -> None:
        self.search = search
        self.offer_filter = offer_filter
        self.machine_types = machine_types
        self.pools = pools
        self._text = text
        self._apart_judge: ApartJudge | None = None
        self._hours: HourSearch | None = None
        self._is_quick = False

    def quick(self) -> FleetFinder:
        """Return what leaves out the search for types by the hour, which takes seconds.

        It looks for the cheapest type by its peak, and then for its layout and its machines of
        each hour; where requests come in clumps, for the machines alone. What a wish would save is
        told by these fleets, so it may save more.
        """
        finder = copy(self)
        finder._is_quick = True  # noqa: SLF001 - a copy of its own kind
        return finder

    @classmethod
    def of_spec(
        cls,
        spec: Inference | Batch,
        search: ServingSearch,
        offer_filter: OfferFilter,
    ) -> FleetFinder:
        """Return what finds the fleets that a spec allows."""
        told_bytes = spec.stated_usage.get("prompt_bytes_per_token")
        is_divided = spec.serving.classes == "auto"
        return cls(
            search,
            offer_filter,
            spec.buy.machine_types,
            spec.serving.pools,
            text_bytes(told_bytes) if is_divided else None,
        )

    def cheapest(
        self, requirement: ServingRequirement, skipped_rule: str = ""
    ) -> AnyFleet | None:
        """Return the cheapest fleet; the rule `skipped_rule` is not applied."""
        return self._cheapest(requirement, math.inf, skipped_rule)

    def cheaper_than(
        self,
        usd: Decimal,
        requirement: ServingRequirement,
        skipped_rule: str = "",
    ) -> AnyFleet | None:
        """Return the cheapest fleet if it costs less than that by a cent or more."""
        return self._cheapest(requirement, float(usd), skipped_rule)

    def _cheapest(
        self,
        requirement: ServingRequirement,
        below_usd: float,
        skipped_rule: str,
    ) -> AnyFleet | None:
        ceiling_usd = below_usd - float(CENT_USD)
        alone = self.search.solve(
            requirement,
            self.offer_filter.cheapest(skipped_rule),
            # What costs a little more may cost less with the machines of each hour.
            ceiling_usd=MOST_SAVED * ceiling_usd
            if self._is_quick
            else ceiling_usd,
            tells_why=False,
        ).best
        mixed = self.cheaper_mix(
            requirement, alone, below_usd, skipped_rule=skipped_rule
        )
        found = mixed or alone
        # Looked for above that, or with more machines in quiet hours, it may cost too much.
        if found is None or float(found.bill.total) >= below_usd:
            return None
        return found

    @property
    def has_pools(self) -> bool:
        """Whether a spec allows more than one pool."""
        return (
            self.machine_types > 1
            or self.pools != "together"
            or self._text is not None
        )

    def is_bound_by(self, rule: str) -> bool:
        """Whether a rule on offers keeps any of them from a fleet; else no search is needed.

        Of one type the cheapest region is enough. Two types are in one region, which may be the
        cheapest of neither.
        """
        if self.offer_filter.cheapest(rule) != self.offer_filter.cheapest():
            return True
        return self.has_pools and set(
            self.offer_filter.everywhere(rule)
        ) != set(self.offer_filter.everywhere())

    def cheaper_mix(
        self,
        requirement: ServingRequirement,
        alone: ServingCandidate | None,
        ceiling_usd: float = math.inf,
        *,
        skipped_rule: str = "",
        effort: Effort | None = None,
    ) -> MixedFleet | ApartFleet | None:
        """Return a fleet that costs less than one pool `alone`, as far as a spec allows it.

        Its hours have the machines that they take, or it has two pools: either both get random
        shares of the requests, or each gets those of some lengths, or one computes prompts and
        the other one answers. Where the quiet hours of `alone` miss a limit, it may cost more.
        Of two types it is one that was seen with an `effort`.
        """
        offers = self.offer_filter.cheapest(skipped_rule)
        if self._is_quick:
            has_clumps = requirement.load.arrival_variation != 1
            offers = [] if alone is None or has_clumps else [alone.offer]
        effort = effort or Effort(WISH_STEPS)
        hours = self.hours_of(requirement)
        best = cheapest_by_hours(hours, alone, offers, ceiling_usd)
        known = best or alone
        if known is not None:
            ceiling_usd = min(ceiling_usd, float(known.bill.total))
        if self.pools == "auto":
            apart = ApartSearch(
                requirement, self.search, self.apart_judge(requirement)
            ).cheapest(self.offer_filter.everywhere(skipped_rule), ceiling_usd)
            return apart or best
        if self.machine_types > 1:
            best = (
                self._two_types(hours, ceiling_usd, skipped_rule, effort)
                or best
            )
        if self._text is None:
            return best
        if best is not None:
            ceiling_usd = min(ceiling_usd, float(best.bill.total))
        divided = ClassSearch(requirement, self.search, self._text).cheapest(
            self.offer_filter.cheapest(skipped_rule),
            self.offer_filter.everywhere(skipped_rule),
            ceiling_usd,
        )
        return divided or best

    def _two_types(
        self,
        hours: HourSearch,
        ceiling_usd: float,
        skipped_rule: str,
        effort: Effort,
    ) -> MixedFleet | None:
        """Return the cheapest fleet of two types, in all hours or each in hours of its own."""
        requirement = hours.requirement
        offers = [*self.offer_filter.everywhere(skipped_rule)]
        has_hours = not self._is_quick and follows_hours(requirement)
        always: MixedFleet | None = None
        if not has_hours or needs_shares(requirement, offers):
            always = MixedSearch(requirement, self.search, effort).cheapest(
                offers, ceiling_usd
            )
        if not has_hours:
            return always
        if always is not None:
            ceiling_usd = float(always.bill.total)
        return hours.cheapest_pair(offers, ceiling_usd, effort) or always

    def hours_of(self, requirement: ServingRequirement) -> HourSearch:
        """Return who searches hours; what was learned of the last requirement is kept."""
        if self._hours is None or self._hours.requirement != requirement:
            self._hours = HourSearch(requirement, self.search)
        return self._hours

    def apart_judge(self, requirement: ServingRequirement) -> ApartJudge:
        """Return who judges pools apart; the lengths of requests are those of the spec."""
        if self._apart_judge is None:
            self._apart_judge = ApartJudge(requirement.load)
        return self._apart_judge

    def apart_percentile(
        self,
        requirement: ServingRequirement,
        limit: LatencyLimit,
        fleet: ApartFleet,
    ) -> SimulatedPercentile:
        """Return what pools apart reach of a limit, as slow as a requirement asks."""
        prompts, answers = (
            ChainEnd(
                end.offer,
                self.search.shared_replica(
                    requirement, end.replica.layout, end.offer.instance.node
                ),
                end.replica_count,
            )
            for end in fleet.ends
        )
        return self.apart_judge(requirement).percentile(
            requirement, prompts, answers, limit
        )

    def looser_seconds(
        self,
        requirement: ServingRequirement,
        limit: LatencyLimit,
        fleet: AnyFleet,
    ) -> Decimal:
        """Return a value of a limit that a fleet keeps, or the longest that anybody would take."""
        return min(
            self._kept_seconds(requirement, limit, fleet),
            MOST_TIMES * limit.seconds,
        )

    def _kept_seconds(
        self,
        requirement: ServingRequirement,
        limit: LatencyLimit,
        fleet: AnyFleet,
    ) -> Decimal:
        """Return a value of a limit that a fleet keeps, each of its pools with its share."""
        if isinstance(fleet, ServingCandidate):
            return self.search.kept_seconds(requirement, limit, fleet)
        if isinstance(fleet, ApartFleet):
            return figures.printed_seconds(
                self.apart_percentile(requirement, limit, fleet).high_s
            )
        return max(
            self.search.kept_seconds(
                # What a pool carries, under other limits.
                replace(pool.requirement, limits=requirement.limits),
                limit,
                candidate,
            )
            for pool, candidate in zip(
                fleet.asked,
                pool_candidates(fleet.asked, fleet.bill),
                strict=True,
            )
        )

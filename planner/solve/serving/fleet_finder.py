"""The cheapest fleet as a spec allows it: of one machine type, or of two where these cost less."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, TypeAlias

from planner.solve.serving.best_fleets import CENT_USD
from planner.solve.serving.candidate import ServingCandidate
from planner.solve.serving.mixed_fleet import MixedFleet
from planner.solve.serving.mixed_search import MixedSearch

if TYPE_CHECKING:
    from decimal import Decimal

    from planner.market.offer_filter import OfferFilter
    from planner.solve.serving.requirement import ServingRequirement
    from planner.solve.serving.search import ServingSearch
    from planner.spec.model import LatencyLimit

AnyFleet: TypeAlias = ServingCandidate | MixedFleet


class FleetFinder:
    """Finds fleets of as many machine types as a spec allows, under its rules or without one."""

    def __init__(
        self,
        search: ServingSearch,
        offer_filter: OfferFilter,
        machine_types: int,
    ) -> None:
        self.search = search
        self.offer_filter = offer_filter
        self.machine_types = machine_types

    def cheapest(
        self, requirement: ServingRequirement, skipped_rule: str = ""
    ) -> AnyFleet | None:
        """Return the cheapest fleet; the rule `skipped_rule` is not applied."""
        alone = self.search.solve(
            requirement,
            self.offer_filter.cheapest(skipped_rule),
            tells_why=False,
        ).best
        mixed = self.cheaper_mix(requirement, alone, skipped_rule=skipped_rule)
        return mixed or alone

    def cheaper_than(
        self,
        usd: Decimal,
        requirement: ServingRequirement,
        skipped_rule: str = "",
    ) -> AnyFleet | None:
        """Return the cheapest fleet if it costs less than that by a cent or more."""
        alone = self.search.solve(
            requirement,
            self.offer_filter.cheapest(skipped_rule),
            ceiling_usd=float(usd - CENT_USD),
            tells_why=False,
        ).best
        mixed = self.cheaper_mix(
            requirement, alone, float(usd), skipped_rule=skipped_rule
        )
        return mixed or alone

    def is_bound_by(self, rule: str) -> bool:
        """Whether a rule on offers keeps any of them from a fleet; else no search is needed.

        Of one type the cheapest region is enough. Two types are in one region, which may be the
        cheapest of neither.
        """
        if self.offer_filter.cheapest(rule) != self.offer_filter.cheapest():
            return True
        return self.machine_types > 1 and set(
            self.offer_filter.everywhere(rule)
        ) != set(self.offer_filter.everywhere())

    def cheaper_mix(
        self,
        requirement: ServingRequirement,
        alone: ServingCandidate | None,
        ceiling_usd: float = math.inf,
        *,
        skipped_rule: str = "",
    ) -> MixedFleet | None:
        """Return a fleet of two types that costs less than one of one type, if two are allowed."""
        if self.machine_types == 1:
            return None
        if alone is not None:
            ceiling_usd = min(ceiling_usd, float(alone.bill.total))
        return MixedSearch(requirement, self.search).cheapest(
            self.offer_filter.everywhere(skipped_rule), ceiling_usd
        )

    def kept_seconds(
        self,
        requirement: ServingRequirement,
        limit: LatencyLimit,
        fleet: AnyFleet,
    ) -> Decimal:
        """Return a value of a limit that a fleet keeps, each of its pools with its share."""
        if isinstance(fleet, ServingCandidate):
            return self.search.kept_seconds(requirement, limit, fleet)
        return max(
            self.search.kept_seconds(
                requirement.with_share(pool.requirement.traffic_share),
                limit,
                candidate,
            )
            for pool, candidate in zip(
                fleet.pools, fleet.candidates, strict=True
            )
        )

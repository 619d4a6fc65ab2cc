"""Serving a model: requests that wait for an answer, and batches that do not."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any

from planner import figures
from planner.solve.cause import DEARER, INFEASIBLE, because
from planner.solve.serving.answer import confident_requirement, solve_serving
from planner.solve.serving.effort import PLAN_STEPS, Effort
from planner.solve.serving.fleet_finder import FleetFinder
from planner.solve.serving.hour_search import HourSearch
from planner.solve.serving.neighbor import machine_requirement
from planner.solve.serving.own_hours import cheapest_by_hours
from planner.solve.serving.rejection import rejection_reason
from planner.solve.serving.search import ServingSearch
from planner.solve.serving.smaller_fleet import smaller_fleet
from planner.solve.solution import (
    Counterfactual,
    FleetSummary,
    Solution,
)
from planner.spec.kinds import SPEC_KINDS

if TYPE_CHECKING:
    from collections.abc import Callable

    from planner.cost.lifetime import Period
    from planner.market.offer import Offer
    from planner.market.offer_filter import OfferFilter
    from planner.solve.settings import SolveSettings
    from planner.spec.field import Block
    from planner.spec.model import Batch, Inference
    from planner.workload.base import Workload


class ServingWorkload:
    """Inference, or a batch: the same search; a batch has a deadline instead of limits."""

    period: Period = "month"
    scaled_quantity = "traffic"

    def __init__(self, kind: str, name: str, *, resumes: bool) -> None:
        self.kind = kind
        self.name = name
        self.resumes = resumes

    @property
    def spec_block(self) -> Block:
        """The fields of its specs."""
        return SPEC_KINDS[self.kind]

    def check(
        self, spec: Inference | Batch, read_file: Callable[[str], bytes]
    ) -> None:
        """Raise what is wrong before any offer is looked at."""
        machine_requirement(spec, read_file)

    def solve(
        self,
        spec: Inference | Batch,
        settings: SolveSettings,
        offer_filter: OfferFilter,
    ) -> Solution:
        """Return the cheapest fleet that the simulation confirms."""
        return solve_serving(spec, settings, offer_filter)

    def explain_type(
        self,
        spec: Inference | Batch,
        settings: SolveSettings,
        machine_type: FleetSummary,
        offers: list[Offer],
    ) -> Counterfactual:
        """Search this machine type alone: its best fleet, or what it misses."""
        requirement = confident_requirement(spec, settings)
        search = ServingSearch(settings.catalog.price_book)
        search_result = search.solve(requirement, offers)
        alone = search_result.best
        if alone is not None:
            smaller = smaller_fleet(requirement, search, alone)
            best = (
                cheapest_by_hours(
                    HourSearch(requirement, search), alone, offers
                )
                or alone
            )
            return Counterfactual(
                best.summary,
                best.bill.total,
                DEARER,
                binding=smaller.rejected_by if smaller else None,
                is_partial=best.bill.is_partial,
            )
        reason = because("layout")
        # Offers are ordered by cost bound; the first one is reported.
        if search_result.rejected_offers:
            reason = rejection_reason(
                search_result.rejected_offers[0].rejection
            )
        return Counterfactual(machine_type, None, reason)

    def scale(
        self,
        spec: Inference | Batch,
        settings: SolveSettings,
        offer_filter: OfferFilter,
        factor: float,
    ) -> Counterfactual:
        """Return the fleet for so many times the traffic."""
        requirement = confident_requirement(spec, settings).with_scaled_load(
            factor
        )
        search = ServingSearch(settings.catalog.price_book)
        alone = search.solve(requirement, offer_filter.cheapest()).best
        finder = FleetFinder.of_spec(spec, search, offer_filter)
        effort = Effort(PLAN_STEPS)
        best = finder.cheaper_mix(requirement, alone, effort=effort) or alone
        if best is None:
            return Counterfactual(None, None, INFEASIBLE)
        return Counterfactual(
            best.summary,
            best.bill.total,
            None,
            is_partial=best.bill.is_partial,
        )

    def request_phrases(self, normalized: dict[str, Any]) -> list[str]:
        """Say the traffic in the unit in which the spec gives it."""
        traffic = normalized["traffic"]
        if "peak_rps" in traffic:
            peak_rps = figures.quantity(Decimal(traffic["peak_rps"]))
            return [f"peak {peak_rps} req/s"]
        if "requests_per_day" in traffic:
            return [f"{traffic['requests_per_day']:,} requests a day"]
        if "total_requests" in traffic:
            return [f"{traffic['total_requests']:,} requests"]
        if "concurrency" in traffic:
            return [f"{traffic['concurrency']:,} in flight"]
        return []


INFERENCE: Workload = ServingWorkload("Inference", "inference", resumes=False)
BATCH: Workload = ServingWorkload("Batch", "batch", resumes=True)

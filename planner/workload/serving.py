"""Serving a model: requests that wait for an answer, and batches that do not."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from planner import figures
from planner.cost.lifetime import life_hours
from planner.solve.cause import DEARER, INFEASIBLE, because
from planner.solve.serving.answer import confident_requirement, solve_serving
from planner.solve.serving.rejection import rejection_reason
from planner.solve.serving.requirement import serving_requirement
from planner.solve.serving.search import ServingSearch
from planner.solve.serving.smaller_fleet import smaller_fleet
from planner.solve.solution import (
    Counterfactual,
    FleetSummary,
    Solution,
    TokenVolume,
)
from planner.spec.kinds import SPEC_KINDS
from planner.units import (
    HOURS_PER_MONTH,
    SECONDS_PER_DAY,
    SECONDS_PER_MONTH,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from planner.cost.bill import Period
    from planner.market.offer import Offer
    from planner.market.offer_filter import OfferFilter
    from planner.solve.serving.requirement import ServingRequirement
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
        serving_requirement(spec, read_file)

    def solve(
        self,
        spec: Inference | Batch,
        settings: SolveSettings,
        offer_filter: OfferFilter,
    ) -> Solution:
        """Return the cheapest fleet that the simulation confirms."""
        solution = solve_serving(spec, settings, offer_filter)
        if solution.bill is None:
            return solution
        requirement = serving_requirement(spec, settings.read_file)
        request_count = _billed_requests(requirement, solution)
        load = requirement.load
        return replace(
            solution,
            token_volume=TokenVolume(
                request_count * Decimal(load.prompt_lengths.mean_tokens),
                request_count * Decimal(load.answer_lengths.mean_tokens),
            ),
        )

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
        best = search_result.best
        if best is not None:
            smaller = smaller_fleet(requirement, search, best)
            return Counterfactual(
                best.summary,
                best.bill.total,
                DEARER,
                binding=smaller.rejected_by if smaller else None,
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
        requirement = confident_requirement(spec, settings)
        best = (
            ServingSearch(settings.catalog.price_book)
            .solve(
                requirement.with_scaled_load(factor), offer_filter.cheapest()
            )
            .best
        )
        if best is None:
            return Counterfactual(None, None, INFEASIBLE)
        return Counterfactual(best.summary, best.bill.total, None)

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


def _billed_requests(
    requirement: ServingRequirement, solution: Solution
) -> Decimal:
    """Return the requests that are served in the period of the bill.

    one batch:    its requests
    daily batch:  requests of a day * days of the period; a last day may be cut off
    serving:      requests a month * hours of the life / 730
    A closed loop serves predicted rate * mean load * 730 h in a month.
    """
    ttl_s = requirement.shutdown.ttl
    if requirement.mode == "batch":
        if not requirement.runs_daily:
            return requirement.request_count
        if ttl_s is None:
            return requirement.requests_per_month
        whole_days, rest_s = divmod(ttl_s, Decimal(SECONDS_PER_DAY))
        run_s = (
            Decimal(solution.predictions["duration_days"].value)
            * SECONDS_PER_DAY
        )
        # The run of the last day does not end when the machines are given back before.
        return requirement.request_count * (
            whole_days + min(Decimal(1), rest_s / run_s)
        )
    monthly_requests = requirement.requests_per_month
    if requirement.mode == "closed":
        mean_rate = (
            solution.predictions["requests_per_s"].value
            * requirement.week.mean_load
        )
        monthly_requests = Decimal(mean_rate) * SECONDS_PER_MONTH
    life = solution.bill.life if solution.bill else None
    return monthly_requests * life_hours(life) / HOURS_PER_MONTH


INFERENCE: Workload = ServingWorkload("Inference", "inference", resumes=False)
BATCH: Workload = ServingWorkload("Batch", "batch", resumes=True)

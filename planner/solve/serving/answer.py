"""From a serving spec to a solution: the cheapest fleet that the simulation confirms."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from planner.perf.serving.replica import NO_MARGIN_LEVEL
from planner.solve.cause import because
from planner.solve.serving.explain import (
    alternatives,
    bindings,
    describe_fleet,
    relaxations,
)
from planner.solve.serving.predict import predict_serving
from planner.solve.serving.requirement import (
    ServingRequirement,
    serving_requirement,
)
from planner.solve.serving.search import (
    ServingCandidate,
    ServingResult,
    ServingSearch,
)
from planner.solve.serving.verify import verify_finalists
from planner.solve.solution import (
    ConfidenceCost,
    PlanWarning,
    SimulationCheck,
    SizedPool,
    Solution,
    bought_offer,
    infeasible_solution,
)
from planner.solve.warning import price_warnings

if TYPE_CHECKING:
    from planner.market.offer import Offer
    from planner.market.offer_filter import OfferFilter
    from planner.solve.settings import SolveSettings
    from planner.spec.model import Batch, Inference

MIN_FINALISTS: Final = 4  # that may replace each other when simulated


def confident_requirement(
    spec: Inference | Batch, settings: SolveSettings
) -> ServingRequirement:
    """Return what a spec needs, to be met with the wished confidence."""
    return replace(
        serving_requirement(spec, settings.read_file),
        confidence=settings.confidence,
    )


def solve_serving(
    spec: Inference | Batch,
    settings: SolveSettings,
    offer_filter: OfferFilter,
) -> Solution:
    """Return the cheapest fleet that meets a spec, or the nearest that would do."""
    requirement = confident_requirement(spec, settings)
    search = ServingSearch(settings.catalog.price_book)
    offers = offer_filter.cheapest()
    finalists = search.solve(
        requirement,
        offers,
        result_count=max(MIN_FINALISTS, settings.alternative_count + 1),
    )
    selection, simulation_check = _verified(requirement, finalists, search)
    budget_usd = spec.buy.budget
    if selection is None or (
        budget_usd is not None and selection.bill.total > budget_usd
    ):
        exceeded_budget = budget_usd if finalists.candidates else None
        nearest = relaxations(
            requirement, search, offer_filter, exceeded_budget
        )
        return infeasible_solution(
            nearest,
            week=requirement.week,
            llm=requirement.llm,
            funnel=offer_filter.funnel,
            offers_considered=len(settings.catalog.offers),
        )
    excluded_candidates = _excluded_by_purchase(
        requirement, search, offer_filter, selection, settings
    )
    return Solution(
        status="optimal",
        pools=(_serving_pool(requirement, selection),),
        predictions=predict_serving(requirement, selection.sizing),
        bindings=bindings(
            requirement, search, offer_filter, selection, excluded_candidates
        ),
        alternatives=alternatives(
            requirement,
            finalists,
            excluded_candidates,
            settings.alternative_count,
            selection,
        ),
        bill=selection.bill,
        warnings=_serving_warnings(
            spec, requirement, selection, simulation_check
        ),
        week=requirement.week,
        llm=requirement.llm,
        funnel=offer_filter.funnel,
        offers_considered=offer_filter.allowed_count,
        confidence_cost=_confidence_cost(
            requirement, search, offers, selection
        ),
        simulation_check=simulation_check,
        calibration=selection.sizing.replica.correction,
    )


def _verified(
    requirement: ServingRequirement,
    finalists: ServingResult,
    search: ServingSearch,
) -> tuple[ServingCandidate | None, SimulationCheck | None]:
    """Return the cheapest finalist that the simulation confirms, and how it did."""
    if not finalists.candidates:
        return None, None
    return verify_finalists(requirement, finalists.candidates, search.bill)


def _serving_pool(
    requirement: ServingRequirement, selection: ServingCandidate
) -> SizedPool:
    sizing = selection.sizing
    spare_groups = sizing.total_groups - sizing.peak_groups
    hourly_nodes = requirement.week.hourly_nodes(
        sizing.peak_groups, sizing.nodes_per_group, spare_groups
    )
    runs_daily = requirement.runs_per_month > 1
    role = requirement.role
    return SizedPool(
        name=role,
        **bought_offer(selection.offer, sizing.nodes),
        min_nodes=min(node_count for node_count in hourly_nodes if node_count),
        nodes_per_group=sizing.nodes_per_group,
        replicas=sizing.replicas_per_group * sizing.total_groups,
        role=role,
        layout=sizing.layout,
        max_batch=sizing.replica.max_batch,
        spare_groups=spare_groups,
        context_tokens=requirement.load.max_context_tokens,
        run_window_s=int(requirement.deadline_s) if runs_daily else 0,
    )


def _excluded_by_purchase(
    requirement: ServingRequirement,
    search: ServingSearch,
    offer_filter: OfferFilter,
    selection: ServingCandidate,
    settings: SolveSettings,
) -> list[ServingCandidate]:
    """Cheaper fleets that only the way of buying keeps out."""
    candidates = search.solve(
        requirement,
        offer_filter.cheapest("buy"),
        result_count=settings.alternative_count,
    ).candidates
    return [
        candidate
        for candidate in candidates
        if candidate.bill.total < selection.bill.total
    ]


def _confidence_cost(
    requirement: ServingRequirement,
    search: ServingSearch,
    offers: list[Offer],
    selection: ServingCandidate,
) -> ConfidenceCost | None:
    """What meeting the limits with confidence costs over meeting them as often as not."""
    if (
        not requirement.limits
        or requirement.confidence.level <= NO_MARGIN_LEVEL
    ):
        return None
    even_candidates = search.solve(
        replace(
            requirement,
            confidence=replace(requirement.confidence, level=NO_MARGIN_LEVEL),
        ),
        offers,
    ).candidates
    extra_usd_month = (
        selection.bill.total - even_candidates[0].bill.total
        if even_candidates
        else Decimal(0)
    )
    return ConfidenceCost(
        requirement.confidence.level,
        extra_usd_month,
        describe_fleet(even_candidates[0]) if extra_usd_month else None,
    )


def _serving_warnings(
    spec: Inference | Batch,
    requirement: ServingRequirement,
    selection: ServingCandidate,
    simulation_check: SimulationCheck | None,
) -> tuple[PlanWarning, ...]:
    plan_warnings = [
        PlanWarning(code="assumed-model", reason=note)
        for note in requirement.notes
    ]
    if simulation_check is not None and not simulation_check.passed:
        plan_warnings.append(
            PlanWarning(code="unverified", reason=because("unverified"))
        )
    if (
        requirement.confidence.correction is not None
        and selection.sizing.replica.correction is None
    ):
        calibration = requirement.confidence.correction
        plan_warnings.append(
            PlanWarning(
                code="calibration",
                reason=because(
                    "other-calibration",
                    model=calibration.model,
                    accelerator=calibration.accelerator,
                ),
            )
        )
    if selection.offer.purchase == "spot":
        plan_warnings.append(
            PlanWarning(
                code="spot", reason=because("spot"), place=spec.buy.place
            )
        )
    return (
        *plan_warnings,
        *price_warnings(selection.offer, selection.bill.unpriced_lines),
    )

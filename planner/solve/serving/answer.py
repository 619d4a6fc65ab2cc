"""From a serving spec to a solution: the cheapest fleet that the simulation confirms."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from planner.market.owned import paid_machines
from planner.solve.serving.alternative import (
    alternatives,
    dearer_pool,
    rejected_rivals,
)
from planner.solve.serving.apart_answer import apart_solution
from planner.solve.serving.apart_fleet import ApartFleet
from planner.solve.serving.class_warning import class_warnings
from planner.solve.serving.commitment import commitment_options, owned_uses
from planner.solve.serving.effort import PLAN_STEPS, Effort
from planner.solve.serving.fleet_finder import FleetFinder
from planner.solve.serving.load_curve import load_curve
from planner.solve.serving.mixed_answer import mixed_solution
from planner.solve.serving.neighbor import (
    machine_requirement,
    with_confidence,
)
from planner.solve.serving.pool_answer import (
    choice_warnings,
    serving_pool,
    serving_warnings,
    simulation_check_of,
)
from planner.solve.serving.predict import predict_serving
from planner.solve.serving.quiet_hours import quiet_hour_warnings
from planner.solve.serving.reason import asked_confidence, find_reasons
from planner.solve.serving.relaxation import relaxations
from planner.solve.serving.search import ServingResult, ServingSearch
from planner.solve.serving.shared_answer import (
    all_volume,
    sized_services,
)
from planner.solve.serving.unused_spot import (
    refused_spot_warnings,
    undecided_batch_warnings,
    unused_spot_warnings,
)
from planner.solve.solution import (
    LoadPoint,
    Solution,
    infeasible_solution,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from decimal import Decimal

    from planner.market.bought import CommitmentSaving
    from planner.market.offer_filter import OfferFilter
    from planner.solve.rival import RivalFleet
    from planner.solve.serving.candidate import ServingCandidate
    from planner.solve.serving.fleet_finder import AnyFleet
    from planner.solve.serving.mixed_fleet import MixedFleet
    from planner.solve.serving.requirement import ServingRequirement
    from planner.solve.serving.sizing import FleetSizing
    from planner.solve.settings import SolveSettings
    from planner.solve.solution import PlanWarning
    from planner.spec.model import Batch, Inference


def confident_requirement(
    spec: Inference | Batch, settings: SolveSettings
) -> ServingRequirement:
    """Return what a spec needs, to be met with the wished confidence."""
    requirement = machine_requirement(spec, settings.read_file)
    return replace(
        with_confidence(requirement, settings.confidence),
        layout=settings.layout,
    )


def solve_serving(
    spec: Inference | Batch,
    settings: SolveSettings,
    offer_filter: OfferFilter,
) -> Solution:
    """Return the cheapest fleet that meets a spec, or the nearest that would do."""
    requirement = confident_requirement(spec, settings)
    search = settings.memory.get(
        ServingSearch, lambda: ServingSearch(settings.catalog.price_book)
    )
    search_result = search.solve(
        requirement,
        offer_filter.cheapest(),
        estimate_count=settings.alternative_count,
    )
    finder = FleetFinder.of_spec(spec, search, offer_filter)
    selection = search_result.best
    effort = Effort(PLAN_STEPS)
    mixed = finder.cheaper_mix(requirement, selection, effort=effort)
    known = mixed or selection
    budget_usd = spec.buy.budget
    if effort.unseen_usd < math.inf and (
        known is None or known.bill.exceeds(budget_usd)
    ):
        # That nothing does is proved, however long it takes.
        effort = Effort()
        within_usd = known.bill.period_budget(budget_usd) if known else None
        within = finder.cheaper_mix(
            requirement,
            selection,
            math.inf if within_usd is None else float(within_usd),
            effort=effort,
        )
        mixed = within or mixed
    solution = _solution(
        spec,
        settings,
        finder,
        requirement=requirement,
        search_result=search_result,
        mixed=mixed,
    )
    if solution.bill is None:
        return solution
    gap = effort.gap(solution.bill.total)
    return replace(
        solution, gap=gap, status="feasible" if gap else solution.status
    )


def _solution(
    spec: Inference | Batch,
    settings: SolveSettings,
    finder: FleetFinder,
    *,
    requirement: ServingRequirement,
    search_result: ServingResult,
    mixed: MixedFleet | ApartFleet | None,
) -> Solution:
    """Return the solution of the cheapest fleet: what costs less than one pool, or one pool."""
    search, selection = finder.search, search_result.best
    budget_usd = spec.buy.budget
    if mixed is not None and not mixed.bill.exceeds(budget_usd):
        if isinstance(mixed, ApartFleet):
            return apart_solution(
                spec,
                settings,
                finder,
                requirement,
                fleet=mixed,
                alone=selection,
            )
        return mixed_solution(
            spec,
            settings,
            finder,
            requirement,
            fleet=mixed,
            rivals=_rivals(requirement, search, search_result, mixed, settings),
        )
    if selection is None or selection.bill.exceeds(budget_usd):
        return _infeasible(
            settings,
            finder,
            requirement,
            cheapest=mixed or selection,
            budget_usd=budget_usd,
            rejected=rejected_rivals(search_result, settings.alternative_count),
        )
    return _found_solution(
        spec,
        settings,
        finder,
        requirement=requirement,
        search_result=search_result,
        selection=selection,
    )


def _infeasible(
    settings: SolveSettings,
    finder: FleetFinder,
    requirement: ServingRequirement,
    *,
    cheapest: AnyFleet | None,
    budget_usd: Decimal | None,
    rejected: tuple[RivalFleet, ...],
) -> Solution:
    """Return that nothing serves, with what would; `cheapest` is beyond the budget.

    Without one, all fleets are `rejected`: they miss a limit.
    """
    offer_filter = finder.offer_filter
    infeasible = infeasible_solution(
        relaxations(
            requirement,
            finder.quick(),
            cheapest.bill.period_budget(budget_usd) if cheapest else None,
            settings.run_all,
        )
        if settings.names_nearest
        else (),
        week=requirement.week,
        llm=requirement.llm,
        funnel=offer_filter.funnel,
        offers_considered=len(settings.catalog.offers),
        rejected=() if cheapest else rejected,
    )
    refused = refused_spot_warnings(requirement, offer_filter.cheapest())
    return replace(infeasible, warnings=tuple(refused))


def _rivals(
    requirement: ServingRequirement,
    search: ServingSearch,
    search_result: ServingResult,
    fleet: MixedFleet,
    settings: SolveSettings,
) -> tuple[RivalFleet, ...]:
    """Return other fleets than one whose machines are not a share of those of its peak."""
    alone = search_result.best
    if alone is None or len(fleet.pools) > 1:
        return dearer_pool(alone)
    return alternatives(
        requirement, search, search_result, alone, settings.alternative_count
    )


def _found_solution(
    spec: Inference | Batch,
    settings: SolveSettings,
    finder: FleetFinder,
    *,
    requirement: ServingRequirement,
    search_result: ServingResult,
    selection: ServingCandidate,
) -> Solution:
    search, offer_filter = finder.search, finder.offer_filter
    simulation_check = simulation_check_of(requirement, search, selection)
    sizing = selection.sizing
    predictions = predict_serving(requirement, sizing)
    services = sized_services(spec, requirement, sizing, search.judge)
    pool = serving_pool(requirement, search, selection, services=services)
    owned = paid_machines(spec, settings.catalog, settings.read_file)
    is_undecided = simulation_check is not None and (
        simulation_check.verdict == "undecided"
    )
    return Solution(
        # Nothing cheaper passes, but other requests may not confirm that this fleet does.
        status="feasible" if is_undecided else "optimal",
        pools=(pool,),
        predictions=predictions,
        bindings=(),
        alternatives=alternatives(
            requirement,
            search,
            search_result,
            selection,
            settings.alternative_count,
        ),
        bill=selection.bill,
        warnings=_fleet_warnings(
            spec,
            settings,
            finder,
            requirement,
            selection,
            is_undecided=is_undecided,
        ),
        week=requirement.week,
        llm=requirement.llm,
        funnel=offer_filter.funnel,
        offers_considered=offer_filter.allowed_count,
        confidence_cost=asked_confidence(requirement),
        simulation_check=simulation_check,
        calibration=sizing.replica.correction,
        token_volume=all_volume(
            requirement, predictions, sizing, selection.bill
        ),
        commitments=_commitments(requirement, selection, settings),
        owned=tuple(owned_uses(requirement, selection, owned)),
        find_reasons=partial(
            find_reasons, requirement, finder, selection, settings.run_all
        ),
        find_load_curve=_load_curve_finder(requirement, sizing),
    )


def _fleet_warnings(
    spec: Inference | Batch,
    settings: SolveSettings,
    finder: FleetFinder,
    requirement: ServingRequirement,
    selection: ServingCandidate,
    *,
    is_undecided: bool,
) -> tuple[PlanWarning, ...]:
    return (
        *serving_warnings(
            spec,
            requirement,
            finder.search,
            selection,
            is_undecided=is_undecided,
        ),
        *choice_warnings(spec, requirement, (selection.sizing.layout,)),
        *class_warnings(spec, None),
        *quiet_hour_warnings(
            requirement, selection.sizing, finder.search.judge
        ),
        *unused_spot_warnings(
            spec, requirement, finder.offer_filter.cheapest(), selection
        ),
        *undecided_batch_warnings(
            spec, finder.offer_filter, settings.catalog, selection.bought
        ),
    )


def _commitments(
    requirement: ServingRequirement,
    selection: ServingCandidate,
    settings: SolveSettings,
) -> tuple[CommitmentSaving, ...]:
    return tuple(
        commitment_options(
            requirement, selection, settings.catalog, settings.futures
        )
    )


def _load_curve_finder(
    requirement: ServingRequirement, sizing: FleetSizing
) -> Callable[[], tuple[LoadPoint, ...]] | None:
    """Return what predicts a fleet at other loads; nothing of a batch, which has no latency."""
    if requirement.mode == "batch":
        return None
    return partial(load_curve, requirement, sizing)

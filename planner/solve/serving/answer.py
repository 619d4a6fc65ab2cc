"""From a serving spec to a solution: the cheapest fleet that the simulation confirms."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from planner.market.owned import owned_machines
from planner.solve.cause import because
from planner.solve.serving.alternative import alternatives
from planner.solve.serving.commitment import commitment_options, owned_uses
from planner.solve.serving.elastic import elastic_range
from planner.solve.serving.load_curve import load_curve
from planner.solve.serving.predict import predict_serving
from planner.solve.serving.reason import asked_confidence, find_reasons
from planner.solve.serving.relaxation import relaxations
from planner.solve.serving.requirement import (
    ServingRequirement,
    serving_requirement,
)
from planner.solve.serving.search import ServingResult, ServingSearch
from planner.solve.serving.sizing import (
    FleetSizing,
    size_fleet,
    startup_time_s,
)
from planner.solve.serving.spot_promise import has_promise
from planner.solve.serving.spot_range import promise_at_both_ends
from planner.solve.serving.token_volume import token_volume
from planner.solve.solution import (
    LoadPoint,
    PlanWarning,
    SimulationCheck,
    SizedPool,
    Solution,
    bought_offer,
    infeasible_solution,
)
from planner.solve.warning import idle_network_warnings, price_warnings
from planner.spec.model import Inference

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from planner.market.offer_filter import OfferFilter
    from planner.solve.serving.candidate import ServingCandidate
    from planner.solve.settings import SolveSettings
    from planner.spec.model import Batch


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
    search = settings.memory.get(
        ServingSearch, lambda: ServingSearch(settings.catalog.price_book)
    )
    search_result = search.solve(
        requirement,
        offer_filter.cheapest(),
        estimate_count=settings.alternative_count,
    )
    selection = search_result.best
    budget_usd = spec.buy.budget
    if selection is None or selection.bill.exceeds(budget_usd):
        return infeasible_solution(
            relaxations(
                requirement,
                search,
                offer_filter,
                selection.bill.period_budget(budget_usd) if selection else None,
                settings.run_all,
            ),
            week=requirement.week,
            llm=requirement.llm,
            funnel=offer_filter.funnel,
            offers_considered=len(settings.catalog.offers),
        )
    return _found_solution(
        spec,
        settings,
        offer_filter,
        search,
        requirement=requirement,
        search_result=search_result,
        selection=selection,
    )


def _found_solution(
    spec: Inference | Batch,
    settings: SolveSettings,
    offer_filter: OfferFilter,
    search: ServingSearch,
    *,
    requirement: ServingRequirement,
    search_result: ServingResult,
    selection: ServingCandidate,
) -> Solution:
    simulation_check = _simulation_check(requirement, search, selection)
    predictions = predict_serving(requirement, selection.sizing)
    owned = owned_machines(spec, settings.read_file)
    is_undecided = (
        simulation_check is not None and simulation_check.verdict == "undecided"
    )
    return Solution(
        # Nothing cheaper passes, but other requests may not confirm that this fleet does.
        status="feasible" if is_undecided else "optimal",
        pools=(_serving_pool(requirement, search, selection),),
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
        warnings=_serving_warnings(
            spec, requirement, search, selection, is_undecided=is_undecided
        ),
        week=requirement.week,
        llm=requirement.llm,
        funnel=offer_filter.funnel,
        offers_considered=offer_filter.allowed_count,
        confidence_cost=asked_confidence(requirement),
        simulation_check=simulation_check,
        calibration=selection.sizing.replica.correction,
        token_volume=token_volume(requirement, predictions, selection.bill),
        commitments=tuple(
            commitment_options(
                requirement, selection, settings.catalog, settings.futures
            )
        ),
        owned=tuple(owned_uses(requirement, selection, owned)),
        find_reasons=partial(
            find_reasons,
            requirement,
            search,
            offer_filter,
            selection,
            settings.run_all,
        ),
        find_load_curve=_load_curve_finder(requirement, selection.sizing),
    )


def _load_curve_finder(
    requirement: ServingRequirement, sizing: FleetSizing
) -> Callable[[], tuple[LoadPoint, ...]] | None:
    """Return what predicts a fleet at other loads; nothing of a batch, which has no latency."""
    if requirement.mode == "batch":
        return None
    return partial(load_curve, requirement, sizing)


def _simulation_check(
    requirement: ServingRequirement,
    search: ServingSearch,
    selection: ServingCandidate,
) -> SimulationCheck | None:
    """Return how the selection was judged, and how many groups that added."""
    sizing = selection.sizing
    by_formula = size_fleet(
        requirement,
        sizing.replica,
        sizing.group,
    )
    formula_groups = (
        by_formula.peak_groups
        if isinstance(by_formula, FleetSizing)
        else sizing.peak_groups
    )
    return search.judge.check(
        requirement, sizing, max(0, sizing.peak_groups - formula_groups)
    )


def _serving_pool(
    requirement: ServingRequirement,
    search: ServingSearch,
    selection: ServingCandidate,
) -> SizedPool:
    sizing = selection.sizing
    hourly_nodes = requirement.week.hourly_nodes(
        sizing.peak_groups, sizing.nodes_per_group, sizing.spares
    )
    role = requirement.role
    return SizedPool(
        name=role,
        **bought_offer(selection.bought, sizing.nodes, sizing.nodes_per_group),
        min_nodes=min(node_count for node_count in hourly_nodes if node_count),
        nodes_per_group=sizing.nodes_per_group,
        replicas=sizing.replicas_per_group * sizing.total_groups,
        role=role,
        layout=sizing.layout,
        max_batch=sizing.replica.max_batch,
        spares=sizing.spares,
        context_tokens=requirement.load.max_context_tokens,
        token_budget=sizing.replica.startup_memory.max_step_tokens,
        startup_s=startup_time_s(sizing.replica),
        elastic=elastic_range(requirement, sizing, search.judge),
        run_window_s=int(requirement.deadline_s)
        if requirement.runs_daily
        else 0,
    )


def _serving_warnings(
    spec: Inference | Batch,
    requirement: ServingRequirement,
    search: ServingSearch,
    selection: ServingCandidate,
    *,
    is_undecided: bool,
) -> tuple[PlanWarning, ...]:
    plan_warnings = [
        PlanWarning(code="assumed-model", reason=note)
        for note in requirement.notes
    ]
    if is_undecided:
        plan_warnings.append(PlanWarning(code="edge", reason=because("edge")))
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
    return (
        *plan_warnings,
        *_sleep_warnings(spec, selection),
        *_purchase_warnings(spec, selection),
        *_spot_warnings(spec, requirement, search, selection),
        *idle_network_warnings(selection.bill, requirement.week),
        *price_warnings(selection.bought, selection.bill.unpriced_lines),
    )


def _sleep_warnings(
    spec: Inference | Batch, selection: ServingCandidate
) -> Iterator[PlanWarning]:
    """Yield what to know of a service that may have no machine."""
    elastic = spec.elastic if isinstance(spec, Inference) else None
    if elastic is not None and not elastic.least:
        startup_s = startup_time_s(selection.sizing.replica)
        reason = because("asleep", startup_s=startup_s)
        yield PlanWarning(code="asleep", reason=reason, place=elastic.place)


def _purchase_warnings(
    spec: Inference | Batch, selection: ServingCandidate
) -> Iterator[PlanWarning]:
    """Yield what to know of the way in which machines are bought."""
    offer, sizing = selection.bought, selection.sizing
    reserved = offer.reservation
    if (
        reserved is not None
        and isinstance(spec, Inference)
        and spec.update != "recreate"
        and sizing.nodes == reserved.machines
    ):
        reason = because("reserved-roll", machines=reserved.machines)
        yield PlanWarning(code="roll", reason=reason, place=spec.buy.place)


def _spot_warnings(
    spec: Inference | Batch,
    requirement: ServingRequirement,
    search: ServingSearch,
    selection: ServingCandidate,
) -> Iterator[PlanWarning]:
    """Yield which machines may be taken back, and what is promised all the same."""
    offer, sizing = selection.bought, selection.sizing
    if "spot" not in offer.purchases:
        return
    reason = because("spot")
    if offer.mix is not None:
        *_, (base_nodes, _) = offer.mix.spans(
            sizing.nodes, sizing.nodes_per_group
        )
        reason = because("spot-base", nodes=sizing.nodes, base_nodes=base_nodes)
    yield PlanWarning(code="spot", reason=reason, place=spec.buy.place)
    if has_promise(requirement, offer):
        ends = promise_at_both_ends(requirement, selection, search.price_book)
        yield PlanWarning(
            code="spot-promise", reason=ends, place=spec.buy.place
        )

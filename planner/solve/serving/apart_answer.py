"""The answer where one pool computes prompts and another one answers."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from planner.solve.cause import because
from planner.solve.serving.apart_predict import predict_apart
from planner.solve.serving.commitment import commitment_options
from planner.solve.serving.mixed_answer import (
    alternatives_of,
    billed_candidates,
    joined_commitments,
    pools_correction,
    pools_owned,
    pools_warnings,
)
from planner.solve.serving.pool_answer import choice_warnings, serving_pool
from planner.solve.serving.reason import asked_confidence, find_reasons
from planner.solve.serving.token_volume import token_volume
from planner.solve.solution import PlanWarning, Solution

if TYPE_CHECKING:
    from collections.abc import Iterator

    from planner.solve.serving.apart_fleet import ApartFleet
    from planner.solve.serving.candidate import ServingCandidate
    from planner.solve.serving.fleet_finder import FleetFinder
    from planner.solve.serving.requirement import ServingRequirement
    from planner.solve.settings import SolveSettings
    from planner.spec.model import Batch, Inference


def apart_solution(
    spec: Inference | Batch,
    settings: SolveSettings,
    finder: FleetFinder,
    requirement: ServingRequirement,
    *,
    fleet: ApartFleet,
    alone: ServingCandidate | None,
) -> Solution:
    """Return the answer with a pool for prompts and one for answers.

    `alone` is the cheapest fleet whose machines do both, which costs more.
    """
    search, offer_filter = finder.search, finder.offer_filter
    judge = finder.apart_judge(requirement)
    candidates = billed_candidates(fleet)
    predictions = predict_apart(requirement, fleet, judge)
    check = judge.check(requirement, *fleet.ends)
    is_undecided = check is not None and check.verdict == "undecided"
    return Solution(
        status="feasible" if is_undecided else "optimal",
        pools=tuple(
            serving_pool(pool.requirement, search, candidate, name=pool.name)
            for pool, candidate in candidates
        ),
        predictions=predictions,
        bindings=(),
        alternatives=alternatives_of(alone),
        bill=fleet.bill,
        warnings=(
            *pools_warnings(
                spec, search, candidates, is_undecided=is_undecided
            ),
            *choice_warnings(
                spec,
                requirement,
                tuple(pool.sizing.layout for pool in fleet.pools),
            ),
            *_apart_warnings(spec, finder, requirement, fleet, alone),
        ),
        week=requirement.week,
        llm=requirement.llm,
        funnel=offer_filter.funnel,
        offers_considered=offer_filter.allowed_count,
        confidence_cost=asked_confidence(requirement),
        simulation_check=check,
        calibration=pools_correction(fleet),
        token_volume=token_volume(requirement, predictions, fleet.bill),
        commitments=joined_commitments(
            commitment_options(
                pool.requirement, candidate, settings.catalog, settings.futures
            )
            for pool, candidate in candidates
        ),
        owned=tuple(pools_owned(spec, settings, candidates)),
        find_reasons=partial(
            find_reasons,
            requirement,
            finder,
            candidates[0][1],
            settings.run_all,
            fleet=fleet,
        ),
    )


def _apart_warnings(
    spec: Inference | Batch,
    finder: FleetFinder,
    requirement: ServingRequirement,
    fleet: ApartFleet,
    alone: ServingCandidate | None,
) -> Iterator[PlanWarning]:
    """Yield what pools apart save, and how long caches are on their way."""
    reason = because("apart-only")
    if alone is not None:
        saved_usd = alone.bill.total - fleet.bill.total
        reason = because("apart-saves", saved_usd=saved_usd)
    yield PlanWarning(code="apart", reason=reason, place=spec.serving.place)
    load = requirement.load
    link = finder.apart_judge(requirement).link(*fleet.ends)
    # What is computed of a prompt: its cached part is sent all the same.
    handed_s = link.seconds(
        round(load.prompt_lengths.mean_tokens * (1 - load.prefix_hit))
    )
    yield PlanWarning(
        code="hand-over",
        reason=because("hand-over", handed_s=handed_s / link.factor),
        place=spec.serving.place,
    )

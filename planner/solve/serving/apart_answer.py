"""The answer where one pool computes prompts and another one answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from planner.solve.cause import because
from planner.solve.serving.alternative import dearer_pool
from planner.solve.serving.apart_predict import predict_apart
from planner.solve.serving.mixed_answer import PoolsAnswer, pools_solution
from planner.solve.serving.pool_answer import serving_pool
from planner.solve.solution import PlanWarning

if TYPE_CHECKING:
    from collections.abc import Iterator

    from planner.solve.serving.apart_fleet import ApartFleet
    from planner.solve.serving.candidate import ServingCandidate
    from planner.solve.serving.fleet_finder import FleetFinder
    from planner.solve.serving.requirement import ServingRequirement
    from planner.solve.settings import SolveSettings
    from planner.solve.solution import Solution
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
    judge = finder.apart_judge(requirement)
    return pools_solution(
        spec,
        settings,
        finder,
        requirement,
        fleet=fleet,
        answer=PoolsAnswer(
            rivals=dearer_pool(alone),
            pools=tuple(
                serving_pool(
                    pool.requirement, finder.search, candidate, name=pool.name
                )
                for pool, candidate in zip(
                    fleet.pools, fleet.candidates, strict=True
                )
            ),
            predictions=predict_apart(requirement, fleet, judge),
            check=judge.check(requirement, *fleet.ends),
            warnings=tuple(
                _apart_warnings(spec, finder, requirement, fleet, alone)
            ),
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

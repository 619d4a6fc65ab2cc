"""The answer to a spec that nothing meets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from planner.solve.solution import Solution

if TYPE_CHECKING:
    from planner.cost.weekly_load import Week
    from planner.facts.llm import Llm
    from planner.solve.rival import RivalFleet
    from planner.solve.solution import BindingLimit


def infeasible_solution(
    nearest: tuple[BindingLimit, ...],
    *,
    week: Week,
    llm: Llm | None,
    funnel: tuple[tuple[str, int], ...],
    offers_considered: int,
    rejected: tuple[RivalFleet, ...] = (),
) -> Solution:
    """Return that nothing meets a spec, what would, and what each of the `rejected` misses."""
    return Solution(
        status="infeasible",
        pools=(),
        predictions={},
        bindings=nearest,
        alternatives=rejected,
        bill=None,
        warnings=(),
        week=week,
        llm=llm,
        funnel=funnel,
        offers_considered=offers_considered,
    )

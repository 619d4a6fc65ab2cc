"""How sure it is that nothing cheaper would do: the status of a solution and its gap, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from planner.plan.types import Plan


def proof_phrase(plan: Plan) -> str:
    """Return the status and the gap in a few words, for a line with others."""
    status, gap = plan.solution.status, plan.solution.gap
    proof = "nothing cheaper passes" if gap is None else f"proved, gap {gap}"
    return f"{status}: {proof}"


def proof_sentence(plan: Plan) -> str:
    """Return what the status of a plan with a fleet means."""
    if plan.solution.gap is None:
        return (
            f"{plan.solution.status}: no fleet of these offers that costs less passes the "
            "simulation, but other requests may not confirm that this one does, so no gap is "
            "proved"
        )
    return (
        f"{plan.solution.status}: no fleet of these offers that meets the spec costs less, which "
        f"is proved (gap {plan.solution.gap})"
    )

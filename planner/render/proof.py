"""How sure it is that nothing cheaper would do: the status of a solution and its gap, in words."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from planner.plan.types import Plan


def proof_phrase(plan: Plan) -> str:
    """Return the status and the gap in a few words, for a line with others."""
    status, gap = plan.solution.status, plan.solution.gap
    if gap is None:
        proof = "nothing cheaper passes"
    elif status == "optimal":
        proof = f"proved, gap {gap}"
    else:
        proof = f"gap {_share(gap)}, two types not all looked at"
    return f"{status}: {proof}"


def proof_sentence(plan: Plan) -> str:
    """Return what the status of a plan with a fleet means."""
    if plan.solution.gap is None:
        return (
            f"{plan.solution.status}: no fleet of these offers that costs less passes the "
            "simulation, but other requests may not confirm that this one does, so no gap is "
            "proved"
        )
    if plan.solution.status == "feasible":
        return (
            "feasible: fleets of two machine types may cost up to "
            f"{_share(plan.solution.gap)} less, which were not looked at since there are too many"
        )
    return (
        f"{plan.solution.status}: no fleet of these offers that meets the spec costs less, which "
        f"is proved (gap {plan.solution.gap})"
    )


def _share(gap: str) -> str:
    """Return a gap in percent, as exactly as it is known."""
    return f"{(100 * Decimal(gap)).normalize():f} %"

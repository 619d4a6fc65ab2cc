"""What something else costs, and how much more than a plan, as far as prices are known.

One rule for every page: an amount with an unknown price is the least that it may be, so it has
>= before it. A difference has >= or <= where a price of one side is unknown, and is ? where it
is of both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from planner import figures
from planner.plan.amount import CostAmount, cost_delta
from planner.plan.diff import total_amount
from planner.render.diff.wording import (
    BOUND_MARKS,
    UNKNOWN,
    amount_text,
    delta_text,
)

if TYPE_CHECKING:
    from decimal import Decimal

    from planner.plan.types import Plan


def other_total(usd: Decimal, *, is_partial: bool) -> str:
    """Return what something costs that is no plan of its own."""
    amount = CostAmount(usd=usd, is_complete=not is_partial)
    return amount_text(amount, cents=False)


def against_plan(plan: Plan, usd: Decimal, *, is_partial: bool) -> str:
    """Return by how much something is dearer than a plan in the period of its bill."""
    other = CostAmount(usd=usd, is_complete=not is_partial)
    return delta_text(cost_delta(total_amount(plan), other))


def saved_against(plan: Plan, saved_usd: Decimal, *, is_partial: bool) -> str:
    """Return what something saves that costs so much less than a plan."""
    other = CostAmount(
        usd=plan.cost.total - saved_usd, is_complete=not is_partial
    )
    delta = cost_delta(other, total_amount(plan))
    if delta.usd is None:
        return UNKNOWN
    return f"{BOUND_MARKS[delta.bound]}{figures.dollars(delta.usd)}"


def since_before(plan: Plan, usd_before: Decimal, *, is_partial: bool) -> str:
    """Return by how much a plan is dearer than what stands."""
    before = CostAmount(usd=usd_before, is_complete=not is_partial)
    return delta_text(cost_delta(before, total_amount(plan)))

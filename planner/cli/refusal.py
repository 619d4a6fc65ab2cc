"""What apply does not carry out, whatever the clouds would say."""

from __future__ import annotations

from typing import TYPE_CHECKING

from planner import figures
from planner.cli import option
from planner.errors import (
    CatalogError,
    InfeasibleError,
    PolicyError,
    Problem,
    UsageError,
)
from planner.plan.commitment import commitments_of
from planner.spec.block import moment_s

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime
    from decimal import Decimal

    from planner.plan.types import Changes, Plan


def refuse_together(*refusals: Callable[[], None]) -> None:
    """Raise PolicyError with all problems of several refusals: they are known at once."""
    problems: list[Problem] = []
    for refuse in refusals:
        try:
            refuse()
        except PolicyError as error:
            problems += error.problems
    if problems:
        raise PolicyError(*problems)


def refuse_infeasible(plan: Plan) -> None:
    """Raise InfeasibleError for a plan without machines."""
    if not plan.solution.pools:
        raise InfeasibleError(
            Problem(
                code="infeasible",
                message="the plan has nothing to create",
                next_step="relax what tonnage plan shows",
            )
        )


def refuse_unbuilt(plan: Plan) -> None:
    """Raise UsageError for machines of which nothing is built: of a cloud or an accelerator."""
    if plan.unbuilt_clouds:
        names = ", ".join(plan.unbuilt_clouds)
        raise UsageError(
            Problem(
                code="unbuilt-cloud",
                message=f"nothing is built at {names}: a plan there only compares",
                next_step=f"leave {names.lower()} out of where.clouds, or rent the machines "
                "there yourself",
            )
        )
    for accelerator, told in plan.unbuilt_accelerators.items():
        raise UsageError(
            Problem(
                code="unbuilt-accelerator",
                message=f"nothing is built with {accelerator}: a plan with it only compares",
                cause=told,
                next_step=f"leave {accelerator} out of where.accelerators.allow",
            )
        )


def refuse_high_cost(plan: Plan, most_usd: Decimal | None) -> None:
    """Raise PolicyError for a plan that may cost more an hour than a caller allows."""
    if most_usd is not None and plan.most_usd_hour > most_usd:
        cost_text = figures.dollars(plan.most_usd_hour, cents=True)
        raise PolicyError(
            Problem(
                code="max-cost",
                message=f"{plan.stack.name} costs up to {cost_text} an hour, "
                f"and --max-cost-per-hour is {most_usd:g}",
                next_step="ask for less, or raise the limit",
            )
        )


def refuse_past_block(plan: Plan, now: datetime) -> None:
    """Raise UsageError for a capacity block that is over: no machine would come."""
    block = (plan.spec.normalized.get("buy") or {}).get("block")
    if block is not None and moment_s(block["ends"]) <= now.timestamp():
        raise UsageError(
            Problem(
                code="block-over",
                message=f"the block {block['id']} ended at {block['ends']}",
                next_step="name one that is to come in buy.block, and plan again",
            )
        )


def refuse_unbought(plan: Plan) -> None:
    """Raise PolicyError for a plan with prices of commitments: machines alone cost more."""
    counted_on = {
        commitment.text: commitment
        for rung in range(len(plan.fallbacks) + 1)
        for commitment in commitments_of(plan.on_rung(rung))
    }
    problems = [
        Problem(
            code="to-buy",
            message=f"the price of {commitment.text} is that of a commitment",
            cause=f"apply buys none; what is sold: {commitment.command}",
            next_step="buy it, then add --commitments-bought; or plan with buy.commit: none",
        )
        for commitment in counted_on.values()
    ]
    if problems:
        raise PolicyError(*problems)


def refuse_many_changes(
    plan: Plan, changes: Changes, most_changes: int | None
) -> None:
    """Raise PolicyError when more of a standing stack changes than a caller allows."""
    if most_changes is not None and changes.count > most_changes:
        raise PolicyError(
            Problem(
                code="max-changes",
                message=f"{changes.count} resources of {plan.stack.name} change, "
                f"and --max-changes is {most_changes}",
                next_step="review them: tonnage show PLAN --full",
            )
        )


def refuse_old_prices(plan: Plan, most_days: int) -> None:
    """Raise CatalogError for a plan that rests on a price of machines older than some days.

    Nobody knows how old a price of an unknown date is, so it is refused as well.
    """
    from planner.market.price_age import age_days, is_to_the_day

    for line in plan.cost.lines:
        as_of = line.price_as_of
        # What has no date at all is of a contract.
        if line.pool is None or not as_of:
            continue
        age = age_days(as_of, option.today())
        if age is not None and age <= most_days:
            continue
        age_text = f"{'' if is_to_the_day(as_of) else 'up to '}{age} days old"
        raise CatalogError(
            Problem(
                code="price-age",
                message=f"the price of {line.name} is "
                f"{'of an unknown date' if age is None else age_text}, "
                f"and --max-price-age is {most_days}",
                next_step="plan again with a newer catalog: --catalog FILE",
            )
        )

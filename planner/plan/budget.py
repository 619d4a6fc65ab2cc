"""Budgets over many stacks: what plans and standing stacks cost together, against a file."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from planner import figures
from planner.errors import Place, Problem
from planner.spec.field import Block, read_document
from planner.spec.field_table import block_fields

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from planner.plan.status import StackStatus
    from planner.plan.types import Binding, Plan

NAMED_STACKS: Final = 3
UNKNOWN_HELP: Final = (
    "see the lines without a price in the plan, and write where.clouds with a cloud whose prices "
    "are known"
)


class Spending(Struct, frozen=True, kw_only=True):
    """What a stack costs a month, USD; a run, or what has a time to live, counts once.

    is_complete  whether every price is known; else usd is the least that it costs
    unpriced     lines of its bill without a known price
    cheaper      changes of its spec that cost less, each with a fleet that was verified
    stands       whether it stands already, beside what is planned
    """

    name: str
    labels: Mapping[str, str]
    usd: Decimal
    is_complete: bool = True
    unpriced: tuple[str, ...] = ()
    cheaper: tuple[Binding, ...] = ()
    stands: bool = False

    @classmethod
    def of_plan(
        cls, plan: Plan, together_usd: Decimal | None = None
    ) -> Spending:
        """Return what a plan would cost: its part, where it is bought together with others."""
        # Where machines are lacking, a fallback is bought.
        fallbacks = [rung.cost for rung in plan.fallbacks]
        costs = [plan.cost, *fallbacks]
        own_usd = plan.cost.total if together_usd is None else together_usd
        return cls(
            name=plan.stack.name,
            labels=plan.spec.normalized.get("labels", {}),
            usd=max(Decimal(0), own_usd, *(cost.total for cost in fallbacks)),
            is_complete=not any(cost.is_partial for cost in costs),
            unpriced=tuple(
                dict.fromkeys(name for cost in costs for name in cost.unpriced)
            ),
            cheaper=plan.solution.binding,
        )

    @classmethod
    def of_stack(cls, status: StackStatus) -> Spending | None:
        """Return what a standing stack costs; nothing where it is not known."""
        facts = status.facts
        if facts is None or status.operation == "destroyed":
            return None
        return cls(
            name=status.stack,
            labels=facts.labels,
            usd=facts.total,
            is_complete=not facts.is_partial,
            stands=True,
        )

    @property
    def usd_text(self) -> str:
        """What it costs as text; >= where a price is not known."""
        return _usd_text(self.usd, is_complete=self.is_complete)


class Budget(Struct, frozen=True, kw_only=True):
    """What some stacks may cost together.

    name    the one stack that it is for; None for all
    labels  that they have, all of them
    limit   USD a month
    warn    share of the limit from which a warning is told
    """

    place: Place
    name: str | None
    labels: Mapping[str, str]
    limit: Decimal
    warn: Decimal

    @property
    def subject(self) -> str:
        """What it is for, in words."""
        labels = ", ".join(
            f"{key}: {value}" for key, value in sorted(self.labels.items())
        )
        return self.name or (
            f"stacks with {labels}" if labels else "all stacks"
        )

    def counts(self, spending: Spending) -> bool:
        """Whether it is for a stack."""
        return self.name in (None, spending.name) and all(
            spending.labels.get(key) == value
            for key, value in self.labels.items()
        )

    def outcome(
        self, spendings: Sequence[Spending]
    ) -> tuple[Problem | None, str]:
        """Return how some stacks exceed it, or a warning that they are near it.

        spent = sum over the stacks that it is for
        A sum of which a price is unknown exceeds it: what nobody knows is not within it.
        """
        counted = sorted(
            filter(self.counts, spendings), key=lambda one: -one.usd
        )
        spent = sum((one.usd for one in counted), Decimal(0))
        is_complete = all(one.is_complete for one in counted)
        if spent > self.limit or not is_complete:
            return self._problem(counted, spent), ""
        if spent and spent >= self.limit * self.warn:
            share = figures.percentage(float(spent / self.limit))
            return None, (
                f"{self.place}: {self.subject} would cost "
                f"{figures.dollars(spent)}, {share} of the budget"
            )
        return None, ""

    def _problem(self, counted: Sequence[Spending], spent: Decimal) -> Problem:
        is_complete = all(one.is_complete for one in counted)
        named = [
            f"{one.name}{' (stands)' if one.stands else ''} {one.usd_text}"
            for one in counted[:NAMED_STACKS]
        ]
        if len(counted) > NAMED_STACKS:
            named.append(f"{len(counted) - NAMED_STACKS} more")
        cause = ", ".join(named)
        if not is_complete:
            cause += f"; {_unknown_text(counted)}"
        # A lower bound below the limit decides nothing, and less of it would not help.
        is_known = spent > self.limit
        return Problem(
            code="budget",
            message=f"{self.subject} would cost {_usd_text(spent, is_complete=is_complete)}, "
            f"and the budget is {figures.dollars(self.limit)} a month",
            place=self.place,
            cause=cause,
            next_step=_next_step(counted, spent - self.limit)
            if is_known
            else UNKNOWN_HELP,
        )


def _usd_text(usd: Decimal, *, is_complete: bool) -> str:
    mark = "" if is_complete else ">= "
    return f"{mark}{figures.dollars(usd)}"


def _unknown_text(counted: Iterable[Spending]) -> str:
    """Say of which lines no price is known; a stack that stands has no lines any more."""
    lines = dict.fromkeys(name for one in counted for name in one.unpriced)
    names = [
        *lines,
        *(
            f"a part of {one.name}"
            for one in counted
            if not one.is_complete and not one.unpriced
        ),
    ]
    return f"no price is known of {', '.join(names)}"


def _next_step(counted: Sequence[Spending], excess_usd: Decimal) -> str:
    """Return the change of one spec that saves the least of what is enough, or what else helps."""
    changes = [
        (change.saves_usd_month, one.name, change)
        for one in counted
        for change in one.cheaper
        # A fleet whose own prices are not all known may save less.
        if change.saves_usd_month is not None
        and not change.unpriced
        and change.saves_usd_month >= excess_usd
    ]
    if not changes:
        return "ask for less, or raise the limit"
    _, name, change = min(changes, key=lambda found: found[:2])
    return (
        f"loosen {change.constraint} of {name} ({change.relax_to}): it would cost "
        f"{figures.dollars(change.usd_month)}; or raise the limit"
    )


def _budgets(**values: Any) -> tuple[Budget, ...]:
    found: tuple[Budget, ...] = values["budgets"]
    return found


BUDGETS_FILE: Final = Block(
    "budgets",
    _budgets,
    block_fields(
        "budgets",
        "budgets",
        {"budget": Block("budget", Budget, block_fields("budgets", "budget"))},
    ),
    doc="What stacks may cost together: `plan` and `apply` refuse more (exit 5).",
)


def read_budgets(file_bytes: bytes, path: str) -> tuple[Budget, ...]:
    """Return the budgets of a file. Raises SpecError with all of its problems."""
    budgets: tuple[Budget, ...] = read_document(BUDGETS_FILE, file_bytes, path)
    return budgets


def judge(
    budgets: Iterable[Budget], spendings: Sequence[Spending]
) -> tuple[list[Problem], list[str]]:
    """Return the budgets that are exceeded as problems, and warnings of those that nearly are."""
    outcomes = [budget.outcome(spendings) for budget in budgets]
    return (
        [problem for problem, _ in outcomes if problem is not None],
        [warning for _, warning in outcomes if warning],
    )


def spendings_of(
    plans: Iterable[Plan],
    stacks: Iterable[StackStatus],
    together_usd: Mapping[str, Decimal],
) -> Iterator[Spending]:
    """Yield what plans would cost, and what the other stacks go on to cost.

    `together_usd` has what stacks pay a month that buy together.
    """
    planned = set()
    for plan in plans:
        planned.add(plan.stack.name)
        yield Spending.of_plan(plan, together_usd.get(plan.stack.name))
    for status in stacks:
        spending = Spending.of_stack(status)
        if status.stack not in planned and spending is not None:
            yield spending

"""Cost difference of two plans by pool and by cost line."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

if TYPE_CHECKING:
    from planner.plan.types import Period, Plan, Pool


class PlanChange(Struct, frozen=True):
    """One pool or cost line that differs.

    mark        + added, ~ changed, - removed
    before      machines of the pool or quantity of the line; empty when it did not exist
    after       the same in the new plan; empty when it no longer exists
    usd_before  cost in the period, USD
    usd_after   cost in the period, USD
    """

    mark: Literal["+", "~", "-"]
    subject: Literal["pool", "line"]
    name: str
    before: str
    after: str
    usd_before: Decimal
    usd_after: Decimal

    @property
    def delta_usd(self) -> Decimal:
        """Cost increase in the period, USD; negative for a saving."""
        return self.usd_after - self.usd_before


class PlanDiff(Struct, frozen=True):
    """All changes between two plans, with the totals.

    period      what the cost of the second plan is for: a month, a run or a life
    period_before  the same of the first plan; costs of different periods have no difference
    usd_before  total of the first plan in the period, USD
    usd_after   total of the second plan in the period, USD
    partial     whether a price is unknown in either plan, so that totals are lower bounds
    """

    name: str
    period: Period
    period_before: Period
    changes: tuple[PlanChange, ...]
    usd_before: Decimal
    usd_after: Decimal
    partial: bool

    @property
    def is_comparable(self) -> bool:
        """Whether the costs are for the same: a month and a run have no difference."""
        return self.period == self.period_before

    @property
    def delta_usd(self) -> Decimal | None:
        """Cost increase in the period, USD; negative for a saving. None between two periods."""
        if not self.is_comparable:
            return None
        return self.usd_after - self.usd_before

    @property
    def delta_percent(self) -> Decimal | None:
        """Cost increase in percent of the first plan; None when that costs nothing.

        None too between two periods.
        """
        if self.delta_usd is None or not self.usd_before:
            return None
        return (self.delta_usd / self.usd_before * 100).quantize(Decimal("0.1"))


def compare_plans(before: Plan, after: Plan) -> PlanDiff:
    """Return the difference of two plans; pools and other cost lines match by name."""
    pool_changes = _changes("pool", _pool_entries(before), _pool_entries(after))
    line_changes = _changes("line", _line_entries(before), _line_entries(after))
    return PlanDiff(
        name=after.workload.name,
        period=after.cost.period,
        period_before=before.cost.period,
        changes=(*pool_changes, *line_changes),
        usd_before=before.cost.total,
        usd_after=after.cost.total,
        partial=before.cost.is_partial or after.cost.is_partial,
    )


def _changes(
    subject: Literal["pool", "line"],
    before_entries: dict[str, tuple[str, Decimal]],
    after_entries: dict[str, tuple[str, Decimal]],
) -> list[PlanChange]:
    changes = []
    absent = ("", Decimal(0))
    # Union of the names without duplicates, in the order of the plans.
    for name in list(dict.fromkeys([*before_entries, *after_entries])):
        before = before_entries.get(name, absent)
        after = after_entries.get(name, absent)
        if before != after:
            mark: Literal["+", "~", "-"] = "~"
            if name not in before_entries:
                mark = "+"
            elif name not in after_entries:
                mark = "-"
            changes.append(
                PlanChange(
                    mark,
                    subject,
                    name,
                    before[0],
                    after[0],
                    before[1],
                    after[1],
                )
            )
    return changes


def _pool_entries(plan: Plan) -> dict[str, tuple[str, Decimal]]:
    """Return description and USD in the period of each pool, by pool name."""
    pool_usd = dict.fromkeys(
        (pool.name for pool in plan.solution.pools), Decimal(0)
    )
    for cost_line in plan.cost.lines:
        if cost_line.pool is not None:
            # An unknown price adds nothing; the difference is then partial.
            pool_usd[cost_line.pool] += cost_line.usd or 0
    return {
        pool.name: (
            _pool_text(pool),
            pool_usd[pool.name],
        )
        for pool in plan.solution.pools
    }


def _pool_text(pool: Pool) -> str:
    machines = f"{pool.nodes} x {pool.instance_type} {pool.purchase_text}"
    return f"{pool.provider} {pool.region} {machines}"


def _line_entries(plan: Plan) -> dict[str, tuple[str, Decimal]]:
    """Return quantity and USD of each cost line without a pool, by line name.

    A line with an unknown price has USD 0, so only its quantity can differ.
    """
    return {
        cost_line.name: (
            f"{cost_line.quantity:,.1f} {cost_line.unit}",
            cost_line.usd or Decimal(0),
        )
        for cost_line in plan.cost.lines
        # Lines of a pool are in the cost of that pool.
        if cost_line.pool is None
    }

"""The difference of two plans: pools and cost lines, with the catalog held fixed."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from planner.plan.types import Plan, Pool


@dataclass(frozen=True, slots=True)
class PlanChange:
    """One pool or line: what stood there, what stands there now, and its USD of the period."""

    mark: Literal["+", "~", "-"]
    subject: Literal["pool", "line"]
    name: str
    before: str
    after: str
    usd_before: Decimal
    usd_after: Decimal

    @property
    def delta_usd(self) -> Decimal:
        """USD more."""
        return self.usd_after - self.usd_before


@dataclass(frozen=True, slots=True)
class PlanDiff:
    """All changes and the totals; `partial` when a price is missing on either side.

    Costs are those of a month, or of the whole run of a training job.
    """

    name: str
    period: Literal["month", "run"]
    changes: tuple[PlanChange, ...]
    usd_before: Decimal
    usd_after: Decimal
    partial: bool

    @property
    def delta_usd(self) -> Decimal:
        """USD more."""
        return self.usd_after - self.usd_before

    @property
    def delta_percent(self) -> Decimal | None:
        """Change relative to before; None when there was nothing."""
        if not self.usd_before:
            return None
        return (self.delta_usd / self.usd_before * 100).quantize(Decimal("0.1"))


def compare_plans(before: Plan, after: Plan) -> PlanDiff:
    """Compare two plans: pools by their names, other cost lines by theirs."""
    pool_changes = _changes("pool", _pool_entries(before), _pool_entries(after))
    line_changes = _changes("line", _line_entries(before), _line_entries(after))
    return PlanDiff(
        name=after.workload.name,
        period=after.cost.period,
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
    """What each pool is, and what its machines cost in the period."""
    pool_usd = dict.fromkeys(
        (pool.name for pool in plan.solution.pools), Decimal(0)
    )
    for cost_line in plan.cost.lines:
        if cost_line.pool is not None:
            pool_usd[cost_line.pool] += cost_line.usd or 0
    return {
        pool.name: (
            _pool_text(pool),
            pool_usd[pool.name],
        )
        for pool in plan.solution.pools
    }


def _pool_text(pool: Pool) -> str:
    machines = f"{pool.nodes} x {pool.instance_type} {pool.purchase}"
    return f"{pool.provider} {pool.region} {machines}"


def _line_entries(plan: Plan) -> dict[str, tuple[str, Decimal]]:
    """Lines of the whole stack by name; an unknown price compares by its quantity."""
    return {
        cost_line.name: (
            f"{cost_line.quantity:,.1f} {cost_line.unit}",
            cost_line.usd or Decimal(0),
        )
        for cost_line in plan.cost.lines
        if cost_line.pool is None
    }

"""The difference of two plans: pools and cost lines, with the catalog held fixed."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal


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


def compare_plans(before: dict[str, Any], after: dict[str, Any]) -> PlanDiff:
    """Compare two plan documents."""
    pool_changes = _changes("pool", _pool_entries(before), _pool_entries(after))
    line_changes = _changes("line", _line_entries(before), _line_entries(after))
    return PlanDiff(
        name=after["workload"]["name"],
        period="run" if after["workload"]["kind"] == "training" else "month",
        changes=(*pool_changes, *line_changes),
        usd_before=Decimal(before["cost"]["usd_month"]),
        usd_after=Decimal(after["cost"]["usd_month"]),
        partial=any(
            not cost_line["price_found"]
            for document in (before, after)
            for cost_line in document["cost"]["lines"]
        ),
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
            mark = (
                "+"
                if name not in before_entries
                else "-"
                if name not in after_entries
                else mark
            )
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


def _pool_entries(plan: dict[str, Any]) -> dict[str, tuple[str, Decimal]]:
    """Pools by role; their cost is that of the accelerator lines."""
    accelerator_lines = [
        cost_line
        for cost_line in plan["cost"]["lines"]
        if cost_line["kind"] == "accelerators"
    ]
    pools_by_role = {}
    for pool, accelerator_line in zip(
        plan["solution"]["pools"], accelerator_lines, strict=False
    ):
        location = f"{pool['provider']} {pool['region']}"
        machine_text = (
            f"{pool['nodes']} x {pool['instance_type']} {pool['purchase']}"
        )
        pools_by_role[pool["role"]] = (
            f"{location} {machine_text}",
            Decimal(accelerator_line["usd_month"]),
        )
    return pools_by_role


def _line_entries(plan: dict[str, Any]) -> dict[str, tuple[str, Decimal]]:
    """Other lines by name; an unknown price compares by its quantity."""
    return {
        cost_line["name"]: (
            f"{Decimal(cost_line['quantity']):,.1f} {cost_line['unit']}",
            Decimal(cost_line["usd_month"] or 0),
        )
        for cost_line in plan["cost"]["lines"]
        if cost_line["kind"] != "accelerators"
    }

"""The difference of two plans: pools and cost lines, with the catalog held fixed."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class Change:
    """One pool or line: what stood there, what stands there now, and its USD of the period."""

    mark: Literal["+", "~", "-"]
    what: Literal["pool", "line"]
    name: str
    before: str
    after: str
    usd_before: Decimal
    usd_after: Decimal

    @property
    def delta(self) -> Decimal:
        """USD more."""
        return self.usd_after - self.usd_before


@dataclass(frozen=True, slots=True)
class Diff:
    """All changes and the totals; `partial` when a price is missing on either side.

    Costs are those of a month, or of the whole run of a training job.
    """

    name: str
    period: Literal["month", "run"]
    changes: tuple[Change, ...]
    usd_before: Decimal
    usd_after: Decimal
    partial: bool

    @property
    def delta(self) -> Decimal:
        """USD more."""
        return self.usd_after - self.usd_before

    @property
    def percent(self) -> Decimal | None:
        """Change relative to before; None when there was nothing."""
        if not self.usd_before:
            return None
        return (self.delta / self.usd_before * 100).quantize(Decimal("0.1"))


def diff(before: dict[str, Any], after: dict[str, Any]) -> Diff:
    """Compare two plan documents."""
    pools = _compare("pool", _pools(before), _pools(after))
    lines = _compare("line", _lines(before), _lines(after))
    return Diff(
        name=after["workload"]["name"],
        period="run" if after["workload"]["kind"] == "training" else "month",
        changes=(*pools, *lines),
        usd_before=Decimal(before["cost"]["usd_month"]),
        usd_after=Decimal(after["cost"]["usd_month"]),
        partial=any(
            not x["price_found"]
            for d in (before, after)
            for x in d["cost"]["lines"]
        ),
    )


def _compare(
    what: Literal["pool", "line"],
    old: dict[str, tuple[str, Decimal]],
    new: dict[str, tuple[str, Decimal]],
) -> list[Change]:
    found = []
    nothing = ("", Decimal(0))
    for name in list(dict.fromkeys([*old, *new])):
        before, after = old.get(name, nothing), new.get(name, nothing)
        if before != after:
            mark: Literal["+", "~", "-"] = "~"
            mark = "+" if name not in old else "-" if name not in new else mark
            found.append(
                Change(
                    mark, what, name, before[0], after[0], before[1], after[1]
                )
            )
    return found


def _pools(plan: dict[str, Any]) -> dict[str, tuple[str, Decimal]]:
    """Pools by role; their cost is that of the accelerator lines."""
    machines = [x for x in plan["cost"]["lines"] if x["kind"] == "accelerators"]
    result = {}
    for pool, line in zip(plan["solution"]["pools"], machines, strict=False):
        place = f"{pool['provider']} {pool['region']}"
        kind = f"{pool['nodes']} x {pool['instance_type']} {pool['purchase']}"
        result[pool["role"]] = (f"{place} {kind}", Decimal(line["usd_month"]))
    return result


def _lines(plan: dict[str, Any]) -> dict[str, tuple[str, Decimal]]:
    """Other lines by name; an unknown price compares by its quantity."""
    return {
        x["name"]: (
            f"{Decimal(x['quantity']):,.1f} {x['unit']}",
            Decimal(x["usd_month"] or 0),
        )
        for x in plan["cost"]["lines"]
        if x["kind"] != "accelerators"
    }

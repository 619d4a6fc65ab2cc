"""Documents of differences, made up: as many specs as wanted, with hostile names in them."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

from planner.plan.amount import CostAmount, cost_delta
from planner.plan.diff import BilledEntry, PlanChange
from planner.plan.diff_document import (
    DiffDocument,
    PeriodTotal,
    SideProblem,
    SideRef,
    SpecDiff,
    SpecSide,
)
from planner.plan.threshold import ThresholdVerdict
from planner.plan.types import CatalogRef
from planner.spec.change import KeyChange

if TYPE_CHECKING:
    from planner.plan.part import Period

HOSTILE = "<img src=x>|`x`|*b*\n::error::pwned @all [l](u) 100%,a:b ]]>&"


def amount(usd: int | None, *, is_complete: bool = True) -> CostAmount:
    return CostAmount(
        usd=None if usd is None else Decimal(usd), is_complete=is_complete
    )


def side(
    path: str, cost: CostAmount | None, period: Period = "month"
) -> SpecSide:
    return SpecSide(
        status="planned" if cost else "invalid",
        path=path,
        name="chat",
        period=period if cost else None,
        cost=cost,
        problems=()
        if cost
        else (
            SideProblem(
                code="yaml",
                message=f"bad {HOSTILE}",
                next_step="write YAML",
                path=path,
                line=7,
                column=3,
            ),
        ),
    )


def line(name: str, old_usd: int, new_usd: int | None) -> PlanChange:
    old, new = (
        BilledEntry(
            quantity=Decimal(usd or 1),
            unit="GB",
            unit_price=None if usd is None else Decimal(1),
            cost=amount(usd, is_complete=usd is not None),
        )
        for usd in (old_usd, new_usd)
    )
    return PlanChange(
        mark="~", subject="line", name=name, before=old, after=new
    )


def spec(
    path: str,
    old: CostAmount | None,
    new: CostAmount | None,
    *,
    value: str = "2",
    line_count: int = 2,
) -> SpecDiff:
    """A changed spec; a side without a cost is invalid."""
    return SpecDiff(
        path=path,
        name="chat",
        state="changed",
        before=side(path, old),
        after=side(path, new),
        delta=cost_delta(old, new) if old and new else None,
        keys=(
            KeyChange(
                key="traffic.peak_rps",
                before="1",
                after=value,
                line_before=11,
                line=12,
            ),
        ),
        files=(),
        changes=tuple(line(f"line {n}", n, n + 1) for n in range(line_count)),
        metrics=(),
        binding=(),
        differs=("spec",),
        parts=(),
    )


def document(
    *specs: SpecDiff, thresholds: tuple[ThresholdVerdict, ...] = ()
) -> DiffDocument:
    counted = [one for one in specs if one.delta is not None]
    before, after = (
        amount(
            sum(
                int(found.cost.known_usd)
                for one in counted
                if (found := getattr(one, name)) is not None and found.cost
            )
        )
        for name in ("before", "after")
    )
    return DiffDocument(
        tool_version="0.1.0",
        before=SideRef(name="main 1234567", commit="1234567" + "0" * 33),
        after=SideRef(name="working tree"),
        catalog=CatalogRef(sha256="0" * 64, as_of="2026-11-18"),
        specs=specs,
        unplanned=(),
        left_out=tuple(one.path for one in specs if one.delta is None),
        totals=(
            PeriodTotal(
                period="month",
                before=before,
                after=after,
                delta=cost_delta(before, after),
                parts=(),
            ),
        ),
        catalog_effects=(),
        thresholds=thresholds,
    )


EXCEEDED = ThresholdVerdict(
    threshold="+10%",
    period="month",
    limit_usd=Decimal("1.00"),
    usd=Decimal("5.00"),
    is_exceeded=True,
)

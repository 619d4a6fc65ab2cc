"""Cost difference of two plans by pool and by cost line."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Literal

from msgspec import Meta, Struct

from planner.plan.amount import (
    NOTHING,
    CostAmount,
    CostDelta,
    cost_delta,
    sum_amounts,
)
from planner.plan.part import DocumentPart, Period

if TYPE_CHECKING:
    from collections.abc import Mapping

    from planner.plan.types import CostLine, Plan, Pool


class BilledEntry(DocumentPart, frozen=True, kw_only=True):
    """A pool or a cost line as one of the two plans has it."""

    quantity: Annotated[
        Decimal, Meta(description="machines at the peak, or units of the line")
    ]
    unit: Annotated[str, Meta(description="unit of the quantity")]
    unit_price: Annotated[
        Decimal | None,
        Meta(description="USD of a unit, of a machine an hour; none: unknown"),
    ]
    cost: Annotated[CostAmount, Meta(description="in the period of the plan")]
    machines: Annotated[
        str | None,
        Meta(description="what a pool is made of; none for a line"),
    ] = None
    layout: Annotated[
        str | None,
        Meta(description="how a pool serves or trains; none for a line"),
    ] = None


class PlanChange(DocumentPart, frozen=True, kw_only=True):
    """One pool or cost line that differs."""

    mark: Annotated[
        Literal["+", "~", "-"],
        Meta(description="+ added, ~ changed, - removed"),
    ]
    subject: Annotated[
        Literal["pool", "line"], Meta(description="what differs")
    ]
    name: Annotated[str, Meta(description="of the pool or the line")]
    before: Annotated[
        BilledEntry | None, Meta(description="none: there was none")
    ]
    after: Annotated[
        BilledEntry | None, Meta(description="none: there is none any more")
    ]

    @property
    def cost_before(self) -> CostAmount:
        """What it cost in the period."""
        return self.before.cost if self.before is not None else NOTHING

    @property
    def cost_after(self) -> CostAmount:
        """What it costs in the period."""
        return self.after.cost if self.after is not None else NOTHING

    @property
    def usd_before(self) -> Decimal:
        """What is known of the cost in the period before, USD."""
        return self.cost_before.known_usd

    @property
    def usd_after(self) -> Decimal:
        """What is known of the cost in the period after, USD."""
        return self.cost_after.known_usd

    @property
    def delta(self) -> CostDelta:
        """Cost increase in the period, as far as it is known."""
        return cost_delta(self.cost_before, self.cost_after)

    @property
    def delta_usd(self) -> Decimal:
        """Increase of what is known of the cost in the period, USD; negative for a saving."""
        return self.usd_after - self.usd_before


class PlanDiff(Struct, frozen=True, kw_only=True):
    """All changes between two plans, with the totals.

    period         what the cost of the second plan is for: a month, a run or a life
    period_before  the same of the first plan; costs of different periods have no difference
    cost_before    total of the first plan in its period
    cost_after     total of the second plan in its period
    cancels        whether what is unknown is the same on both sides
    """

    name: str
    period: Period
    period_before: Period
    changes: tuple[PlanChange, ...]
    cost_before: CostAmount
    cost_after: CostAmount
    cancels: bool

    @property
    def is_comparable(self) -> bool:
        """Whether the costs are for the same: a month and a run have no difference."""
        return self.period == self.period_before

    @property
    def usd_before(self) -> Decimal:
        """What is known of the total of the first plan, USD."""
        return self.cost_before.known_usd

    @property
    def usd_after(self) -> Decimal:
        """What is known of the total of the second plan, USD."""
        return self.cost_after.known_usd

    @property
    def delta(self) -> CostDelta | None:
        """Cost increase in the period, as far as it is known. None between two periods."""
        if not self.is_comparable:
            return None
        return cost_delta(
            self.cost_before, self.cost_after, cancels=self.cancels
        )

    @property
    def delta_usd(self) -> Decimal | None:
        """Cost increase in the period, USD; negative for a saving.

        None between two periods, and where prices are unknown on both sides. Where one is unknown
        on one side, it is a bound: see `delta`.
        """
        return self.delta.usd if self.delta is not None else None

    @property
    def delta_percent(self) -> Decimal | None:
        """Cost increase in percent of the first plan; None when that costs nothing.

        None too between two periods.
        """
        return self.delta.percent if self.delta is not None else None


def compare_plans(before: Plan, after: Plan) -> PlanDiff:
    """Return the difference of two plans; pools and other cost lines match by name."""
    return PlanDiff(
        name=after.workload.name,
        period=after.cost.period,
        period_before=before.cost.period,
        changes=plan_changes(before, after),
        cost_before=total_amount(before),
        cost_after=total_amount(after),
        cancels=_unknown_lines(before) == _unknown_lines(after),
    )


def plan_changes(
    before: Plan | None, after: Plan | None
) -> tuple[PlanChange, ...]:
    """Return the pools and cost lines that differ; None is a side that has none."""
    return (
        *_changes("pool", _pool_entries(before), _pool_entries(after)),
        *_changes("line", _line_entries(before), _line_entries(after)),
    )


def total_amount(plan: Plan) -> CostAmount:
    """Return the total of a plan in its period."""
    return CostAmount(
        usd=plan.cost.total,
        is_complete=not plan.cost.is_partial,
    )


def _unknown_lines(plan: Plan) -> frozenset[tuple[str, ...]]:
    """Return the lines without a price, and where they are billed.

    The same quantity of the same thing at the same place has the same price, though unknown.
    """
    places = sorted({f"{x.provider} {x.region}" for x in plan.solution.pools})
    return frozenset(
        (
            cost_line.name,
            cost_line.kind,
            cost_line.unit,
            str(cost_line.quantity.normalize()),
            plan.cost.period,
            *places,
        )
        for cost_line in plan.cost.lines
        if not cost_line.price_found
    )


def _changes(
    subject: Literal["pool", "line"],
    before_entries: Mapping[str, BilledEntry],
    after_entries: Mapping[str, BilledEntry],
) -> list[PlanChange]:
    changes = []
    # Union of the names without duplicates, in the order of the plans.
    for name in dict.fromkeys([*before_entries, *after_entries]):
        before = before_entries.get(name)
        after = after_entries.get(name)
        if before == after:
            continue
        mark: Literal["+", "~", "-"] = "~"
        if before is None:
            mark = "+"
        elif after is None:
            mark = "-"
        changes.append(
            PlanChange(
                mark=mark,
                subject=subject,
                name=name,
                before=before,
                after=after,
            )
        )
    return changes


def _pool_entries(plan: Plan | None) -> dict[str, BilledEntry]:
    """Return machines and cost of each pool, by pool name."""
    if plan is None:
        return {}
    return {
        pool.name: BilledEntry(
            quantity=Decimal(pool.nodes),
            unit="machine" if pool.nodes == 1 else "machines",
            unit_price=pool.usd_per_hour,
            cost=sum_amounts(
                cost_line.usd
                for cost_line in plan.cost.lines
                if cost_line.pool == pool.name
            ),
            machines=machines_text(pool),
            layout=_layout_text(pool),
        )
        for pool in plan.solution.pools
    }


def machines_text(pool: Pool) -> str:
    """Return where a pool is, how many machines it has, of what type, and how they are bought."""
    machines = f"{pool.nodes} x {pool.instance_type} {pool.purchase_text}"
    return f"{pool.provider} {pool.region} {machines}"


def _layout_text(pool: Pool) -> str | None:
    """Return replicas and degrees of parallelism, such as 2 x TP4 PP2 fp8."""
    layout = pool.layout
    if layout is None:
        return None
    degrees = {
        "TP": layout.tp,
        "PP": layout.pp,
        "CP": layout.cp,
        "EP": layout.ep,
        "DP": layout.dp,
    }
    degree_texts = [
        f"{name}{degree}"
        for name, degree in degrees.items()
        if degree > 1 or name == "TP"
    ]
    return f"{pool.replicas} x {' '.join(degree_texts)} {layout.precision}"


def _line_entries(plan: Plan | None) -> dict[str, BilledEntry]:
    """Return quantity and cost of each cost line without a pool, by line name."""
    if plan is None:
        return {}
    return {
        cost_line.name: _line_entry(cost_line)
        for cost_line in plan.cost.lines
        # Lines of a pool are in the cost of that pool.
        if cost_line.pool is None
    }


def _line_entry(cost_line: CostLine) -> BilledEntry:
    return BilledEntry(
        quantity=cost_line.quantity,
        unit=cost_line.unit,
        unit_price=cost_line.unit_price,
        cost=CostAmount(usd=cost_line.usd, is_complete=cost_line.price_found),
    )

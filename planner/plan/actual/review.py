"""What was planned beside what it has cost, line by line, with the causes of each difference."""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Decimal
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

from msgspec import Meta

from planner.cost.bill_line import CENT
from planner.plan.actual.ledger import (
    actual_amounts,
    line_name,
    planned_amounts,
)
from planner.plan.actual.meter import UNKNOWN
from planner.plan.actual.stack_cost import (
    CoveredTime,
    covered_time,
    month_rate,
    shown_quantity,
)
from planner.plan.part import DocumentPart, Period

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from planner.plan.actual.charge import Charge
    from planner.plan.actual.ledger import Amount, LineKey
    from planner.plan.types import Plan

CauseName: TypeAlias = Literal[
    "price", "count", "hours", "quantity", "new", "missing", "unknown"
]


class DifferenceCause(DocumentPart, frozen=True, kw_only=True):
    """A part of a difference, and why it is there."""

    cause: Annotated[
        CauseName,
        Meta(
            description="price: another price of a unit; count: other machines; hours: other "
            "hours; quantity: more or less of it; new: not planned; missing: planned, not paid; "
            "unknown: a service or a unit that is not known, or a line without a planned price"
        ),
    ]
    usd: Annotated[Decimal, Meta(description="above 0: it has cost more")]


class ReviewedLine(DocumentPart, frozen=True, kw_only=True):
    """A line as planned for the time, and as paid."""

    name: Annotated[str, Meta(description="what is paid for")]
    kind: Annotated[str, Meta(description="sort of line, or unknown")]
    pool: Annotated[str | None, Meta(description="pool of the machines")]
    planned_usd: Annotated[
        Decimal | None,
        Meta(description="0 where it was not planned; none without a price"),
    ]
    actual_usd: Annotated[Decimal, Meta(description="0 where nothing was paid")]
    planned_quantity: Annotated[
        Decimal | None, Meta(description="none where nothing is counted")
    ]
    actual_quantity: Annotated[
        Decimal | None, Meta(description="none where nothing is counted")
    ]
    unit: Annotated[str, Meta(description="of both quantities")]
    causes: Annotated[
        tuple[DifferenceCause, ...],
        Meta(description="add up to the difference; empty where there is none"),
    ]


class Move(DocumentPart, frozen=True, kw_only=True):
    """The cheapest plan of the same spec on the catalog of today."""

    spec: Annotated[str, Meta(description="path of the spec")]
    problem: Annotated[
        str, Meta(description="why there is no plan; empty with one")
    ]
    spec_changed: Annotated[
        bool, Meta(description="whether the spec is another since the plan")
    ] = False
    catalog_as_of: Annotated[
        str, Meta(description="date of the newest price")
    ] = ""
    fleet: Annotated[
        tuple[str, ...], Meta(description="machines that would be bought")
    ] = ()
    fleet_changes: Annotated[
        bool, Meta(description="whether these are other machines")
    ] = False
    usd: Annotated[
        Decimal | None, Meta(description="of its period: a month, or the run")
    ] = None
    saves_usd: Annotated[
        Decimal | None,
        Meta(description="what was paid, of the same period, less `usd`"),
    ] = None


class Review(DocumentPart, frozen=True, kw_only=True):
    """Planned and actual cost of a stack, and what the cheapest plan of today would save."""

    schema: Literal["tonnage.review/1"] = "tonnage.review/1"
    stack: Annotated[str, Meta(description="by whose tag rows were chosen")]
    plan: Annotated[str, Meta(description="digest of the plan")]
    period: Annotated[Period, Meta(description="what the plan's total is for")]
    time: Annotated[CoveredTime, Meta(description="of the charges")]
    planned_usd: Annotated[
        Decimal,
        Meta(
            description="of lines with a price: month * hours / 730, or the run"
        ),
    ]
    actual_usd: Annotated[Decimal, Meta(description="sum of all charges")]
    actual_period_usd: Annotated[
        Decimal,
        Meta(
            description="a month at the rate of the time, or what the run cost"
        ),
    ]
    planned_period_usd: Annotated[
        Decimal, Meta(description="total of the plan")
    ]
    fleet: Annotated[tuple[str, ...], Meta(description="planned machines")]
    lines: Annotated[
        tuple[ReviewedLine, ...],
        Meta(description="the largest difference first"),
    ]
    causes: Annotated[
        tuple[DifferenceCause, ...], Meta(description="over all lines")
    ]
    move: Annotated[
        Move | None, Meta(description="none: not planned again")
    ] = None

    @property
    def difference_usd(self) -> Decimal:
        """What it has cost more than planned, USD."""
        return self.actual_usd - self.planned_usd

    @property
    def difference_share(self) -> Decimal | None:
        """The difference over what was planned; None where that is 0."""
        if not self.planned_usd:
            return None
        return self.difference_usd / self.planned_usd


def review(plan: Plan, charges: Sequence[Charge]) -> Review:
    """Return what was planned for the time of the charges beside what they cost."""
    time = covered_time(charges)
    planned = planned_amounts(plan, time.hours)
    actual = actual_amounts(charges, plan)
    lines = [
        _reviewed(key, planned.get(key), actual.get(key))
        for key in sorted({*planned, *actual})
    ]
    actual_usd = sum((line.actual_usd for line in lines), Decimal(0))
    is_month = plan.cost.period == "month"
    return Review(
        stack=plan.stack.name,
        plan=plan.digest,
        period=plan.cost.period,
        time=time,
        planned_usd=sum(
            (line.planned_usd or Decimal(0) for line in lines), Decimal(0)
        ),
        actual_usd=actual_usd,
        actual_period_usd=(
            month_rate(actual_usd, time.hours) if is_month else actual_usd
        ),
        planned_period_usd=plan.cost.total,
        fleet=fleet_names(plan),
        lines=tuple(
            sorted(lines, key=lambda line: (-_distance(line), line.name))
        ),
        causes=_summed(cause for line in lines for cause in line.causes),
    )


def proposed_move(reviewed: Review, plan: Plan, now: Plan) -> Move:
    """Return what a plan of today saves: actual cost of its period - its total, USD."""
    fleet = fleet_names(now)
    return Move(
        spec=now.spec.path,
        problem="" if now.is_feasible else "no fleet meets the spec today",
        spec_changed=now.spec.sha256 != plan.spec.sha256,
        catalog_as_of=now.catalog.as_of,
        fleet=fleet,
        fleet_changes=fleet != reviewed.fleet,
        usd=now.cost.total if now.is_feasible else None,
        saves_usd=(
            reviewed.actual_period_usd - now.cost.total
            if now.is_feasible and now.cost.period == reviewed.period
            else None
        ),
    )


def fleet_names(plan: Plan) -> tuple[str, ...]:
    """Return the machines of a plan as people read them."""
    return tuple(
        f"{part.nodes} x {pool.instance_type} {part.purchase} in {pool.provider} {pool.region}"
        for pool in plan.solution.pools
        for part in pool.purchases
    )


def _distance(line: ReviewedLine) -> Decimal:
    return abs(line.actual_usd - (line.planned_usd or Decimal(0)))


def _reviewed(
    key: LineKey, planned: Amount | None, actual: Amount | None
) -> ReviewedLine:
    planned_quantity = planned.quantity if planned is not None else None
    actual_quantity = actual.quantity if actual is not None else None
    some = planned or actual
    return ReviewedLine(
        name=line_name(key),
        kind=key.kind,
        pool=key.pool or None,
        planned_usd=planned.cents if planned is not None else Decimal(0),
        actual_usd=_usd(actual),
        planned_quantity=shown_quantity(planned_quantity),
        actual_quantity=shown_quantity(actual_quantity),
        unit=some.measure if some is not None else "",
        causes=tuple(
            DifferenceCause(cause=cause, usd=usd)
            for cause, usd in _causes(key, planned, actual).items()
            if usd
        ),
    )


def _causes(
    key: LineKey, planned: Amount | None, actual: Amount | None
) -> dict[CauseName, Decimal]:
    """Return the causes of the difference of a line, in cents, which add up to it exactly."""
    difference = _usd(actual) - _usd(planned)
    if key.kind == UNKNOWN:
        return {"unknown": difference}
    if planned is None:
        return {"new": difference}
    if actual is None:
        return {"missing": difference}
    effects = _effects(planned, actual)
    if not effects:
        return {"unknown": difference}
    cents = {cause: _cents(usd) for cause, usd in effects.items()}
    # What rounding has left is of the largest cause.
    largest = max(effects, key=lambda cause: abs(effects[cause]))
    cents[largest] += difference - sum(cents.values(), Decimal(0))
    return cents


def _effects(planned: Amount, actual: Amount) -> dict[CauseName, Decimal]:
    """Return what a price and a quantity do to a cost, exact; nothing where none compare.

    P, Q  price of a unit and quantity; N machines, H = Q / N hours of each; p planned, a actual

    difference      = Pa * Qa - Pp * Qp
    price effect    = (Pa - Pp) * Qa
    quantity effect = Pp * (Qa - Qp), of machines count effect + hours effect
    count effect    = Pp * (Na - Np) * Hp
    hours effect    = Pp * Na * (Ha - Hp)
    """
    price, planned_quantity = planned.unit_price, planned.quantity
    if (
        price is None
        or planned_quantity is None
        or actual.usd is None
        or actual.quantity is None
        or planned.measure != actual.measure
    ):
        return {}
    price_effect = actual.usd - price * actual.quantity
    quantity_effect = price * (actual.quantity - planned_quantity)
    if planned.measure != "hours":
        return {"price": price_effect, "quantity": quantity_effect}
    count_effect = Decimal(0)
    if planned.machines and actual.machines is not None:
        more_machines = actual.machines - planned.machines
        planned_hours = planned_quantity / planned.machines
        count_effect = price * more_machines * planned_hours
    return {
        "price": price_effect,
        "count": count_effect,
        "hours": quantity_effect - count_effect,
    }


def _usd(amount: Amount | None) -> Decimal:
    """Return the cost of a line; 0 where there is none, or no price."""
    return Decimal(0) if amount is None else amount.paid_usd


def _cents(usd: Decimal) -> Decimal:
    return usd.quantize(CENT, ROUND_HALF_UP)


def _summed(causes: Iterable[DifferenceCause]) -> tuple[DifferenceCause, ...]:
    """Return the sum of each cause, the largest first."""
    sums: dict[CauseName, Decimal] = {}
    for part in causes:
        sums[part.cause] = sums.get(part.cause, Decimal(0)) + part.usd
    return tuple(
        DifferenceCause(cause=cause, usd=usd)
        for cause, usd in sorted(
            sums.items(), key=lambda entry: (-abs(entry[1]), entry[0])
        )
    )

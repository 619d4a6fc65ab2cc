"""Charges and planned lines under the same names, so that they can be compared."""

from __future__ import annotations

from decimal import ROUND_FLOOR, ROUND_HALF_UP, Decimal
from typing import TYPE_CHECKING, Final, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from planner.cost.bill_line import CENT, MACHINE_KIND
from planner.plan.actual.charge import USAGE
from planner.plan.actual.meter import (
    UNKNOWN,
    line_of,
    line_title,
    measure_of,
    meter_of,
)
from planner.units import HOURS_PER_MONTH, SECONDS_PER_HOUR

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from planner.plan.actual.charge import Charge
    from planner.plan.actual.meter import Meter
    from planner.plan.types import CostLine, Plan

KeyT = TypeVar("KeyT")
LEAST: Final = Decimal("1e-9")
UNUSED: Final = "unused"
UNUSED_KIND: Final = "unused_commitment"


class LineKey(Struct, frozen=True, order=True):
    """What a line is for: its kind, the pool of machines, and the service of an unknown one."""

    kind: str
    pool: str = ""
    service: str = ""


class Amount(Struct, frozen=True, kw_only=True):
    """What a line costs and how much it counts.

    usd       exact; None without a price
    cents     the same in cents, as `in_cents` rounds it, USD
    quantity  in `measure`; None where nothing comparable is counted
    machines  at the same time at most; None where nobody says
    """

    usd: Decimal | None
    quantity: Decimal | None
    measure: str
    machines: int | None = None
    cents: Decimal | None = None

    @property
    def paid_usd(self) -> Decimal:
        """The cost in cents, USD; 0 without a price."""
        return Decimal(0) if self.cents is None else self.cents

    @property
    def unit_price(self) -> Decimal | None:
        """USD of one of the quantity, exact; None without a price or a quantity."""
        if self.usd is None or not self.quantity:
            return None
        return self.usd / self.quantity

    def scaled(self, factor: Decimal) -> Amount:
        """Return the amount of another time: as many machines, for other hours."""
        return replace(
            self,
            usd=None if self.usd is None else self.usd * factor,
            quantity=(
                None if self.quantity is None else self.quantity * factor
            ),
        )


def line_name(key: LineKey) -> str:
    """Return the name of a line as people read it."""
    if key.kind == UNKNOWN:
        return f"{UNKNOWN}: {key.service or 'no service'}"
    title = line_title(key.kind)
    return f"{title} of {key.pool}" if key.pool else title


def covered_hours(charges: Sequence[Charge]) -> Decimal:
    """Return the hours from the start of the first charge of use to the end of the last one.

    Taxes, credits and purchases are of whole months, and count where there is nothing else.
    """
    used = [charge for charge in charges if charge.category == USAGE]
    counted = used or charges
    covered_s = max(charge.end_s for charge in counted) - min(
        charge.start.s for charge in counted
    )
    return Decimal(covered_s) / SECONDS_PER_HOUR


def actual_amounts(
    charges: Sequence[Charge], plan: Plan
) -> dict[LineKey, Amount]:
    """Return what each line has cost, in cents that add up to the sum of all charges."""
    accelerators = {
        pool.name: pool.accelerators_per_node for pool in plan.solution.pools
    }
    by_key: dict[LineKey, list[Charge]] = {}
    for charge in charges:
        by_key.setdefault(_key_of(charge, accelerators), []).append(charge)
    return in_cents(
        {
            key: _actual(by_key[key], accelerators.get(key.pool))
            for key in sorted(by_key)
        }
    )


def planned_amounts(plan: Plan, hours: Decimal) -> dict[LineKey, Amount]:
    """Return what was planned for some hours, in cents: month * hours / 730; a run as it is."""
    pools = {pool.name: pool.nodes for pool in plan.solution.pools}
    by_key: dict[LineKey, list[CostLine]] = {}
    for line in plan.cost.lines:
        pool = line.pool if line.kind == MACHINE_KIND else None
        key = LineKey(line_of(line.kind), pool or "")
        by_key.setdefault(key, []).append(line)
    is_month = plan.cost.period == "month"
    factor = hours / HOURS_PER_MONTH if is_month else Decimal(1)
    return in_cents(
        {
            key: _planned(by_key[key], pools.get(key.pool)).scaled(factor)
            for key in sorted(by_key)
        }
    )


def in_cents(amounts: Mapping[LineKey, Amount]) -> dict[LineKey, Amount]:
    """Return amounts in cents whose sum is the sum of all, rounded once.

    Each is rounded down, and the cents that are left go to those that lost the most.
    """
    exact = {
        key: amount.usd
        for key, amount in amounts.items()
        if amount.usd is not None
    }
    cents = spread_cents(exact)
    return {
        key: replace(amount, cents=cents.get(key))
        for key, amount in amounts.items()
    }


def spread_cents(exact: Mapping[KeyT, Decimal]) -> dict[KeyT, Decimal]:
    """Return amounts in cents, as `in_cents` says; equal losses in the order of their keys."""
    # Digits beyond these are left by divisions, and must not decide between equal losses.
    exact = {key: usd.quantize(LEAST) for key, usd in exact.items()}
    total = sum(exact.values(), Decimal(0)).quantize(CENT, ROUND_HALF_UP)
    cents = {key: usd.quantize(CENT, ROUND_FLOOR) for key, usd in exact.items()}
    left = int((total - sum(cents.values(), Decimal(0))) / CENT)
    losers = sorted(exact, key=lambda key: cents[key] - exact[key])
    for key in losers[:left]:
        cents[key] += CENT
    return cents


def _key_of(charge: Charge, pools: Mapping[str, int]) -> LineKey:
    """Return the line of a charge; machines without a known pool are those of the only one."""
    if charge.commitment == UNUSED:
        return LineKey(UNUSED_KIND)
    if charge.category and charge.category != USAGE:
        return LineKey(charge.category)
    meter = meter_of(charge.service, charge.meter)
    if meter is None or not charge.category:
        return LineKey(UNKNOWN, service=charge.service)
    if meter.kind != MACHINE_KIND:
        return LineKey(line_of(meter.kind))
    pool = charge.pool if charge.pool in pools else ""
    return LineKey(MACHINE_KIND, next(iter(pools)) if len(pools) == 1 else pool)


def _actual(charges: Sequence[Charge], accelerators: int | None) -> Amount:
    """Return the cost of charges, and the sum of what they count where all have one measure."""
    usd = sum((charge.usd for charge in charges), Decimal(0))
    counted = [
        (charge, meter)
        for charge in charges
        if charge.category == USAGE
        and (meter := meter_of(charge.service, charge.meter)) is not None
        and meter.counted != "nothing"
    ]
    measures = {_measure_name(charge.unit) for charge, _ in counted}
    if len(measures) != 1 or "" in measures:
        return Amount(usd=usd, quantity=None, measure="")
    quantities = [
        _quantity(charge, meter, accelerators) for charge, meter in counted
    ]
    known = [quantity for quantity in quantities if quantity is not None]
    return Amount(
        usd=usd,
        quantity=(
            sum(known, Decimal(0)) if len(known) == len(quantities) else None
        ),
        measure=measures.pop(),
        machines=_most_at_once([charge for charge, _ in counted]),
    )


def _quantity(
    charge: Charge, meter: Meter, accelerators: int | None
) -> Decimal | None:
    """Return what a charge counts in its measure; of accelerators the machines that have them."""
    measure = measure_of(charge.unit)
    if charge.quantity is None or measure is None:
        return None
    quantity = charge.quantity / measure.per_measure
    if meter.counted == "units":
        return quantity
    return quantity / accelerators if accelerators else None


def _measure_name(unit: str) -> str:
    measure = measure_of(unit)
    return measure.name if measure is not None else ""


def _most_at_once(charges: Iterable[Charge]) -> int | None:
    """Return the most resources that were charged from the same time on; None without names."""
    resources: dict[int, set[str]] = {}
    for charge in charges:
        if not charge.resource:
            return None
        resources.setdefault(charge.start.s, set()).add(charge.resource)
    return max(map(len, resources.values()), default=None)


def _planned(lines: Sequence[CostLine], nodes: int | None) -> Amount:
    prices = [line.usd for line in lines if line.usd is not None]
    measures = {_measure_name(line.unit) for line in lines}
    is_comparable = len(measures) == 1 and "" not in measures
    quantity = Decimal(0)
    for line in lines:
        measure = measure_of(line.unit)
        if measure is not None:
            quantity += line.quantity / measure.per_measure
    return Amount(
        # A line without a price would make the others a lower bound.
        usd=sum(prices, Decimal(0)) if len(prices) == len(lines) else None,
        quantity=quantity if is_comparable else None,
        measure=measures.pop() if is_comparable else "",
        machines=nodes,
    )

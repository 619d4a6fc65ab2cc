"""What a stack has cost: by line, by day, in total, a month at that rate, and by the token."""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Decimal
from typing import TYPE_CHECKING, Annotated, Final, Literal

from msgspec import Meta

from planner.cost.bill_line import CENT, QUANTITY_STEP
from planner.plan.actual.export_time import days_between
from planner.plan.actual.ledger import (
    UNUSED,
    actual_amounts,
    covered_hours,
    line_name,
    spread_cents,
)
from planner.plan.number import plain_money
from planner.plan.part import DocumentPart
from planner.units import HOURS_PER_MONTH, TOKENS_PER_MILLION

if TYPE_CHECKING:
    from collections.abc import Sequence

    from planner.plan.actual.charge import Charge
    from planner.plan.actual.ledger import Amount, LineKey
    from planner.plan.actual.token_counter import CountedTokens
    from planner.plan.types import Plan

USED: Final = "used"


class CoveredTime(DocumentPart, frozen=True, kw_only=True):
    """The time that the charges of a stack are for."""

    first_day: Annotated[str, Meta(description="of the first charge, UTC")]
    last_day: Annotated[str, Meta(description="of the last charge, UTC")]
    hours: Annotated[
        Decimal,
        Meta(description="from the first charge to the end of the last"),
    ]


class SpentLine(DocumentPart, frozen=True, kw_only=True):
    """What a line of the bill has cost."""

    name: Annotated[str, Meta(description="what was paid for")]
    kind: Annotated[str, Meta(description="sort of line, or unknown")]
    pool: Annotated[str | None, Meta(description="pool of the machines")]
    usd: Annotated[Decimal, Meta(description="after credits")]
    quantity: Annotated[
        Decimal | None, Meta(description="none where nothing is counted")
    ]
    unit: Annotated[str, Meta(description="of the quantity")]


class SpentDay(DocumentPart, frozen=True, kw_only=True):
    """What the charges cost that begin on a day."""

    day: Annotated[str, Meta(description="in UTC")]
    usd: Annotated[Decimal, Meta(description="after credits")]


class CommitmentUse(DocumentPart, frozen=True, kw_only=True):
    """What of commitments was used, and what was paid for nothing."""

    used_usd: Annotated[Decimal, Meta(description="of charges that used one")]
    unused_usd: Annotated[Decimal, Meta(description="that nothing used")]


class SpentTokens(DocumentPart, frozen=True, kw_only=True):
    """What a million tokens have cost: the total over the tokens of a snapshot."""

    prompt_tokens: Annotated[int, Meta(description="that were read")]
    output_tokens: Annotated[int, Meta(description="that were written")]
    usd_per_million_output: Annotated[
        Decimal | None, Meta(description="all cost over output tokens")
    ]
    usd_per_million: Annotated[
        Decimal | None, Meta(description="all cost over all tokens")
    ]


class StackCost(DocumentPart, frozen=True, kw_only=True):
    """What a stack has cost, by the exports of its cloud."""

    schema: Literal["tonnage.usage/1"] = "tonnage.usage/1"
    stack: Annotated[str, Meta(description="by whose tag rows were chosen")]
    time: Annotated[CoveredTime, Meta(description="of the charges")]
    total_usd: Annotated[Decimal, Meta(description="sum of the lines")]
    usd_month: Annotated[
        Decimal | None,
        Meta(description="total / hours * 730; none for what ends"),
    ]
    lines: Annotated[
        tuple[SpentLine, ...], Meta(description="the dearest first")
    ]
    days: Annotated[tuple[SpentDay, ...], Meta(description="without gaps")]
    commitments: Annotated[
        CommitmentUse | None,
        Meta(description="none where no charge is of one"),
    ]
    tokens: Annotated[
        SpentTokens | None, Meta(description="none without a snapshot")
    ]


def stack_cost(
    plan: Plan, charges: Sequence[Charge], tokens: CountedTokens | None
) -> StackCost:
    """Return what a plan's stack has cost by its charges; lines and days add up to the total."""
    amounts = actual_amounts(charges, plan)
    lines = [_line(key, amount) for key, amount in amounts.items()]
    total_usd = sum((line.usd for line in lines), Decimal(0))
    time = covered_time(charges)
    is_month = plan.cost.period == "month"
    return StackCost(
        stack=plan.stack.name,
        time=time,
        total_usd=total_usd,
        usd_month=month_rate(total_usd, time.hours) if is_month else None,
        lines=tuple(sorted(lines, key=lambda line: (-line.usd, line.name))),
        days=_days(charges),
        commitments=_commitments(charges),
        tokens=None if tokens is None else _tokens(total_usd, tokens),
    )


def covered_time(charges: Sequence[Charge]) -> CoveredTime:
    """Return the time of charges."""
    return CoveredTime(
        first_day=min(charge.start for charge in charges).day,
        last_day=max(charge.start for charge in charges).day,
        hours=plain_money(covered_hours(charges).quantize(QUANTITY_STEP)),
    )


def month_rate(usd: Decimal, hours: Decimal) -> Decimal:
    """Return what a month costs at the rate of some hours, USD: cost / hours * 730."""
    return plain_money((usd / hours * HOURS_PER_MONTH).quantize(CENT))


def shown_quantity(quantity: Decimal | None) -> Decimal | None:
    """Return a quantity with the digits of a bill."""
    if quantity is None:
        return None
    return plain_money(quantity.quantize(QUANTITY_STEP, ROUND_HALF_UP))


def _line(key: LineKey, amount: Amount) -> SpentLine:
    return SpentLine(
        name=line_name(key),
        kind=key.kind,
        pool=key.pool or None,
        usd=amount.paid_usd,
        quantity=shown_quantity(amount.quantity),
        unit=amount.measure,
    )


def _days(charges: Sequence[Charge]) -> tuple[SpentDay, ...]:
    """Return the cost of all days; a charge is of the day on which it begins."""
    first = min(charge.start for charge in charges)
    last = max(charge.start for charge in charges)
    exact = {day: Decimal(0) for day in days_between(first.day, last.day)}
    for charge in charges:
        exact[charge.start.day] += charge.usd
    return tuple(
        SpentDay(day=day, usd=usd) for day, usd in spread_cents(exact).items()
    )


def _commitments(charges: Sequence[Charge]) -> CommitmentUse | None:
    parts = {
        status: [
            charge.usd for charge in charges if charge.commitment == status
        ]
        for status in (USED, UNUSED)
    }
    if not any(parts.values()):
        return None
    used_usd, unused_usd = (
        sum(amounts, Decimal(0)).quantize(CENT, ROUND_HALF_UP)
        for amounts in parts.values()
    )
    return CommitmentUse(used_usd=used_usd, unused_usd=unused_usd)


def _tokens(total_usd: Decimal, tokens: CountedTokens) -> SpentTokens:
    """Return USD of a million tokens: total * 1,000,000 / tokens."""

    def usd_per_million(count: Decimal) -> Decimal | None:
        if not count:
            return None
        usd = total_usd * TOKENS_PER_MILLION / count
        return plain_money(usd.quantize(QUANTITY_STEP, ROUND_HALF_UP))

    return SpentTokens(
        prompt_tokens=int(tokens.prompt),
        output_tokens=int(tokens.output),
        usd_per_million_output=usd_per_million(tokens.output),
        usd_per_million=usd_per_million(tokens.prompt + tokens.output),
    )

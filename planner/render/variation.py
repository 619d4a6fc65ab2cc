"""Pages of what wishes trade for money, and of what moves a bill."""

from __future__ import annotations

from decimal import Decimal
from itertools import groupby
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from planner import figures
from planner.render import period
from planner.render.against import against_plan, other_total
from planner.render.bill import (
    CAUSE_PHRASES,
    LOWER_BOUND,
    bound_mark,
    total_text,
)
from planner.render.page import (
    LINE_WIDTH,
    Block,
    Page,
    PageTable,
    Paragraph,
    phrases,
)
from planner.render.rivals import fleet_text
from planner.render.token_cost import (
    token_cells,
    token_phrases,
    token_titles,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from planner.estimate.calibration_worth import CalibrationWorth
    from planner.plan.types import Plan
    from planner.workload.variation import Variation

# The ends of what moves the band of a bill.
BAND_ENDS: Final = ("p5", "p95")
NO_FLEET: Final = "no fleet meets it"


class Swing(Struct, frozen=True):
    """How far something moves a bill: what it is at its two ends, and the bill then, USD.

    `usd`   from the lowest bill to the highest, that of the plan included
    `ends`  the bill at the low end and at the high one; None where no fleet meets the spec
    """

    subject: str
    low: tuple[str, str]
    high: tuple[str, str]
    usd: Decimal
    ends: tuple[Decimal | None, Decimal | None]


def frontier_page(plan: Plan, found: Sequence[Variation]) -> Page:
    """Return what each limit and each confidence costs, beside those of the spec."""
    if not found:
        return (
            Paragraph("the spec has no limit that could be traded for money"),
        )
    rows: list[tuple[str, ...]] = [
        (
            "as the spec says",
            "",
            total_text(plan),
            *token_cells(plan.cost.tokens, plan.cost.total, bound_mark(plan)),
            "",
            "",
        )
    ]
    ordered = sorted(found, key=lambda one: (one.subject, one.value))
    for subject, group in groupby(ordered, key=lambda one: one.subject):
        for number, one in enumerate(group):
            usd = one.answer.usd
            change = ""
            if usd is not None and usd != plan.cost.total:
                change = against_plan(
                    plan, usd, is_partial=one.answer.is_partial
                )
            rows.append(
                (
                    subject if number == 0 else "",
                    value_text(one),
                    "-"
                    if usd is None
                    else other_total(usd, is_partial=one.answer.is_partial),
                    # A limit changes no request.
                    *token_cells(
                        plan.cost.tokens,
                        usd,
                        LOWER_BOUND if one.answer.is_partial else "",
                    ),
                    change,
                    NO_FLEET if usd is None else fleet_text(one.answer.fleet),
                )
            )
    title = period.TITLES[plan.cost.period]
    return (
        PageTable(
            (
                "wish",
                ">value",
                title,
                *token_titles(plan.cost.tokens),
                ">change",
                "fleet",
            ),
            tuple(rows),
            width=LINE_WIDTH,
        ),
    )


def sensitivity_page(
    plan: Plan, found: Sequence[Variation], worth: CalibrationWorth | None
) -> Page:
    """Return what moves a bill, the most first, what does not, and what a benchmark would."""
    swings, still = bill_swings(plan, found)
    most = max((swing.usd for swing in swings), default=0) or Decimal(1)
    blocks: list[Block] = [
        phrases(_planned(plan), indent="  "),
        PageTable(
            (
                "what is different",
                ">so little",
                f">{period.TITLES[plan.cost.period].lstrip('>')} then",
                ">so much",
                f">{period.TITLES[plan.cost.period].lstrip('>')} then",
                "it moves the bill",
            ),
            tuple(
                (
                    swing.subject,
                    *swing.low,
                    *swing.high,
                    figures.bar(float(swing.usd / most)),
                )
                for swing in swings
            ),
            width=LINE_WIDTH,
        ),
    ]
    if still:
        blocks.append(
            Paragraph(f"  of no effect: {', '.join(still)}", width=LINE_WIDTH)
        )
    if worth is not None:
        blocks.append(
            Paragraph(f"  {_calibration(plan, worth)}", width=LINE_WIDTH)
        )
    return tuple(blocks)


def bill_swings(
    plan: Plan, found: Sequence[Variation]
) -> tuple[list[Swing], list[str]]:
    """Return what moves a bill, the most first, and the names of what does not."""
    swings = [
        Swing(
            CAUSE_PHRASES[cause.cause],
            (BAND_ENDS[0], figures.dollars(cause.low)),
            (BAND_ENDS[1], figures.dollars(cause.high)),
            cause.high - cause.low,
            (cause.low, cause.high),
        )
        for cause in (plan.cost.band.causes if plan.cost.band else ())
    ]
    still = []
    ordered = sorted(found, key=lambda one: one.subject)
    for subject, group in groupby(ordered, key=lambda one: one.subject):
        low, high = sorted(group, key=lambda one: one.value)
        ends = (low.answer.usd, high.answer.usd)
        bills = [usd for usd in ends if usd is not None]
        usd = max([*bills, plan.cost.total]) - min([*bills, plan.cost.total])
        if usd == 0 and len(bills) == len(ends):
            still.append(subject)
            continue
        swings.append(Swing(subject, _cells(low), _cells(high), usd, ends))
    swings.sort(key=lambda swing: (-swing.usd, swing.subject))
    return swings, still


def _planned(plan: Plan) -> list[str]:
    """Return what the plan costs with nothing different, and its tokens and requests."""
    planned = (
        f"as planned: {total_text(plan)}{period.SUFFIXES[plan.cost.period]}"
    )
    if plan.cost.tokens is None:
        return [planned]
    return [planned, *token_phrases(plan.cost.tokens, bound_mark(plan))]


def _calibration(plan: Plan, worth: CalibrationWorth) -> str:
    sweep = worth.sweep
    fleet = worth.fleet
    is_same = any(
        (pool.provider, pool.region, pool.instance_type, pool.nodes)
        == (fleet.provider, fleet.region, fleet.instance_type, fleet.nodes)
        for pool in plan.solution.pools
    )
    change_usd = worth.usd - plan.cost.total
    then = (
        "stays as it is"
        if is_same
        else f"becomes {fleet_text(fleet)} at {figures.dollars(worth.usd)}, "
        f"{figures.signed_dollars(change_usd)}"
    )
    return (
        f"a benchmark of {sweep.minutes:.0f} minutes on one {sweep.instance_type} costs about "
        f"{figures.dollars(sweep.usd, cents=True)}. Where it measures what is expected, the plan "
        f"{then}. Its commands: tonnage calibrate --recipe {plan.spec.path}"
    )


def _cells(one: Variation) -> tuple[str, str]:
    usd = one.answer.usd
    if usd is None:
        return value_text(one), NO_FLEET
    return value_text(one), other_total(usd, is_partial=one.answer.is_partial)


def value_text(one: Variation) -> str:
    """Return what is varied, as people write it."""
    if one.quantity == "limit":
        return figures.duration(float(one.value))
    if one.quantity == "confidence":
        return figures.percentage(float(one.value))
    if one.quantity == "error":
        return f"p{100 * float(one.value):.0f}"
    return f"{one.value:f} times"

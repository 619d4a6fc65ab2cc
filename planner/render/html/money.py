"""What a plan costs: its lines, its commitments, and what moves it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from planner import figures
from planner.market.term import TERM_OF
from planner.render import period
from planner.render.bill import (
    cost_notes,
    exact_total_text,
    line_cells,
    total_row,
    total_text,
)
from planner.render.html import axis_text
from planner.render.html.blocks import block_markup
from planner.render.html.figure import Figure, Section
from planner.render.html.rows import Bar, ChartRow, rows_drawing
from planner.render.page import PageTable, total_row_tones
from planner.render.regret import form_name, form_sentences, regret_text
from planner.render.variation import bill_swings, sensitivity_page

if TYPE_CHECKING:
    from collections.abc import Sequence

    from planner.plan.types import CommitmentOption, CostLine, Plan
    from planner.workload.variation import Variation

NO_PRICE: Final = "no price"


def cost_section(plan: Plan, level: int) -> Section:
    """Return the bill from its first line to its total; a line without a price is hatched."""
    rows = _line_rows(plan.cost.lines)
    band = plan.cost.band
    rows.append(
        ChartRow(
            name="total",
            note=exact_total_text(plan),
            bars=(Bar(0, float(plan.cost.total), "total"),),
            band=None if band is None else (float(band.low), float(band.high)),
        )
    )
    table_rows = (
        *((*line_cells(line), _date(line)) for line in plan.cost.lines),
        total_row(plan),
    )
    partial = (
        " Hatched lines have no known price: the total is at least so much."
        if plan.cost.is_partial
        else ""
    )
    return Section(
        key="cost",
        title="What it costs",
        content=(
            Figure(
                key="lines",
                title=f"From the machines to the total of {period.NAMES[plan.cost.period]}",
                summary=f"{len(plan.cost.lines)} lines add up to {total_text(plan)}; "
                f"the line through the total is its 90 % band.{partial}",
                drawing=rows_drawing(rows, axis_text.money_tick),
                table=PageTable(
                    (
                        f"the bill of {period.NAMES[plan.cost.period]}",
                        ">quantity",
                        ">unit price",
                        ">USD",
                        "price of",
                    ),
                    table_rows,
                    total_row_tones(len(table_rows)),
                ),
                is_open=True,
            ),
            *block_markup(cost_notes(plan, full=False), level + 1),
        ),
    )


def _line_rows(lines: Sequence[CostLine]) -> list[ChartRow]:
    """Return a row for each line, whose bar begins where the one before ends."""
    rows = []
    reached = 0.0
    for cost_line in lines:
        end = reached + float(cost_line.usd or 0)
        is_unknown = cost_line.usd is None
        rows.append(
            ChartRow(
                name=cost_line.name,
                note=NO_PRICE
                if is_unknown
                else figures.dollars(cost_line.usd, cents=True),
                bars=(
                    Bar(reached, None, "unknown")
                    if is_unknown
                    else Bar(reached, end),
                ),
            )
        )
        reached = end
    return rows


def _date(cost_line: CostLine) -> str:
    if not cost_line.price_found:
        return NO_PRICE
    return cost_line.price_as_of or "unknown"


def purchase_section(plan: Plan) -> Section | None:
    """Return how machines are bought, and when commitments pay; nothing where none would."""
    options = plan.cost.commitments
    if not options:
        return None
    rows = [_commitment_row(option) for option in options]
    cloud = plan.solution.pools[0].provider
    forms = form_sentences((cloud, option.form) for option in options)
    return Section(
        key="purchase",
        title="Commitments, and when they pay",
        content=(
            Figure(
                key="commitments",
                title="Months until a commitment has paid",
                summary="; ".join(f"{row.name}: {row.note}" for row in rows)
                + ". Solid: a workload that ends here has paid more than on demand. Dotted: less."
                + "".join(f" {sentence.capitalize()}." for sentence in forms),
                drawing=rows_drawing(rows, _month_tick),
                table=_commitment_table(options, cloud),
            ),
        ),
    )


def _commitment_name(option: CommitmentOption) -> str:
    noun = "machine" if option.nodes == 1 else "machines"
    return f"{option.nodes} {noun} for {TERM_OF[option.purchase].name}"


def _commitment_row(option: CommitmentOption) -> ChartRow:
    months = TERM_OF[option.purchase].months
    return ChartRow(
        name=_commitment_name(option),
        note=f"pays after {option.pays_after_months:.0f} of {months} months",
        bars=(
            Bar(0, option.pays_after_months, "bad"),
            Bar(option.pays_after_months, months, "good"),
        ),
    )


def _month_tick(months: float) -> str:
    return f"{months:.0f}"


def _commitment_table(
    options: Sequence[CommitmentOption], cloud: str
) -> PageTable:
    """Return a row for each commitment, with what each future would lose by it."""
    meanings = list(
        dict.fromkeys(
            regret.meaning for option in options for regret in option.regrets
        )
    )
    rows = []
    for option in options:
        losses = {
            regret.meaning: regret_text(
                regret.usd, regret.scenario, option.purchase
            )
            for regret in option.regrets
        }
        rows.append(
            (
                _commitment_name(option),
                form_name(cloud, option.form),
                figures.dollars(option.saved_usd_month),
                figures.dollars(option.committed_usd),
                f"{option.pays_after_months:.0f} of {TERM_OF[option.purchase].months}",
                f"{option.pays_above_hours:.0f}",
                *(losses.get(meaning, "nothing") for meaning in meanings),
            )
        )
    return PageTable(
        (
            "committed",
            "form",
            ">saves a month",
            ">cost of its term",
            ">pays after months",
            ">pays above hours a month",
            *(f">lost where {meaning}" for meaning in meanings),
        ),
        tuple(rows),
    )


def sensitivity_section(
    plan: Plan, found: Sequence[Variation], level: int
) -> Section | None:
    """Return what moves the bill, the most first; nothing where nothing is known to."""
    swings, _ = bill_swings(plan, found)
    if not swings:
        return None
    planned, table, *notes = sensitivity_page(plan, found, None)
    if not isinstance(table, PageTable):
        return None
    rows = [
        ChartRow(
            name=swing.subject,
            note=f"{swing.low[1]} to {swing.high[1]}",
            bars=tuple(
                Bar(0, change, "good" if change < 0 else "bad")
                for usd in swing.ends
                if usd is not None
                for change in [float(usd - plan.cost.total)]
                if change
            ),
        )
        for swing in swings
    ]
    return Section(
        key="sensitivity",
        title="What moves the bill",
        content=(
            Figure(
                key="swings",
                title="The bill under other circumstances",
                summary=f"Against {total_text(plan)}: "
                + "; ".join(f"{row.name}: {row.note}" for row in rows)
                + ". Dotted is less than planned, solid is more.",
                drawing=rows_drawing(rows, axis_text.change_tick, reference=0),
                table=table,
            ),
            *block_markup([planned, *notes], level + 1),
        ),
    )

"""What a plan says that nothing meets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from planner.render import period
from planner.render.against import other_total
from planner.render.diff.wording import UNKNOWN
from planner.render.page import LINE_WIDTH, Block, PageTable, Paragraph
from planner.render.rivals import fleet_text, rivals_of

if TYPE_CHECKING:
    from planner.plan.types import Binding, Plan


def infeasible_blocks(plan: Plan) -> list[Block]:
    """Return that nothing meets a spec, and the nearest changes that would do."""
    funnel_text = "  >  ".join(
        f"{funnel_step.rule} {funnel_step.offers:,}"
        for funnel_step in plan.solution.funnel
    )
    page_blocks: list[Block] = [
        Paragraph(
            "INFEASIBLE: no offer meets every constraint, and that is proved",
            "bad",
        ),
        Paragraph(
            f"  offers left after each rule: {funnel_text}", width=LINE_WIDTH
        ),
    ]
    table_rows = [
        (
            relaxation.constraint,
            relaxation.relax_to,
            _nearest_total(relaxation),
            fleet_text(relaxation.fleet),
        )
        for relaxation in plan.solution.binding
    ]
    # Each row relaxes one constraint and leaves the others as they are.
    if table_rows:
        cost_title = period.TITLES[plan.cost.period]
        column_titles = (
            "nearest, changing one thing",
            "to",
            cost_title,
            "with",
        )
        page_blocks.append(
            PageTable(column_titles, tuple(table_rows), width=LINE_WIDTH)
        )
    else:
        page_blocks.append(
            Paragraph("  no single change makes it feasible: relax two", "warn")
        )
    missed = [
        (rival.location, rival.machines, rival.takes)
        for rival in rivals_of(plan)
        if not rival.is_offered
    ]
    if missed:
        page_blocks.append(
            PageTable(
                ("what is left", "", "what stops it"),
                tuple(missed),
                width=LINE_WIDTH,
            )
        )
    page_blocks += [
        Paragraph(f"! {warning.message}", "warn", LINE_WIDTH)
        for warning in plan.warnings
    ]
    return page_blocks


def _nearest_total(relaxation: Binding) -> str:
    """Return what the nearest fleet costs, as far as its prices are known."""
    usd = relaxation.usd_month
    if usd is None:
        return UNKNOWN
    return other_total(usd, is_partial=bool(relaxation.unpriced))

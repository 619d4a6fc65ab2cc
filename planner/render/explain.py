"""Pages of tonnage explain: reasons for a plan and counterfactuals."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Final

from planner.render import period
from planner.render.against import against_plan, other_total
from planner.render.bill import LOWER_BOUND, bound_mark, total_text
from planner.render.page import (
    LINE_WIDTH,
    Block,
    Heading,
    Page,
    PageTable,
    Paragraph,
)
from planner.render.plan import (
    decision_blocks,
    infeasible_page,
    prediction_blocks,
)
from planner.render.price_origin import price_blocks
from planner.render.proof import proof_sentence
from planner.render.regret import form_sentences
from planner.render.rivals import (
    alternative_blocks,
    binding_blocks,
    fleet_text,
)
from planner.render.token_cost import price_cells, token_cells, token_titles
from planner.sentence import describe
from planner.workload.registry import workload_of_kind

if TYPE_CHECKING:
    from planner.plan.types import Plan
    from planner.solve.solution import Counterfactual

# The code of the notice that says on what predictions rest.
MEASUREMENTS: Final = "measurements"


def reasons_page(plan: Plan) -> Page:
    """Return the page of the reasons for a plan.

    It has the offers left by each rule, the alternatives and the binding limits.
    """
    # No fleet to explain: the page of the plan shows what to relax.
    if plan.solution.status == "infeasible":
        return infeasible_page(plan)
    funnel_rows = [
        (funnel_step.rule, f"{funnel_step.offers:,}")
        for funnel_step in plan.solution.funnel
    ]
    page_blocks: list[Block] = [
        Heading("Why this fleet"),
        *decision_blocks(plan),
        *prediction_blocks(plan),
        PageTable(("rule of the spec", ">offers left"), tuple(funnel_rows)),
        Paragraph(""),
        Paragraph(
            "  Every layout of the model on every offer left was bounded from below; the cheapest "
            "that meets every limit is chosen.",
            width=LINE_WIDTH,
        ),
        Paragraph(f"  {proof_sentence(plan)}", width=LINE_WIDTH),
        *_evidence_blocks(plan),
        *alternative_blocks(plan),
        *binding_blocks(plan),
        *_form_blocks(plan),
        *price_blocks(plan),
    ]
    return tuple(page_blocks)


def _evidence_blocks(plan: Plan) -> list[Block]:
    """Return on what the predictions rest where no measurement of the accelerator is in a fit."""
    return [
        Paragraph(f"  {notice.message}", width=LINE_WIDTH)
        for notice in plan.warnings
        if notice.code == MEASUREMENTS
    ]


def _form_blocks(plan: Plan) -> list[Block]:
    """Return what the commitments of a plan serve, and how they end; often nothing."""
    return [
        Paragraph(f"  {sentence}", width=LINE_WIDTH)
        for sentence in form_sentences(
            (pool.provider, part.form)
            for pool in plan.solution.pools
            for part in pool.purchases
        )
    ]


def rejections_page(plan: Plan, answers: list[Counterfactual]) -> Page:
    """Return the page of the reasons why machine types were not chosen."""
    chosen_types = {pool.instance_type for pool in plan.solution.pools}
    period_suffix = period.RATES[plan.cost.period]
    table_rows = []
    for answer in answers:
        is_chosen = (
            answer.fleet is not None
            and answer.fleet.instance_type in chosen_types
        )
        answer_text = _reason_text(answer)
        reason_text = "chosen" if is_chosen else answer_text
        if answer.usd is not None and not is_chosen:
            extra_text = against_plan(
                plan, answer.usd, is_partial=answer.is_partial
            )
            reason_text = f"{answer_text}: {extra_text}{period_suffix}"
        if answer.binding is not None:
            reason_text += f"; one fewer: {describe(answer.binding)}"
        table_rows.append(
            (
                _fleet_text(answer),
                _cost_text(answer),
                *_token_cells(plan, answer),
                reason_text,
            )
        )
    return (
        PageTable(
            (
                "asked about",
                _cost_title(plan),
                *token_titles(plan.cost.tokens),
                "why not, against the chosen fleet",
            ),
            tuple(table_rows),
            width=LINE_WIDTH,
        ),
    )


def scaling_page(plan: Plan, factor: float, answer: Counterfactual) -> Page:
    """Return the page of the cost at `factor` times what the workload scales by."""
    scaled_quantity = workload_of_kind(
        plan.spec.normalized["kind"]
    ).scaled_quantity
    question_text = f"{factor:g} times the {scaled_quantity}"
    # No fleet meets the larger load.
    if answer.usd is None:
        return (Paragraph(f"{question_text}: {_reason_text(answer)}", "warn"),)
    table_rows = (
        (
            "now",
            "",
            total_text(plan),
            *price_cells(plan.cost.tokens, bound_mark(plan)),
            "",
        ),
        (
            question_text,
            _fleet_text(answer),
            _cost_text(answer),
            *_token_cells(plan, answer, factor),
            against_plan(plan, answer.usd, is_partial=answer.is_partial),
        ),
    )
    column_titles = (
        "",
        "fleet",
        _cost_title(plan),
        *token_titles(plan.cost.tokens),
        ">change",
    )
    return (PageTable(column_titles, table_rows, width=LINE_WIDTH),)


def _token_cells(
    plan: Plan, answer: Counterfactual, factor: float = 1.0
) -> tuple[str, ...]:
    """Return what tokens and requests cost of an answer with `factor` times as many of them."""
    usd = None if answer.usd is None else answer.usd / Decimal(factor)
    mark = LOWER_BOUND if answer.is_partial else ""
    return token_cells(plan.cost.tokens, usd, mark)


def _reason_text(answer: Counterfactual) -> str:
    return "" if answer.reason is None else describe(answer.reason)


def _fleet_text(answer: Counterfactual) -> str:
    # A workspace is described by its people, one machine for each.
    if answer.users:
        return f"{answer.users} users"
    return fleet_text(answer.fleet)


def _cost_title(plan: Plan) -> str:
    return period.TITLES[plan.cost.period]


def _cost_text(answer: Counterfactual) -> str:
    if answer.usd is None:
        return "-"
    return other_total(answer.usd, is_partial=answer.is_partial)

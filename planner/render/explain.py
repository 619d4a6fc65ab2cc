"""The page that explains a plan, or answers a question about it."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any

from planner.render import words
from planner.render.page import Block, Heading, Page, Paragraph, Table
from planner.render.plan import binding, chosen, others, page

if TYPE_CHECKING:
    from planner.solve.question import Answer


def reasons(plan: dict[str, Any]) -> Page:
    """Return why the plan is what it is: the funnel, the wishes that cost, the alternatives."""
    if plan["solution"]["status"] == "infeasible":
        return page(plan)
    funnel_rows = [
        (funnel_step["rule"], f"{funnel_step['offers']:,}")
        for funnel_step in plan["solution"]["funnel"]
    ]
    page_blocks: list[Block] = [
        Heading("Why this fleet"),
        *chosen(plan),
        Table(("rule of the spec", ">offers left"), tuple(funnel_rows)),
        Paragraph(""),
        Paragraph(
            "  Every layout of the model on every offer left was bounded from below; the cheapest "
            "that meets every limit is chosen."
        ),
        *others(plan),
        *binding(plan),
    ]
    return tuple(page_blocks)


def refused(plan: dict[str, Any], answers: list[Answer]) -> Page:
    """Return why machine types were not chosen, beside the one that was."""
    chosen_pool = (
        plan["solution"]["pools"][0] if plan["solution"]["pools"] else None
    )
    chosen_usd, period_suffix = (
        Decimal(plan["cost"]["usd_month"]),
        "" if _trains(plan) else " a month",
    )
    table_rows = []
    for answer in answers:
        is_chosen = chosen_pool and answer.fleet.split(" x ")[0].endswith(
            chosen_pool["instance_type"]
        )
        reason_text = "chosen" if is_chosen else answer.reason
        if answer.usd_month is not None and not is_chosen:
            extra_usd = answer.usd_month - chosen_usd
            reason_text = f"{answer.reason}: {words.change(extra_usd)}{period_suffix} against the chosen fleet"
        table_rows.append((answer.fleet, _usd(answer.usd_month), reason_text))
    return (Table(("asked about", _money(plan), "why not"), tuple(table_rows)),)


def scaled(plan: dict[str, Any], factor: float, answer: Answer) -> Page:
    """Return what so many times the traffic, or the tokens, would cost."""
    chosen_usd = Decimal(plan["cost"]["usd_month"])
    question_text = (
        f"{factor:g} times the {'tokens' if _trains(plan) else 'traffic'}"
    )
    if answer.usd_month is None:
        return (Paragraph(f"{question_text}: {answer.reason}", "warn"),)
    extra_usd = answer.usd_month - chosen_usd
    table_rows = (
        ("now", "", words.dollars(str(chosen_usd)), ""),
        (
            question_text,
            answer.fleet,
            _usd(answer.usd_month),
            words.change(extra_usd),
        ),
    )
    return (Table(("", "fleet", _money(plan), ">change"), table_rows),)


def _trains(plan: dict[str, Any]) -> bool:
    return bool(plan["workload"]["kind"] == "training")


def _money(plan: dict[str, Any]) -> str:
    return ">USD" if _trains(plan) else ">$/mo"


def _usd(amount_usd: Decimal | None) -> str:
    return "-" if amount_usd is None else words.dollars(str(amount_usd))

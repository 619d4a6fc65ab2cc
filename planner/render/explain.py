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
    steps = [
        (f["rule"], f"{f['offers']:,}") for f in plan["solution"]["funnel"]
    ]
    blocks: list[Block] = [
        Heading("Why this fleet"),
        *chosen(plan),
        Table(("rule of the spec", ">offers left"), tuple(steps)),
        Paragraph(""),
        Paragraph(
            "  Every layout of the model on every offer left was bounded from below; the cheapest "
            "that meets every limit is chosen."
        ),
        *others(plan),
        *binding(plan),
    ]
    return tuple(blocks)


def refused(plan: dict[str, Any], answers: list[Answer]) -> Page:
    """Return why machine types were not chosen, beside the one that was."""
    pool = plan["solution"]["pools"][0] if plan["solution"]["pools"] else None
    have, period = (
        Decimal(plan["cost"]["usd_month"]),
        "" if _trains(plan) else " a month",
    )
    rows = []
    for answer in answers:
        chosen = pool and answer.fleet.split(" x ")[0].endswith(
            pool["instance_type"]
        )
        why = "chosen" if chosen else answer.why
        if answer.usd_month is not None and not chosen:
            more = answer.usd_month - have
            why = f"{answer.why}: {words.change(more)}{period} against the chosen fleet"
        rows.append((answer.fleet, _usd(answer.usd_month), why))
    return (Table(("asked about", _money(plan), "why not"), tuple(rows)),)


def scaled(plan: dict[str, Any], factor: float, answer: Answer) -> Page:
    """Return what so many times the traffic, or the tokens, would cost."""
    have = Decimal(plan["cost"]["usd_month"])
    asked = f"{factor:g} times the {'tokens' if _trains(plan) else 'traffic'}"
    if answer.usd_month is None:
        return (Paragraph(f"{asked}: {answer.why}", "warn"),)
    more = answer.usd_month - have
    rows = (
        ("now", "", words.dollars(str(have)), ""),
        (asked, answer.fleet, _usd(answer.usd_month), words.change(more)),
    )
    return (Table(("", "fleet", _money(plan), ">change"), rows),)


def _trains(plan: dict[str, Any]) -> bool:
    return bool(plan["workload"]["kind"] == "training")


def _money(plan: dict[str, Any]) -> str:
    return ">USD" if _trains(plan) else ">$/mo"


def _usd(value: Decimal | None) -> str:
    return "-" if value is None else words.dollars(str(value))

"""The report of a plan, or of several: the decision first, then what it rests on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct

from planner.render import period
from planner.render.bill import band_text, total_text
from planner.render.html.blocks import block_markup, table_markup
from planner.render.html.choice import (
    binding_section,
    frontier_section,
    rivals_section,
)
from planner.render.html.document import DocumentParts, document
from planner.render.html.figure import Section
from planner.render.html.hours import hours_section
from planner.render.html.markup import Markup, element, joined
from planner.render.html.money import (
    cost_section,
    purchase_section,
    sensitivity_section,
)
from planner.render.html.service import load_section, prediction_section
from planner.render.html.sources import source_section
from planner.render.html.stack import stack_section
from planner.render.infeasible import infeasible_blocks
from planner.render.live import live_blocks
from planner.render.page import PageTable, Paragraph
from planner.render.plan import (
    comparison_blocks,
    decision_blocks,
    request_blocks,
    warning_blocks,
)
from planner.render.training import run_blocks
from planner.workload.outlook import Outlook

if TYPE_CHECKING:
    from collections.abc import Sequence

    from planner.plan.types import Plan

PLAN_LEVEL: Final = 1
NO_OUTLOOK: Final = Outlook()


class PlanView(Struct, frozen=True):
    """A plan, and what its solution says beside it."""

    plan: Plan
    outlook: Outlook = NO_OUTLOOK


def plan_report(view: PlanView) -> str:
    """Return the report of one plan as an HTML document; equal plans give equal bytes.

    Pictures of what only a solution says are left out without its outlook.
    """
    return document(plan_parts(view))


def plan_parts(view: PlanView) -> DocumentParts:
    """Return what the report of one plan says."""
    plan = view.plan
    sections = _sections(view, PLAN_LEVEL + 1)
    return DocumentParts(
        f"{plan.workload.name}: {decision_text(plan)}",
        joined(
            (
                element("h1", None, plan.workload.name),
                *_lead(plan, PLAN_LEVEL),
                contents(
                    [(section.key, section.title) for section in sections]
                ),
            )
        ),
        tuple(section.markup(PLAN_LEVEL + 1) for section in sections),
    )


def portfolio_report(views: Sequence[PlanView]) -> str:
    """Return the report of several plans in one document, with a table of them first."""
    if len(views) == 1:
        return plan_report(views[0])
    title = f"{len(views)} plans"
    rows = tuple(
        (
            view.plan.workload.name,
            _fleet_text(view.plan),
            decision_text(view.plan),
        )
        for view in views
    )
    table = PageTable(("plan", "machines", ">cost"), rows)
    names = [
        (f"p{number}", view.plan.workload.name)
        for number, view in enumerate(views, 1)
    ]
    parts = DocumentParts(
        title,
        joined(
            (
                element("h1", None, title),
                table_markup(table, "All plans"),
                contents(names),
            )
        ),
        tuple(
            _plan_part(view, key)
            for view, (key, _) in zip(views, names, strict=True)
        ),
    )
    return document(parts)


def _plan_part(view: PlanView, key: str) -> Markup:
    """Return one plan of several, as a section whose parts are sections too."""
    level = PLAN_LEVEL + 1
    return element(
        "section",
        {"aria-labelledby": key},
        element(f"h{level}", {"id": key}, view.plan.workload.name),
        *_lead(view.plan, level),
        *(
            section.markup(level + 1, f"{key}-")
            for section in _sections(view, level + 1)
        ),
    )


def decision_text(plan: Plan) -> str:
    """Return what a plan costs, in a word where it cannot be."""
    if not plan.is_feasible:
        return "infeasible"
    return f"{total_text(plan)}{period.RATES[plan.cost.period]}"


def _fleet_text(plan: Plan) -> str:
    return ", ".join(
        f"{pool.provider} {pool.region} {pool.nodes} x {pool.instance_type}"
        for pool in plan.solution.pools
    )


def contents(targets: Sequence[tuple[str, str]]) -> Markup:
    """Return links to sections: the key and the title of each."""
    return element(
        "nav",
        {"aria-label": "Contents"},
        element(
            "ul",
            None,
            *(
                element("li", None, element("a", {"href": f"#{key}"}, title))
                for key, title in targets
            ),
        ),
    )


def _lead(plan: Plan, level: int) -> tuple[Markup, ...]:
    """Return the decision, its band, the dates of its prices, and what to know first."""
    request = block_markup(request_blocks(plan), level + 1)
    if not plan.is_feasible:
        return (
            *request,
            *block_markup(
                [*infeasible_blocks(plan), *live_blocks(plan, full=True)],
                level + 1,
            ),
        )
    money, *machines = block_markup(decision_blocks(plan), level + 1)
    return (
        *request,
        element("div", {"class": "lead"}, money),
        *machines,
        *block_markup(
            [
                Paragraph(_price_text(plan)),
                *warning_blocks(plan),
                *comparison_blocks(plan),
                *live_blocks(plan, full=True),
            ],
            level + 1,
        ),
    )


def _price_text(plan: Plan) -> str:
    """Say the band of the total, and from when its prices are."""
    dates = sorted(
        {
            cost_line.price_as_of
            for cost_line in plan.cost.lines
            if cost_line.price_as_of and cost_line.price_as_of[0].isdigit()
        }
    )
    texts = [f"catalog of {plan.catalog.as_of}"]
    if dates:
        texts.insert(0, f"prices of {dates[0]} to {dates[-1]}")
    if plan.cost.band is not None:
        texts.insert(0, f"90 % of such bills are {band_text(plan)}")
    return "; ".join(texts)


def _sections(view: PlanView, level: int) -> list[Section]:
    plan, outlook = view.plan, view.outlook
    if not plan.is_feasible:
        return [source_section(plan, outlook.data_sheets)]
    sections = [
        prediction_section(plan, level),
        _run_section(plan, level),
        cost_section(plan, level),
        rivals_section(plan, level),
        frontier_section(plan, outlook.frontier),
        load_section(plan, outlook.load_curve, level),
        hours_section(plan, outlook.hours),
        purchase_section(plan),
        binding_section(plan, level),
        sensitivity_section(plan, outlook.sensitivity, level),
        stack_section(plan, level),
        source_section(plan, outlook.data_sheets),
    ]
    return [section for section in sections if section is not None]


def _run_section(plan: Plan, level: int) -> Section | None:
    run = plan.solution.run
    if run is None:
        return None
    return Section(
        key="run",
        title="How the job runs",
        content=block_markup(run_blocks(run, full=True), level + 1),
    )

"""The pages of what a folder has: specs, saved plans, and stacks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct

from planner.plan.diff import machines_text, total_amount
from planner.render import period
from planner.render.diff.wording import amount_text
from planner.render.html.blocks import block_markup, table_markup
from planner.render.html.document import DocumentParts
from planner.render.html.markup import element
from planner.render.html.served.frame import (
    FOLDER_ADDRESS,
    STACKS_ADDRESS,
    SiteLink,
    problem_markup,
    served_page,
)
from planner.render.limit import (
    confidence_text,
    simulation_text,
)
from planner.render.page import PageTable, Paragraph
from planner.render.status import stacks_page
from planner.render.total import NO_FLEET, total_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from planner.errors import Problem
    from planner.plan.account import StackAccount
    from planner.plan.status import StackStatus
    from planner.plan.types import Plan
    from planner.render.html.markup import Content, Markup
    from planner.render.page import Page

LEVEL: Final = 2
SPEC_COLUMNS: Final = ("spec", "kind", "machines", ">cost", "limits", "")
PLAN_COLUMNS: Final = ("plan", "kind", "machines", ">cost", "made of")


class ListedSpec(Struct, frozen=True, kw_only=True):
    """A spec of a folder: its plan, or what is wrong with it.

    address  of its plan
    ask      address of what it would be otherwise
    """

    path: str
    address: str
    ask: str
    plan: Plan | None = None
    problems: tuple[Problem, ...] = ()


class ListedPlan(Struct, frozen=True, kw_only=True):
    """A saved plan of a folder, or what is wrong with it; `made_of` says how its spec is now."""

    path: str
    address: str
    made_of: str = ""
    plan: Plan | None = None
    problems: tuple[Problem, ...] = ()


class StackList(Struct, frozen=True, kw_only=True):
    """The stacks of a backend, and what is wrong with those that cannot be read."""

    stacks: tuple[tuple[StackStatus, StackAccount], ...] = ()
    problems: tuple[Problem, ...] = ()


def folder_page(
    name: str,
    specs: Sequence[ListedSpec],
    plans: Sequence[ListedPlan],
    as_of: str,
) -> str:
    """Return the page of a folder: each spec and plan with its cost, and what is wrong.

    `as_of` is the day of the catalog that the specs are planned with.
    """
    body = [
        *_spec_part(specs, as_of),
        element("h2", None, "Saved plans"),
        *_plan_part(plans),
    ]
    head = element("h1", None, name)
    return served_page(
        DocumentParts(f"{name}: specs and plans", head, tuple(body)),
        address=FOLDER_ADDRESS,
    )


def stack_list_page(listed: StackList, near: Sequence[SiteLink]) -> str:
    """Return the page of all stacks; `near` leads to the page of each."""
    targets = {link.name: link.address for link in near}
    blocks: list[Content] = []
    # Where they cannot be read, nobody knows that there is none.
    shown = (
        stacks_page(listed.stacks)
        if listed.stacks or not listed.problems
        else ()
    )
    for block in shown:
        if isinstance(block, PageTable):
            links = [{0: targets[row[0]]} for row in block.rows]
            blocks.append(table_markup(block, "Stacks", links))
        else:
            blocks += block_markup([block], LEVEL)
    return served_page(
        DocumentParts(
            "Stacks",
            element("h1", None, "Stacks"),
            (*blocks, *problem_markup(listed.problems)),
        ),
        address=STACKS_ADDRESS,
    )


def stack_page(name: str, page: Page) -> str:
    """Return the page of a stack, as `tonnage status --full` shows it."""
    title = f"Stack {name}"
    return served_page(
        DocumentParts(
            title, element("h1", None, title), block_markup(page, LEVEL)
        )
    )


def _spec_part(specs: Sequence[ListedSpec], as_of: str) -> list[Markup]:
    title = element("h2", None, "Specs")
    if not specs:
        hint = "no spec is in this folder; write one with: tonnage init"
        return [title, element("p", None, hint)]
    table = PageTable(
        SPEC_COLUMNS,
        tuple(map(_spec_row, specs)),
        tuple("bad" if spec.problems else "" for spec in specs),
    )
    totals = total_rows([spec.plan for spec in specs if spec.plan is not None])
    lines = [
        Paragraph(f"{label}: {amount}", "strong") for label, _, amount in totals
    ]
    lines.append(Paragraph(f"planned with the catalog of {as_of}", "dim"))
    return [
        title,
        table_markup(
            table, "Specs", [{0: spec.address, 5: spec.ask} for spec in specs]
        ),
        *block_markup(lines, LEVEL),
        *(part for spec in specs for part in problem_markup(spec.problems)),
    ]


def _plan_part(plans: Sequence[ListedPlan]) -> list[Markup]:
    if not plans:
        hint = "no plan is saved here; save one with: tonnage plan SPEC -o FILE"
        return [element("p", None, hint)]
    table = PageTable(
        PLAN_COLUMNS,
        tuple(map(_plan_row, plans)),
        tuple("bad" if plan.problems else "" for plan in plans),
    )
    return [
        table_markup(
            table, "Saved plans", [{0: plan.address} for plan in plans]
        ),
        *(part for plan in plans for part in problem_markup(plan.problems)),
    ]


def _spec_row(spec: ListedSpec) -> tuple[str, ...]:
    if spec.plan is None:
        return spec.path, "", _problem_count(spec.problems), "-", "", ""
    return (
        spec.path,
        *_plan_cells(spec.plan),
        _limits_text(spec.plan),
        "what if",
    )


def _plan_row(listed: ListedPlan) -> tuple[str, ...]:
    if listed.plan is None:
        return listed.path, "", _problem_count(listed.problems), "-", ""
    return (listed.path, *_plan_cells(listed.plan), listed.made_of)


def _plan_cells(plan: Plan) -> tuple[str, str, str]:
    """Return the kind of a plan, its machines, and its cost."""
    kind = str(plan.workload.kind)
    if not plan.is_feasible:
        return kind, NO_FLEET, "-"
    machines = ", ".join(map(machines_text, plan.solution.pools))
    cost = amount_text(total_amount(plan), cents=False)
    return kind, machines, f"{cost}{period.UNITS[plan.cost.period]}"


def _limits_text(plan: Plan) -> str:
    """Say whether the limits of a spec are met, and how sure that is."""
    if not plan.is_feasible:
        return "not met"
    safety, verified = plan.solution.safety, plan.solution.verified
    words = []
    if safety is not None:
        words.append(confidence_text(safety.confidence))
    if verified is not None:
        words.append(simulation_text(verified.verdict))
    return "; ".join(words)


def _problem_count(problems: Sequence[Problem]) -> str:
    return "1 problem" if len(problems) == 1 else f"{len(problems)} problems"

"""What a plan builds: its resources, what they rest on, and what is not safe of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from planner.plan.security import security_findings
from planner.render.change import change_blocks, created_text
from planner.render.fallback import fallback_blocks
from planner.render.html.blocks import block_markup, table_markup
from planner.render.html.figure import Figure, Section
from planner.render.html.layers import layers_drawing
from planner.render.page import Block, PageTable, Paragraph, phrases
from planner.render.plan import purchase_blocks, shutdown_phrases

if TYPE_CHECKING:
    from planner.plan.types import Plan
    from planner.render.html.markup import Markup


def stack_section(plan: Plan, level: int) -> Section:
    """Return what is built or changed, in which order, and what ends it."""
    summary = shutdown_phrases(plan)
    changes: list[Block] = []
    if plan.changes is None:
        summary.insert(0, created_text(plan))
    else:
        changes = change_blocks(plan, plan.changes, full=True)
    blocks = [
        *changes,
        phrases(summary),
        *purchase_blocks(plan, full=True),
        *fallback_blocks(plan, full=True),
    ]
    return Section(
        key="stack",
        title="What is built",
        content=(
            *block_markup(blocks, level + 1),
            *([_resource_figure(plan)] if plan.graph.resources else []),
            *_security(plan, level),
        ),
    )


def _resource_figure(plan: Plan) -> Figure:
    resources = plan.graph.resources
    names = {resource.name for resource in resources}
    needs = {
        resource.name: tuple(
            name for name in resource.dependencies if name in names
        )
        for resource in resources
    }
    return Figure(
        key="resources",
        title="Resources, and what they rest on",
        summary=f"{len(resources)} resources in the order in which they are made, from left to "
        "right. A line leads from each to what rests on it.",
        drawing=layers_drawing(
            {
                resource.name: resource.type.rsplit(":", 1)[-1]
                for resource in resources
            },
            needs,
        ),
        table=PageTable(
            ("resource", "type", "rests on"),
            tuple(
                (resource.name, resource.type, ", ".join(needs[resource.name]))
                for resource in resources
            ),
        ),
    )


def _security(plan: Plan, level: int) -> tuple[Markup, ...]:
    """Return what is not safe; who accepts it, and until when, is said without a clock."""
    if not plan.graph.resources:
        return ()
    findings = security_findings(plan)
    if not findings:
        return block_markup([Paragraph("security: no finding")], level + 1)
    rows = tuple(
        (
            finding.rule.severity,
            f"{finding.rule.id}: {finding.rule.reason}",
            ", ".join(finding.resources),
            f"{finding.rule.remedy} ({finding.rule.source})"
            if finding.waiver is None
            else finding.waiver.told,
        )
        for finding in findings
    )
    table = PageTable(
        ("security", "what is not safe", "of", "what helps"), rows
    )
    return (table_markup(table, "Findings of security"),)

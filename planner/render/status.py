"""Pages of existing stacks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from planner import figures
from planner.render.page import (
    LINE_WIDTH,
    Block,
    Page,
    PageTable,
    Paragraph,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from planner.plan.status import (
        BatchJob,
        Operation,
        ResourceRef,
        StackStatus,
    )

OPERATION_PHRASES: Final[dict[Operation, str]] = {
    "applied": "complete",
    "applying": "INCOMPLETE: the last apply did not end well",
    "destroying": "HALF DESTROYED: the last destroy did not end well",
    "destroyed": "destroyed, but for its data",
}


def stacks_page(stack_names: list[str]) -> Page:
    """Return the page of the names of all stacks."""
    if not stack_names:
        return (Paragraph("no stack exists"),)
    return tuple(Paragraph(stack_name) for stack_name in stack_names)


def status_page(stack_status: StackStatus, *, full: bool = False) -> Page:
    """Return the page of one stack; `full` lists its resources."""
    headline = (
        f"{stack_status.stack}  ·  {len(stack_status.resources)} resources  "
        f"·  {OPERATION_PHRASES[stack_status.operation]}"
    )
    page_blocks: list[Block] = [
        Paragraph(headline, "strong" if stack_status.complete else "bad")
    ]
    is_gone = stack_status.operation == "destroyed"
    if not is_gone:
        page_blocks += _machine_blocks(stack_status)
    if stack_status.pending:
        page_blocks.append(
            Paragraph(
                "! a run was cut off, and it is not known what came of: "
                f"{', '.join(stack_status.pending)}",
                "warn",
                LINE_WIDTH,
            )
        )
    if stack_status.retained:
        page_blocks.append(
            _resource_table("kept for its data", stack_status.retained)
        )
    output_rows = tuple(
        (output_name, str(output_value))
        for output_name, output_value in sorted(stack_status.outputs.items())
    )
    if output_rows and not is_gone:
        page_blocks.append(PageTable(("output", "value"), output_rows))
    if full:
        page_blocks.append(_resource_table("resource", stack_status.resources))
    return tuple(page_blocks)


def _machine_blocks(stack_status: StackStatus) -> list[Block]:
    stack_facts = stack_status.facts
    if stack_facts is None:
        return []
    return [
        PageTable(
            ("", "", "", ">"),
            tuple(
                (
                    f"{pool.provider} {pool.region}",
                    f"{pool.nodes} x {pool.instance_type}",
                    pool.purchase_text,
                    f"{figures.dollars(stack_facts.usd_hour, cents=True)}/h",
                )
                for pool in stack_facts.pools
            ),
        )
    ]


def _resource_table(title: str, resources: Sequence[ResourceRef]) -> PageTable:
    return PageTable(
        (title, "type"),
        tuple((resource.name, resource.type) for resource in resources),
    )


def batch_page(stack_name: str, jobs: Sequence[BatchJob]) -> Page:
    """Return the page of the batches of a stack."""
    if not jobs:
        return (Paragraph(f"{stack_name} has no batch yet"),)
    return (
        PageTable(
            ("batch", ">files", ">begun", ">answered", ">with errors", ""),
            tuple(
                (
                    job.name,
                    str(job.arrived if job.files is None else job.files),
                    str(job.begun),
                    str(job.answered),
                    str(job.failed),
                    job.state,
                )
                for job in jobs
            ),
        ),
    )

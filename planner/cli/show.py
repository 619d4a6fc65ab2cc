"""tonnage show: render a saved plan."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from planner.cli import complete, option
from planner.cli.compose import read_file
from planner.errors import Place, Problem, UsageError
from providers.files import MAX_DOCUMENT_BYTES

if TYPE_CHECKING:
    from planner.plan.types import Plan


@click.command("show")
@click.argument("plan", shell_complete=complete.file_names)
@option.format_option("text", "json", "markdown", "html")
@option.output
@option.color
@click.option(
    "--full",
    is_flag=True,
    help="Show every line: of the bill, fleets, layouts, resources.",
)
@click.option(
    "--slurm", is_flag=True, help="Only the batch script of a training job."
)
def command(plan: str, **option_values: Any) -> int:
    """Render a saved PLAN again, without planning again.

    Example: tonnage show chat.plan.json --full
    """
    from planner.plan.canonical import dump_plan, parse_plan
    from planner.render.plan import plan_page

    plan_document = parse_plan(read_file(plan, MAX_DOCUMENT_BYTES), plan)
    output_format = option_values["format"]
    output_path = option_values["output"]
    if option_values["slurm"]:
        option.write_output(_batch_script(plan_document, plan), output_path)
        return 0
    if output_format == "json":
        option.write_output(dump_plan(plan_document), output_path)
        return 0
    if output_format == "html":
        from planner.render.html.report import PlanView, plan_report

        option.write_output(plan_report(PlanView(plan_document)), output_path)
        return 0
    shown_page = plan_page(
        plan_document, today=option.today(), full=option_values["full"]
    )
    option.print_page(
        shown_page, output_format, option_values["color"], output_path
    )
    return 0


def _batch_script(plan_document: Plan, plan_path: str) -> str:
    """Return the Slurm script of a plan; raises UsageError without a training job."""
    launch_document = plan_document.launch
    if launch_document is None:
        raise UsageError(
            Problem(
                code="plan",
                message="only plans of training jobs have a batch script",
                place=Place(plan_path),
                next_step="plan a spec of kind: Training",
            )
        )
    batch_script: str = launch_document.slurm
    return batch_script

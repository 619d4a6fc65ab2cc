"""tonnage usage: what a stack has cost, by the cost exports of its cloud."""

from __future__ import annotations

from typing import Any

import click

from planner.cli import complete, option
from planner.cli.charges import charge_files, read_plan, stack_charges
from planner.cli.compose import read_file
from providers.files import MAX_DOCUMENT_BYTES


@click.command("usage")
@click.argument("plan", shell_complete=complete.file_names)
@charge_files
@click.option(
    "--metrics",
    shell_complete=complete.file_names,
    metavar="FILE",
    help="A snapshot of the engines' metrics, for the cost of a million tokens.",
)
@option.format_option("text", "json", "markdown")
@option.color
def command(
    plan: str,
    first_files: tuple[str, ...],
    more_files: tuple[str, ...],
    **option_values: Any,
) -> int:
    """Show what the stack of a PLAN has cost: by line, by day, and a month at that rate.

    Works from files alone: rows of the exports that carry the tag of the stack count.

    Example: tonnage usage chat.plan.json --from focus-*.csv
    """
    from planner.plan.actual.stack_cost import stack_cost
    from planner.plan.actual.token_counter import read_tokens
    from planner.render.usage import usage_page

    plan_document = read_plan(plan)
    metrics_path = option_values["metrics"]
    spent = stack_cost(
        plan_document,
        stack_charges(plan_document, (*first_files, *more_files)),
        None
        if metrics_path is None
        else read_tokens(
            read_file(
                metrics_path,
                MAX_DOCUMENT_BYTES,
                begin="save one: curl MACHINE:8000/metrics -o FILE",
            ),
            metrics_path,
        ),
    )
    if option_values["format"] == "json":
        from msgspec import to_builtins

        from planner.plan.canonical import dump_document

        option.write_output(dump_document(to_builtins(spent)))
    else:
        option.print_page(
            usage_page(spent), option_values["format"], option_values["color"]
        )
    return 0

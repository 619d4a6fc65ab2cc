"""tonnage status: resources and cost of a stack."""

from __future__ import annotations

from typing import Any

import click

from planner.cli import option
from planner.cli.compose import standing_stack


@click.command("status")
@click.argument("stack", callback=option.check_stack_name)
@option.simulate
@option.engine
@option.backend
@option.format_option("text", "json", "markdown")
@option.color
@click.option("--full", is_flag=True, help="List every resource.")
def command(stack: str, **option_values: Any) -> int:
    """Show STACK as its state has it.

    Example: tonnage status chat-8b --simulate
    """
    from planner.render.status import status_page

    options = option.planning_options(option_values)
    stack_status = standing_stack(stack, options)
    if option_values["format"] == "json":
        from msgspec import to_builtins

        from planner.plan.canonical import dump_document

        option.write_output(dump_document(to_builtins(stack_status)))
    else:
        option.print_page(
            status_page(stack_status, full=option_values["full"]),
            option_values["format"],
            option_values["color"],
        )
    return 0

"""tonnage status: resources and cost of a stack."""

from __future__ import annotations

import json
from typing import Any

import click

from planner.cli import option
from planner.cli.compose import open_engine, standing_stack


@click.command("status")
@click.argument("stack", required=False, callback=option.check_stack_name)
@option.simulate
@option.engine
@option.backend
@option.format_option("text", "json", "markdown")
@option.color
@click.option("--full", is_flag=True, help="List every resource.")
def command(stack: str | None, **option_values: Any) -> int:
    """Show STACK as its state has it, or name all stacks.

    Example: tonnage status chat-8b --simulate
    """
    from planner.render.status import stacks_page, status_page

    options = option.planning_options(option_values)
    # Without a name the command lists the stacks.
    if stack is None:
        stack_names = open_engine(options).stack_names()
        if option_values["format"] == "json":
            option.write_output(json.dumps(stack_names, indent=2) + "\n")
            return 0
        option.print_page(
            stacks_page(stack_names),
            option_values["format"],
            option_values["color"],
        )
        return 0
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

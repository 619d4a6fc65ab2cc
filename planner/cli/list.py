"""tonnage list: all stacks of a backend."""

from __future__ import annotations

import json
from typing import Any

import click

from planner.cli import option, progress
from planner.cli.account import stack_account
from planner.cli.compose import open_engine, readable_stacks


@click.command("list")
@option.simulate
@option.engine
@option.backend
@option.format_option("text", "json", "markdown")
@option.color
def command(**option_values: Any) -> int:
    """List all stacks of a backend with their cost, also those of which only the data are left.

    Example: tonnage list --simulate
    """
    from msgspec import to_builtins

    from planner.render.status import stacks_page

    engine = open_engine(option.planning_options(option_values))
    with progress.waiting("looking at the stacks"):
        stacks = [
            (status, stack_account(engine, status))
            for status in readable_stacks(engine)
        ]
    if option_values["format"] == "json":
        rows = [
            {
                "stack": status.stack,
                "operation": status.operation,
                "plan": status.plan,
                **to_builtins(account),
            }
            for status, account in stacks
        ]
        option.write_output(json.dumps(rows, indent=2) + "\n")
        return 0
    option.print_page(
        stacks_page(stacks),
        option_values["format"],
        option_values["color"],
    )
    return 0

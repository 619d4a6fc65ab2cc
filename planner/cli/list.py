"""tonnage list: all stacks of a backend."""

from __future__ import annotations

import json
from typing import Any

import click

from planner.cli import option
from planner.cli.compose import open_engine


@click.command("list")
@option.simulate
@option.engine
@option.backend
@option.format_option("text", "json", "markdown")
@option.color
def command(**option_values: Any) -> int:
    """Name all stacks of a backend, also those of which only the data are left.

    Example: tonnage list --simulate
    """
    from planner.render.status import stacks_page

    stack_names = open_engine(
        option.planning_options(option_values)
    ).stack_names()
    if option_values["format"] == "json":
        option.write_output(json.dumps(stack_names, indent=2) + "\n")
        return 0
    option.print_page(
        stacks_page(stack_names),
        option_values["format"],
        option_values["color"],
    )
    return 0

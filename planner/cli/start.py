"""tonnage start: let the machines of a stack come back."""

from __future__ import annotations

from typing import Any

import click

from planner.cli import option
from planner.cli.compose import standing_stack
from planner.cli.resize import resize


@click.command("start")
@option.stack_argument
@option.simulate
@option.engine
@option.backend
@option.no_input
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
def command(stack: str, **option_values: Any) -> int:
    """Give STACK the machines of its plan at the peak; they may have left, or been stopped.

    Example: tonnage start chat-8b
    """
    from stacks.operate.size import planned_sizes

    options = option.planning_options(option_values)
    status = standing_stack(stack, options)
    return resize(status, planned_sizes(status), options, option_values)

"""tonnage stop: give the machines of a stack back, and keep the rest."""

from __future__ import annotations

from typing import Any

import click

from planner.cli import option
from planner.cli.compose import standing_stack
from planner.cli.resize import resize


@click.command("stop")
@option.stack_argument
@option.simulate
@option.engine
@option.backend
@option.no_input
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
def command(stack: str, **option_values: Any) -> int:
    """Give all machines of STACK back, and say what the rest costs until it is destroyed.

    What is on their disks is lost, but for /work of a workspace. The bucket stays.

    Example: tonnage stop chat-8b
    """
    from msgspec.structs import replace

    from stacks.operate.size import planned_sizes

    options = option.planning_options(option_values)
    status = standing_stack(stack, options)
    sizes = [replace(size, nodes=0) for size in planned_sizes(status)]
    return resize(status, sizes, options, option_values)

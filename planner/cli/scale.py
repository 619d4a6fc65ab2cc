"""tonnage scale: another number of machines for a pool of a stack."""

from __future__ import annotations

from typing import Any

import click

from planner.cli import option
from planner.cli.compose import standing_stack
from planner.cli.resize import resize


@click.command("scale")
@option.stack_argument
@click.argument("machines", type=click.IntRange(0))
@click.option("--pool", default="", metavar="NAME", help="Which pool.")
@option.simulate
@option.engine
@option.backend
@option.no_input
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
def command(stack: str, machines: int, pool: str, **option_values: Any) -> int:
    """Give a pool of STACK another number of MACHINES, until its schedule or an apply sets it.

    Example: tonnage scale chat-8b 2
    """
    from msgspec.structs import replace

    from stacks.operate.size import find_group, planned_sizes

    options = option.planning_options(option_values)
    status = standing_stack(stack, options)
    size = find_group(planned_sizes(status), stack, pool, machines)
    return resize(
        status, [replace(size, nodes=machines)], options, option_values
    )

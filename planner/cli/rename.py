"""tonnage rename: give a stack another name, so that a renamed spec finds it."""

from __future__ import annotations

from typing import Any

import click

from planner.cli import option
from planner.cli.compose import open_engine, standing_stack


@click.command("rename")
@option.stack_argument
@click.argument("name", callback=option.check_stack_name)
@option.simulate
@option.engine
@option.backend
def command(stack: str, name: str, **option_values: Any) -> int:
    """Let STACK be called NAME. In the cloud nothing changes until the next apply.

    Most objects in the cloud are named after their stack, so the next apply of the renamed spec
    makes them anew, the new before the old. What holds data is kept.

    Example: tonnage rename chat chat-prod
    """
    options = option.planning_options(option_values)
    standing_stack(stack, options)
    open_engine(options).rename(stack, name)
    click.echo(
        f"{stack} is called {name}\n"
        f"next: see what that changes: tonnage plan SPEC --stack {name}{options.flags}"
    )
    return 0

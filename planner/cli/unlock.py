"""tonnage unlock: free the lock that a dead run has left."""

from __future__ import annotations

from typing import Any

import click

from planner.cli import option
from planner.cli.compose import open_engine


@click.command("unlock")
@option.stack_argument
@option.simulate
@option.engine
@option.backend
def command(stack: str, **option_values: Any) -> int:
    """Free the lock that a dead run has left on STACK; refused while the run lives (exit 12).

    Example: tonnage unlock chat-8b
    """
    options = option.planning_options(option_values)
    was_locked = open_engine(options).unlock(stack)
    click.echo(
        f"{stack}: the lock of a dead run is freed"
        if was_locked
        else f"{stack}: it was not locked"
    )
    return 0

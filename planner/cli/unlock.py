"""tonnage unlock: free the lock that a dead run has left."""

from __future__ import annotations

from typing import Any

import click

from planner.cli import option
from planner.cli.compose import open_engine, standing_stack


@click.command("unlock")
@option.stack_argument
@option.simulate
@option.engine
@option.backend
def command(stack: str, **option_values: Any) -> int:
    """Free the lock that a dead run has left on STACK; refused while the run lives (exit 12).

    Where nothing is locked and no stack has the name, that is said (exit 6).

    Example: tonnage unlock chat-8b
    """
    options = option.planning_options(option_values)
    engine = open_engine(options)
    was_locked = engine.unlock(stack)
    # A run that died before its first change has left a lock, and no stack.
    if not was_locked and stack not in engine.stack_names():
        standing_stack(stack, options)
    click.echo(
        f"{stack}: the lock of a dead run is freed"
        if was_locked
        else f"{stack}: it was not locked"
    )
    return 0

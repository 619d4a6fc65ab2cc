"""tonnage recover: look up what a run that was cut off had begun."""

from __future__ import annotations

from typing import Any

import click

from planner.cli import option
from planner.cli.compose import open_engine
from planner.cli.progress import event_line


@click.command("recover")
@option.stack_argument
@option.simulate
@option.engine
@option.backend
def command(stack: str, **option_values: Any) -> int:
    """Look up in the cloud what a run of STACK had begun when it was cut off; changes nothing.

    apply and destroy do it by themselves. Afterwards the state is true again.

    Example: tonnage recover chat-8b
    """
    options = option.planning_options(option_values)
    outcome = open_engine(options).recover(
        stack, lambda event: click.echo(event_line(event), err=True)
    )
    count = len(outcome.steps)
    click.echo(
        f"{stack}: {count} calls of an earlier run had happened"
        if count
        else f"{stack}: nothing was left open"
    )
    click.echo(f"next: tonnage status {stack}{options.flags}")
    return 0

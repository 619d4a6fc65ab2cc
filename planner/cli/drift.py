"""tonnage drift: what in the cloud is not as the last apply left it."""

from __future__ import annotations

import json
from typing import Any

import click

from planner.cli import option
from planner.cli.compose import open_engine


@click.command("drift")
@option.stack_argument
@option.simulate
@option.engine
@option.backend
@option.format_option("text", "json")
def command(stack: str, **option_values: Any) -> int:
    """Compare STACK with the cloud; changes nothing. Exits with 20 when something differs.

    An apply makes again what is gone. What somebody has changed it leaves as it is.

    Example: tonnage drift chat-8b
    """
    from msgspec import to_builtins

    options = option.planning_options(option_values)
    drifted = open_engine(options).drift(stack)
    if option_values["format"] == "json":
        option.write_output(json.dumps(to_builtins(drifted), indent=2) + "\n")
    else:
        for resource in drifted:
            details = f"  {', '.join(resource.details)}"
            click.echo(f"{resource.kind:8}{resource.name}{details.rstrip()}")
        click.echo(
            f"{stack}: {len(drifted)} resources differ from the last apply"
            if drifted
            else f"{stack}: as the last apply left it"
        )
        if any(resource.kind == "gone" for resource in drifted):
            click.echo(
                f"next: make again what is gone: tonnage apply PLAN{options.flags}"
            )
    return option.CHANGED_EXIT_CODE if drifted else 0

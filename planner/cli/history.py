"""tonnage history: what was done with a stack, by whom and when."""

from __future__ import annotations

import json
from typing import Any

import click

from planner.cli import option
from planner.cli.compose import open_engine
from planner.errors import MissingError, Problem
from planner.suggest import did_you_mean


@click.command("history")
@option.stack_argument
@option.simulate
@option.engine
@option.backend
@option.format_option("text", "json", "markdown")
@option.color
def command(stack: str, **option_values: Any) -> int:
    """List the runs of STACK, the newest last; also of one that is gone.

    Example: tonnage history chat-8b
    """
    from msgspec import to_builtins

    from planner.render.status import history_page
    from stacks.engine.history import past_runs

    options = option.planning_options(option_values)
    engine = open_engine(options)
    runs = past_runs(engine.store, stack)
    if not runs:
        raise MissingError(
            Problem(
                code="stack",
                message=f"nothing was done with a stack of the name {stack}",
                next_step=did_you_mean(
                    stack,
                    engine.stack_names(),
                    otherwise=f"see all stacks: tonnage list{options.flags}",
                ),
            )
        )
    if option_values["format"] == "json":
        option.write_output(json.dumps(to_builtins(runs), indent=2) + "\n")
        return 0
    option.print_page(
        history_page(runs), option_values["format"], option_values["color"]
    )
    return 0

"""tonnage destroy: delete all resources of a stack."""

from __future__ import annotations

from typing import Any

import click

from planner.cli import option, progress
from planner.cli.compose import open_bucket, open_engine, standing_stack
from planner.errors import Problem, UsageError


@click.command("destroy")
@click.argument("stack", callback=option.check_stack_name)
@option.simulate
@option.engine
@option.backend
@option.no_input
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
def command(stack: str, **option_values: Any) -> int:
    """Delete everything of STACK, dependents first; asks before it does.

    Example: tonnage destroy chat-8b --simulate --yes
    """
    options = option.planning_options(option_values)
    # A misspelled name is reported before any question.
    stack_status = standing_stack(stack, options)
    bucket_name = stack_status.outputs.get("bucket")
    bucket_text = (
        f", with its bucket {bucket_name}: uploads, checkpoints and answers"
        if bucket_name
        else ""
    )
    click.echo(
        f"{stack}: {len(stack_status.resources)} resources will be deleted{bucket_text}",
        err=True,
    )
    if not option_values["yes"]:
        if option_values["no_input"]:
            problem = Problem(
                code="confirm",
                message="destroy asks, and --no-input forbids asking",
                next_step="add --yes",
            )
            raise UsageError(problem)
        if not click.confirm(f"Delete {stack}?", default=False, err=True):
            click.echo("declined: nothing was done", err=True)
            return 0
    exit_code = progress.run_engine(
        lambda listener: open_engine(options).destroy(stack, listener),
        "destroyed",
        stack,
        options,
    )
    # A cloud deletes what is in its buckets with them; of a simulated one it is in a folder.
    if bucket_name and options.simulate is not None:
        open_bucket(stack_status, options).forget()
    return exit_code

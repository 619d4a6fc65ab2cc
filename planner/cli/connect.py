"""tonnage connect: the way to a machine of a stack."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from datetime import UTC, datetime
from typing import Any

import click

from planner.cli import option
from planner.cli.compose import open_bucket, standing_stack
from planner.errors import Problem, UsageError


@click.command("connect", context_settings={"ignore_unknown_options": True})
@option.stack_argument
@click.argument("machine", default="")
@click.argument("remote_command", nargs=-1, type=click.UNPROCESSED)
@click.option(
    "--port",
    type=click.IntRange(1, 65_535),
    help="Bring a port of the machine here, such as 8888 of JupyterLab.",
)
@click.option(
    "--print",
    "is_printed",
    is_flag=True,
    help="Print the command, run nothing.",
)
@option.simulate
@option.engine
@option.backend
def command(
    stack: str,
    machine: str,
    remote_command: tuple[str, ...],
    *,
    port: int | None,
    is_printed: bool,
    **option_values: Any,
) -> int:
    """Open a shell on MACHINE of STACK, or run REMOTE_COMMAND there, with the tools of its cloud.

    MACHINE is not needed where there is one. Words after -- are the command. With --port nothing
    runs there: the port is reached as localhost until the command ends.

    Example: tonnage connect chat-8b --print
    """
    from stacks.operate.machine import (
        SIGNS,
        door_command,
        find_machine,
        machines,
    )

    options = option.planning_options(option_values)
    status = standing_stack(stack, options)
    bucket = open_bucket(status, options)
    with bucket.errors():
        found = machines(bucket.folder(SIGNS), datetime.now(UTC))
    words = door_command(
        status,
        find_machine(found, stack, machine),
        shlex.join(remote_command),
        port,
    )
    if is_printed:
        click.echo(shlex.join(words))
        return 0
    if options.simulate is not None:
        raise UsageError(
            Problem(
                code="machine",
                message=f"{stack} is simulated: nobody answers on its machines",
                next_step="see the command: --print",
            )
        )
    if shutil.which(words[0]) is None:
        raise UsageError(
            Problem(
                code="machine",
                message=f"{words[0]} is not installed",
                next_step=f"install it, or run elsewhere: {shlex.join(words)}",
            )
        )
    click.echo(shlex.join(words), err=True)
    return subprocess.run(words, check=False).returncode  # noqa: S603 - words of ours

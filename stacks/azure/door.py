"""The way to a machine on Azure: commands that its agent of Azure runs, and no shell."""

from __future__ import annotations

from typing import TYPE_CHECKING

from planner.errors import Problem, UsageError

if TYPE_CHECKING:
    from stacks.operate.machine import Door


def command(door: Door, remote_command: str) -> list[str]:
    """Return the words of the tools of Azure. Raises UsageError without a command."""
    if not remote_command:
        raise UsageError(
            Problem(
                code="machine",
                message="machines on Azure run commands and open no shell",
                next_step="name a command: -- journalctl -n 100 -u tonnage-work",
            )
        )
    # Uniform sets number their machines, Flexible ones hold machines with names.
    target = (
        ["vmss", f"--name={door.group}", f"--instance-id={door.handle}"]
        if door.handle.isdigit()
        else ["vm", f"--name={door.handle}"]
    )
    return [
        "az",
        target[0],
        "run-command",
        "invoke",
        f"--resource-group={door.resource_group}",
        *target[1:],
        "--command-id=RunShellScript",
        f"--scripts={remote_command}",
    ]


def tunnel(door: Door, port: int) -> list[str]:
    """Raise UsageError: the agent of Azure runs commands, and brings no port."""
    raise UsageError(
        Problem(
            code="machine",
            message=f"port {port} of {door.handle} cannot be brought here",
            cause="machines on Azure run commands, and nothing else reaches them",
            next_step="run a command there: tonnage connect STACK MACHINE -- COMMAND",
        )
    )

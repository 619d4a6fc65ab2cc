"""The way to a machine on Azure: commands that its agent of Azure runs, and ports by a bastion."""

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
                cause="a workspace has one in JupyterLab: --port 8888",
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
    """Return the words that bring a port of a machine to the same port here.

    Raises UsageError where people do not work on the machines: nothing else reaches those.
    """
    if not door.bastion:
        raise UsageError(
            Problem(
                code="machine",
                message=f"port {port} of {door.handle} cannot be brought here",
                cause="machines that nobody works on have no way in on Azure",
                next_step="run a command there: tonnage connect STACK MACHINE -- COMMAND",
            )
        )
    provider = f"{door.group_id}/providers/Microsoft.Compute"
    machine_id = (
        f"{provider}/virtualMachineScaleSets/{door.group}/virtualMachines/{door.handle}"
        if door.handle.isdigit()
        else f"{provider}/virtualMachines/{door.handle}"
    )
    return [
        "az",
        "network",
        "bastion",
        "tunnel",
        f"--name={door.bastion}",
        f"--resource-group={door.resource_group}",
        f"--target-resource-id={machine_id}",
        f"--resource-port={port}",
        f"--port={port}",
    ]

"""The way to a machine on AWS: a session of Systems Manager, without a port or a key."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stacks.operate.machine import Door


def command(door: Door, remote_command: str) -> list[str]:
    """Return the words of the tools of AWS; without a command they open a shell."""
    words = [
        "aws",
        "ssm",
        "start-session",
        f"--region={door.region}",
        f"--target={door.handle}",
    ]
    if remote_command:
        words += [
            "--document-name=AWS-StartInteractiveCommand",
            f"--parameters={json.dumps({'command': [remote_command]})}",
        ]
    return words


def tunnel(door: Door, port: int) -> list[str]:
    """Return the words that bring a port of the machine to the same port here."""
    ports = {"portNumber": [str(port)], "localPortNumber": [str(port)]}
    return [
        *command(door, ""),
        "--document-name=AWS-StartPortForwardingSession",
        f"--parameters={json.dumps(ports)}",
    ]

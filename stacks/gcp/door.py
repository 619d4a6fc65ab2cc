"""The way to a machine on Google Cloud: SSH through its proxy for identities."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stacks.operate.machine import Door


def command(door: Door, remote_command: str) -> list[str]:
    """Return the words of the tools of Google Cloud; without a command they open a shell."""
    _, zone, _, name = door.handle.split("/")
    words = [
        "gcloud",
        "compute",
        "ssh",
        name,
        f"--zone={zone}",
        "--tunnel-through-iap",
    ]
    if remote_command:
        words.append(f"--command={remote_command}")
    return words


def tunnel(door: Door, port: int) -> list[str]:
    """Return the words that bring a port of the machine to the same port here."""
    return [*command(door, ""), "--", "-N", f"-L{port}:localhost:{port}"]

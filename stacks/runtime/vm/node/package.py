"""Packages of Ubuntu, which other programs of a first boot install too."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stacks.runtime.vm.node.host import Host

# For others to give up the lock of packages, in seconds.
LOCK_TIMEOUT_S = 600
# Programs that take the lock at any time.
TIMERS = ("apt-daily.timer", "apt-daily-upgrade.timer")


def install(machine: Host, *packages: str) -> None:
    """Install packages of Ubuntu; waits for other programs that install."""
    machine.run("systemctl", "stop", *TIMERS)
    apt = ("apt-get", "-o", f"DPkg::Lock::Timeout={LOCK_TIMEOUT_S}", "-qy")
    environment = {"DEBIAN_FRONTEND": "noninteractive"}
    machine.run(*apt, "update", timeout_s=2 * LOCK_TIMEOUT_S, env=environment)
    machine.run(
        *apt,
        "install",
        *packages,
        timeout_s=2 * LOCK_TIMEOUT_S,
        env=environment,
    )

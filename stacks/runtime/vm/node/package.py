"""Packages of Ubuntu, which other programs of a first boot install too."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from stacks.runtime.vm.node.host import write_whole

if TYPE_CHECKING:
    from stacks.runtime.vm.node.host import Host

# For others to give up the lock of packages, in seconds.
LOCK_TIMEOUT_S = 600
# Programs that take the lock at any time.
TIMERS = ("apt-daily.timer", "apt-daily-upgrade.timer")
KEY_PATH = "/usr/share/keyrings/tonnage-{name}{suffix}"
LIST_PATH = "/etc/apt/sources.list.d/tonnage-{name}.list"


class Repository(NamedTuple):
    """Packages that the image does not have, and where they come from.

    In the line and in names of packages {codename} is that of the release, and {kernel} the
    version of the running kernel.
    """

    name: str
    key_url: str
    line: str
    packages: list[str]


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


def install_from(machine: Host, repository: Repository) -> None:
    """Install packages of a repository that has a key of its own."""
    values = {
        "codename": machine.run("lsb_release", "-cs").strip(),
        "kernel": machine.run("uname", "-r").strip(),
    }
    key = machine.send("GET", repository.key_url).body
    # apt reads a key in letters when its file ends with .asc.
    suffix = ".asc" if key.startswith(b"-----BEGIN") else ".gpg"
    key_path = KEY_PATH.format(name=repository.name, suffix=suffix)
    write_whole(machine.path(key_path), key)
    write_whole(
        machine.path(LIST_PATH.format(name=repository.name)),
        f"deb [signed-by={key_path}] {repository.line.format(**values)}\n",
    )
    install(
        machine,
        *(package.format(**values) for package in repository.packages),
    )

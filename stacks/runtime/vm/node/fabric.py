"""What the fabric wants beside the containers that use it: a module, devices, and services."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stacks.runtime.vm.node import container
from stacks.runtime.vm.node.host import CommandError
from stacks.runtime.vm.node.package import Repository, install_from
from stacks.runtime.vm.node.work import StepError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stacks.runtime.vm.node.host import Host

PCI_FOLDER = "/sys/bus/pci/devices"
PULL_TIMEOUT_S = 1800.0
READY_WAIT_S = 120.0
POLL_S = 5.0


def prepare_fabric(machine: Host, settings: Mapping[str, Any]) -> None:
    """Do what the fabric wants, in this order; what is done already changes nothing.

    Settings: modules of the kernel with the repositories of their packages; devices, each a
    PCI identity and the folder in which it is shown; commands; and services, each with its name,
    words of docker run, and the words of its log that say that it is ready.
    """
    for module in settings["modules"]:
        _load_module(machine, module, settings["repositories"])
    for identity, folder in settings["devices"]:
        _show_devices(machine, identity, folder)
    for words in settings["commands"]:
        machine.run(*words, timeout_s=PULL_TIMEOUT_S)
    for service in settings["services"]:
        _start_service(machine, **service)


def _load_module(
    machine: Host, module: str, repositories: list[Mapping[str, Any]]
) -> None:
    if machine.succeeds("modprobe", module):
        return
    for repository in repositories:
        install_from(machine, Repository(**repository))
    machine.run("modprobe", module)


def _show_devices(machine: Host, identity: str, folder: str) -> None:
    """Show the files of PCI devices in a folder that a container may have, readable for all."""
    devices = [
        path.name
        for path in sorted(machine.path(PCI_FOLDER).glob("*"))
        if _pci_identity(machine, path.name) == identity
    ]
    if not devices:
        raise StepError(f"no PCI device is a {identity}")
    for name in devices:
        shown = f"{folder}/{name}"
        machine.path(shown).mkdir(parents=True, exist_ok=True)
        if not machine.succeeds("mountpoint", "-q", shown):
            machine.run("mount", "--bind", f"{PCI_FOLDER}/{name}", shown)
        for resource in machine.path(shown).glob("resource*"):
            resource.chmod(0o666)


def _pci_identity(machine: Host, name: str) -> str:
    parts = [
        machine.path(f"{PCI_FOLDER}/{name}/{part}").read_text(encoding="utf-8")
        for part in ("vendor", "device")
    ]
    return ":".join(part.strip() for part in parts)


def _start_service(
    machine: Host, name: str, words: list[str], ready: str
) -> None:
    """Start a service of the fabric anew, and wait until it says that it is ready."""
    if container.is_running(machine, name) and ready in _log(machine, name):
        return
    container.remove(machine, name)
    machine.run(
        "docker",
        "run",
        "--detach",
        f"--name={name}",
        "--restart=unless-stopped",
        *container.LOG_WORDS,
        *words,
        timeout_s=PULL_TIMEOUT_S,
    )
    deadline_s = machine.now_s() + READY_WAIT_S
    while ready not in _log(machine, name):
        if machine.now_s() >= deadline_s:
            raise StepError(f"{name} does not say that it is ready")
        machine.sleep(POLL_S)


def _log(machine: Host, name: str) -> str:
    try:
        return machine.run("docker", "logs", name, with_errors=True)
    except CommandError:
        return ""

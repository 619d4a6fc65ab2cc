"""The driver of virtual accelerators, which images of whole ones do not have."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from stacks.runtime.vm.node.host import RequestError, write_whole
from stacks.runtime.vm.node.package import install
from stacks.runtime.vm.node.work import StepError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from stacks.runtime.vm.node.host import Host

INSTALLER = "/var/lib/tonnage/driver.run"
LICENSE_PATH = "/etc/nvidia/gridd.conf"
# The free driver of the kernel takes the accelerators, and cannot use them.
FREE_MODULE = "/sys/module/nouveau"
FREE_BLOCK = "/etc/modprobe.d/tonnage-nouveau.conf"
FETCH_TIMEOUT_S = 600.0
INSTALL_TIMEOUT_S = 1800.0


def prepare_driver(machine: Host, settings: Mapping[str, Any]) -> None:
    """Install the driver that the cloud gives out, unless one answers already.

    It is built for the running kernel, so another kernel takes another installation. Where the
    free driver was first, the machine starts once more without it. Settings: sources (each a url
    and its sha256, empty where nobody tells it) and license (lines of its file). Raises StepError.
    """
    if machine.succeeds("nvidia-smi"):
        return
    _keep_out_free_driver(machine)
    kernel = machine.run("uname", "-r").strip()
    install(machine, "gcc", "make", f"linux-headers-{kernel}")
    if settings["license"]:
        write_whole(
            machine.path(LICENSE_PATH), "\n".join(settings["license"]) + "\n"
        )
    write_whole(machine.path(INSTALLER), _fetch(machine, settings["sources"]))
    machine.run("sh", INSTALLER, "--silent", timeout_s=INSTALL_TIMEOUT_S)
    if not machine.succeeds("nvidia-smi"):
        raise StepError("the driver is installed, and does not answer")


def _keep_out_free_driver(machine: Host) -> None:
    if not machine.path(FREE_MODULE).exists():
        return
    block_path = machine.path(FREE_BLOCK)
    if block_path.exists():
        raise StepError("nouveau has the accelerators, though it is kept out")
    write_whole(block_path, "blacklist nouveau\noptions nouveau modeset=0\n")
    # What is loaded first is in there.
    machine.run("update-initramfs", "-u")
    machine.run("systemctl", "reboot")
    raise StepError("the machine starts once more, without nouveau")


def _fetch(machine: Host, sources: Sequence[Mapping[str, str]]) -> bytes:
    """Return the installer from the first of its places that has it."""
    refused = []
    for source in sources:
        url = source["url"]
        try:
            body = machine.send("GET", url, timeout_s=FETCH_TIMEOUT_S).body
        except RequestError as error:
            refused.append(f"{url}: {error}")
            continue
        digest = hashlib.sha256(body).hexdigest()
        if source["sha256"] in ("", digest):
            return body
        refused.append(f"{url} has the digest {digest}")
    raise StepError("; ".join(refused))

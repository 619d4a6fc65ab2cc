"""The disk of a workspace at /work: it outlives the machine, and the next machine has it again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stacks.runtime.vm.node import disk
from stacks.runtime.vm.node.work import StepError

if TYPE_CHECKING:
    from stacks.runtime.vm.node.cloud import CloudApi
    from stacks.runtime.vm.node.host import Host

HOME = "/work"
# Also on the disk, so that it is known on every machine.
LABEL = "tonnage-home"
# Everybody on the machine may write there.
MODE = "1777"
DEVICE_WAIT_S = 120.0
POLL_S = 5.0


def mount_home(machine: Host, cloud: CloudApi) -> None:
    """Attach a disk that no other machine has, and mount it. Raises StepError.

    One that the machine has is taken again. A new one is formatted; one with something else on it
    never is.
    """
    if disk.is_mounted(machine, HOME):
        return
    if not machine.succeeds("blkid", "-L", LABEL):
        device = _device(machine, cloud.home_disk())
        # A disk that a machine has had before has its label.
        if not machine.succeeds("blkid", "-L", LABEL):
            disk.format_new(machine, device, LABEL)
    disk.mount(
        machine, HOME, f"/dev/disk/by-label/{LABEL}", "ext4", "noatime,nofail"
    )
    machine.run("chmod", MODE, HOME)


def _device(machine: Host, names: list[str]) -> str:
    """Return the device that has appeared under one of some names."""
    deadline_s = machine.now_s() + DEVICE_WAIT_S
    while True:
        for name in names:
            link = machine.path(name)
            if link.exists():
                return str(link.resolve())
        if machine.now_s() >= deadline_s:
            raise StepError(f"the disk does not appear as {names[0]}")
        machine.sleep(POLL_S)

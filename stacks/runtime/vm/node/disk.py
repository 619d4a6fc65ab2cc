"""The disk at /models: found by its name, formatted once, mounted by systemd after every boot."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stacks.runtime.vm.node.host import CommandError, write_whole
from stacks.runtime.vm.node.package import install
from stacks.runtime.vm.node.work import StepError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stacks.runtime.vm.node.host import Host

LABEL = "tonnage"
ARRAY = "/dev/md/tonnage"
MODELS = "/models"
# Where a unit of the image mounts local disks that it has joined, and how long that may take.
IMAGE_MOUNT = "/opt/dlami/nvme"
IMAGE_UNIT = "dlami-nvme"
IMAGE_WAIT_S = 180.0
POLL_S = 5.0
NOTHING_FOUND = 2  # the code of blkid
# A mount of a folder that a service mounts, which comes later than the file systems of a boot.
LATE_ORDER = f"""DefaultDependencies=no
Requires={IMAGE_UNIT}.service
After={IMAGE_UNIT}.service
Conflicts=umount.target
Before=umount.target
"""
MOUNT_TEXT = """[Unit]
Description=disk of tonnage
Before=docker.service
{order}[Mount]
What={source}
Where={where}
Type={kind}
Options={options}
[Install]
WantedBy=multi-user.target
"""


def mount_models(machine: Host, settings: Mapping[str, Any]) -> None:
    """Mount the fastest disk of the machine at /models; without one it is a folder.

    Settings: local_disks, data_disk (patterns of names by which the cloud calls its disks) and
    has_disk, whether there must be one. Raises StepError when a disk holds something that is not
    ours: nothing that was not made here is ever formatted.
    """
    if is_mounted(machine, MODELS):
        return
    if _has_unit(machine, IMAGE_UNIT):
        _wait_for_image(machine)
        folder = f"{IMAGE_MOUNT}/models"
        machine.path(folder).mkdir(parents=True, exist_ok=True)
        mount(machine, MODELS, folder, "none", "bind", order=LATE_ORDER)
        return
    if not _find_labelled(machine):
        device = _device(machine, settings)
        if not device:
            machine.path(MODELS).mkdir(parents=True, exist_ok=True)
            return
        format_new(machine, device, LABEL)
    mount(machine, MODELS, f"/dev/disk/by-label/{LABEL}", "ext4", "noatime")


def _wait_for_image(machine: Host) -> None:
    deadline_s = machine.now_s() + IMAGE_WAIT_S
    while not is_mounted(machine, IMAGE_MOUNT):
        if machine.now_s() >= deadline_s:
            raise StepError(f"{IMAGE_UNIT} has not mounted {IMAGE_MOUNT}")
        machine.sleep(POLL_S)


def is_mounted(machine: Host, path: str) -> bool:
    """Whether something is mounted at a folder."""
    return machine.succeeds("mountpoint", "-q", path)


def _has_unit(machine: Host, unit: str) -> bool:
    return machine.succeeds("systemctl", "cat", unit)


def _find_labelled(machine: Host) -> bool:
    """Whether a disk, or an array once it is assembled, has our label."""
    if machine.succeeds("blkid", "-L", LABEL):
        return True
    # After a boot the array of the disks may not have been put together yet.
    return machine.succeeds(
        "mdadm", "--assemble", "--scan"
    ) and machine.succeeds("blkid", "-L", LABEL)


def _disks(machine: Host, patterns: list[str]) -> list[str]:
    """Return the disks of some names, each once: a disk has several names.

    Left out are disks with partitions, which hold a system.
    """
    disks = {
        str(link.resolve())
        for pattern in patterns
        for link in machine.path("/").glob(pattern.lstrip("/"))
        if "-part" not in link.name
    }
    return [
        disk
        for disk in sorted(disks)
        if len(machine.run("lsblk", "-no", "NAME", disk).split()) == 1
    ]


def _device(machine: Host, settings: Mapping[str, Any]) -> str:
    """Return what is to be formatted: a disk, or the array of several; empty without one."""
    # A start that broke off here has made the array already.
    if machine.succeeds("mdadm", "--detail", ARRAY):
        return ARRAY
    disks = _disks(machine, settings["local_disks"])
    # A machine without one may have another disk of the network, which is not for this.
    if settings["has_disk"]:
        disks = disks or _disks(machine, settings["data_disk"])[:1]
        if not disks:
            raise StepError("the disk that was planned is not attached")
    if len(disks) < 2:
        return disks[0] if disks else ""
    if not machine.succeeds("mdadm", "--version"):
        install(machine, "mdadm")
    for disk in disks:
        _refuse_content(machine, disk)
    machine.run(
        "mdadm",
        "--create",
        ARRAY,
        "--level=0",
        f"--raid-devices={len(disks)}",
        "--run",
        *disks,
    )
    return ARRAY


def _refuse_content(machine: Host, device: str) -> None:
    # A superuser's probe, which reads the disk and not a cache.
    try:
        machine.run("blkid", "-p", device)
    except CommandError as error:
        # Other codes say that it was not read, or holds several things.
        if error.code == NOTHING_FOUND:
            return
        raise
    raise StepError(f"{device} holds something that was not made here")


def format_new(machine: Host, device: str, label: str) -> None:
    """Make a file system on a blank device. Raises StepError when it holds something."""
    _refuse_content(machine, device)
    machine.run(
        "mkfs.ext4", "-q", "-m", "0", "-L", label, device, timeout_s=900
    )


def mount(
    machine: Host,
    where: str,
    source: str,
    kind: str,
    options: str,
    *,
    order: str = "",
) -> None:
    """Mount something at a folder of the root now and after every boot. Raises StepError.

    `order` has the lines of the unit that say what it waits for.
    """
    unit = f"{where.strip('/')}.mount"
    write_whole(
        machine.path(f"/etc/systemd/system/{unit}"),
        MOUNT_TEXT.format(
            where=where, source=source, kind=kind, options=options, order=order
        ),
    )
    machine.run("systemctl", "daemon-reload")
    machine.run("systemctl", "enable", "--now", unit)
    if not is_mounted(machine, where):
        raise StepError(f"{unit} did not mount {source}")

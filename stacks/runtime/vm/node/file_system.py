"""The parallel file system of a training job, mounted at /data by systemd."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stacks.runtime.vm.node.host import write_whole
from stacks.runtime.vm.node.package import Repository, install_from
from stacks.runtime.vm.node.work import StepError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stacks.runtime.vm.node.cloud import CloudApi
    from stacks.runtime.vm.node.host import Host

DATA = "/data"
MARK = "/data/.filled"
UNIT = "data.mount"
UNIT_TEXT = """[Unit]
Description=data and checkpoints of the job
After=network-online.target
Wants=network-online.target
[Mount]
What={source}
Where=/data
Type=lustre
Options=noatime,flock,_netdev
[Install]
WantedBy=multi-user.target
"""


def mount_files(
    machine: Host, cloud: CloudApi, settings: Mapping[str, Any]
) -> None:
    """Mount the file system; installs its client first where the image has none.

    Settings: those of the repository of its packages.
    """
    if machine.succeeds("mountpoint", "-q", DATA):
        return
    if not machine.succeeds("modprobe", "lustre"):
        install_from(machine, Repository(**settings))
        machine.run("modprobe", "lustre")
    machine.path(DATA).mkdir(parents=True, exist_ok=True)
    write_whole(
        machine.path(f"/etc/systemd/system/{UNIT}"),
        UNIT_TEXT.format(source=cloud.file_system()),
    )
    machine.run("systemctl", "daemon-reload")
    machine.run("systemctl", "enable", "--now", UNIT)
    if not machine.succeeds("mountpoint", "-q", DATA):
        raise StepError(f"{UNIT} did not mount {DATA}")


def is_filled(machine: Host) -> bool:
    """Whether the dataset is in the file system; the mark lies in it for all nodes."""
    return machine.path(MARK).exists()


def fill_files(machine: Host, cloud: CloudApi) -> None:
    """Bring the dataset into the file system, and say so to all nodes."""
    machine.path(f"{DATA}/dataset").mkdir(parents=True, exist_ok=True)
    cloud.fill_files()
    machine.path(MARK).touch()

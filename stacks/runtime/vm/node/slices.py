"""MIG slices of the accelerator of this machine, made at each boot: the driver forgets them.

The mode itself may want a reset, which some machines do only by a reboot. So a machine reboots
once for it, and one that is not in that mode afterwards is broken.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from stacks.runtime.vm.node.host import (
    CommandError,
    read_document,
    write_whole,
)
from stacks.runtime.vm.node.work import BrokenMachineError, StepError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from stacks.runtime.vm.node.host import Host

# What the containers are told, until the next boot.
DEVICES_PATH = "/run/tonnage/slices.json"
# That the machine has rebooted for the mode already.
REBOOTED_PATH = "/var/lib/tonnage/slices-rebooted"
#   MIG 3g.40gb     Device  0: (UUID: MIG-0a1b2c3d-...)
SLICE_LINE = re.compile(r"\s*MIG (\S+)\s+Device\s+\d+: \(UUID: (MIG-[^)]+)\)")


def make_slices(machine: Host, slices: Sequence[Mapping[str, Any]]) -> None:
    """Make a slice for each engine, in their order, and remember its name.

    Settings of a slice: profile, and start, the memory slice at which it begins. Slices that are
    there already stay: containers may run on them. Raises StepError while the machine reboots, and
    BrokenMachineError when it cannot be divided.
    """
    _enter_mode(machine)
    wanted = [each["profile"] for each in slices]
    if sorted(name for name, _ in _slices(machine)) != sorted(wanted):
        _remove_all(machine)
        machine.run(
            "nvidia-smi",
            "mig",
            "-i",
            "0",
            "-cgi",
            ",".join(f"{each['profile']}:{each['start']}" for each in slices),
            "-C",
        )
    made = _slices(machine)
    devices = []
    for profile in wanted:
        found = next((each for each in made if each[0] == profile), None)
        if found is None:
            raise BrokenMachineError(f"no slice {profile} was made")
        made.remove(found)
        devices.append(f"device={found[1]}")
    write_whole(machine.path(DEVICES_PATH), json.dumps(devices))


def slice_device(machine: Host, number: int) -> str:
    """Return what docker calls the slice of an engine, by its number."""
    devices: list[str] = read_document(machine.path(DEVICES_PATH)) or []
    return devices[number]


def _enter_mode(machine: Host) -> None:
    """Switch the mode on, with a reset or one reboot where it takes that."""
    if _is_on(machine):
        return
    try:
        machine.run("nvidia-smi", "-i", "0", "-mig", "1")
        if _is_on(machine):
            return
        machine.run("nvidia-smi", "-i", "0", "--gpu-reset")
    except CommandError as error:
        machine.log(f"the accelerator is not reset: {error}")
    if _is_on(machine):
        return
    marker = machine.path(REBOOTED_PATH)
    if marker.exists():
        raise BrokenMachineError("the accelerator does not enter MIG mode")
    write_whole(marker, "")
    machine.run("systemctl", "reboot")
    raise StepError("the machine reboots, so that its accelerator is divided")


def _is_on(machine: Host) -> bool:
    answer = machine.run(
        "nvidia-smi", "--query-gpu=mig.mode.current", "--format=csv,noheader"
    )
    return answer.strip() == "Enabled"


def _slices(machine: Host) -> list[tuple[str, str]]:
    """Return the profiles and names of the slices that there are, in their order."""
    found = map(SLICE_LINE.match, machine.run("nvidia-smi", "-L").splitlines())
    return [(line[1], line[2]) for line in found if line]


def _remove_all(machine: Host) -> None:
    """Remove all slices, first what computes in them."""
    if _slices(machine):
        machine.run("nvidia-smi", "mig", "-i", "0", "-dci")
        machine.run("nvidia-smi", "mig", "-i", "0", "-dgi")

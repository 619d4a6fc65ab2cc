"""What a machine must show before it takes work: a broken one costs as much as a sound one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stacks.runtime.vm.node.host import CommandError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stacks.runtime.vm.node.host import Host

QUERY = "pcie.link.width.current,pcie.link.width.max,ecc.errors.uncorrected.volatile.total"
SLOW_QUERY = "power.limit,power.default_limit,clocks_event_reasons.hw_slowdown"
# An accelerator may be slow for a moment, and clouds may take a little of its power.
SLOW_LOOK_S = 30.0
LEAST_POWER = 0.8
FABRIC_FOLDER = "/sys/class/infiniband"
KERNEL_PREFIX = "NVRM: Xid"


def health_problems(machine: Host, settings: Mapping[str, Any]) -> list[str]:
    """Return what is wrong with the accelerators and the fabric of this machine.

    Settings: accelerators (how many), fabric_devices (how many, 0 without a fabric) and
    fatal_xids (numbers of errors after which an accelerator needs a reset or a repair).
    """
    try:
        lines = machine.run(
            "nvidia-smi",
            f"--query-gpu={QUERY}",
            "--format=csv,noheader,nounits",
            timeout_s=60,
        ).splitlines()
    except CommandError as error:
        return [f"the accelerators do not answer: {error}"]
    problems = []
    if len(lines) != settings["accelerators"]:
        problems.append(
            f"{len(lines)} of {settings['accelerators']} accelerators are there"
        )
    for number, line in enumerate(lines):
        width, full_width, errors = (word.strip() for word in line.split(","))
        # Machines that share a bridge have no width of their own.
        if (
            width.isdigit()
            and full_width.isdigit()
            and int(width) < int(full_width)
        ):
            problems.append(
                f"accelerator {number} has {width} of {full_width} lanes"
            )
        if errors.isdigit() and int(errors):
            problems.append(f"accelerator {number} has {errors} memory errors")
    return [
        *problems,
        *_slow_accelerators(machine),
        *_kernel_problems(machine, settings["fatal_xids"]),
        *_fabric_problems(machine, settings["fabric_devices"]),
    ]


def _slow_accelerators(machine: Host) -> list[str]:
    """Return the accelerators that do not run at full speed, at two looks one after the other."""
    first = _limits(machine)
    if not first:
        return []
    machine.sleep(SLOW_LOOK_S)
    return [problem for problem in _limits(machine) if problem in first]


def _limits(machine: Host) -> list[str]:
    """Return what limits accelerators now; nothing where the driver does not tell."""
    try:
        lines = machine.run(
            "nvidia-smi",
            f"--query-gpu={SLOW_QUERY}",
            "--format=csv,noheader,nounits",
            timeout_s=60,
        ).splitlines()
    except CommandError as error:
        machine.log(f"limits of the accelerators are not known: {error}")
        return []
    problems = []
    for number, line in enumerate(lines):
        limit, full_limit, slowdown = (word.strip() for word in line.split(","))
        if slowdown == "Active":
            problems.append(f"accelerator {number} is slowed down")
        if _watts(limit) < LEAST_POWER * _watts(full_limit):
            problems.append(
                f"accelerator {number} may take {limit} of {full_limit} W"
            )
    return problems


def _watts(text: str) -> float:
    """Return a power in watts; 0 where an accelerator has no limit of its own."""
    try:
        return float(text)
    except ValueError:
        return 0.0


def _kernel_problems(machine: Host, fatal_xids: list[int]) -> list[str]:
    """Return the errors that the driver has told since the boot."""
    messages = machine.run("dmesg", "--notime").splitlines()
    found = set()
    for message in messages:
        # NVRM: Xid (PCI:0000:53:00): 79, GPU has fallen off the bus.
        if message.startswith(KERNEL_PREFIX):
            number = message.partition("): ")[2].partition(",")[0]
            if number.isdigit() and int(number) in fatal_xids:
                found.add(int(number))
    return [f"the driver has told Xid {number}" for number in sorted(found)]


def _fabric_problems(machine: Host, wanted_count: int) -> list[str]:
    folder = machine.path(FABRIC_FOLDER)
    count = len(list(folder.iterdir())) if folder.is_dir() else 0
    if count >= wanted_count:
        return []
    return [f"{count} of {wanted_count} interfaces of the fabric are there"]

"""How fast the disk writes and the accelerators speak to each other, once after every boot.

A machine that is sound by all that it says of itself may still be slow.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from stacks.runtime.vm.node.host import (
    read_document,
    write_whole,
)
from stacks.runtime.vm.node.work import BrokenMachineError, StepError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stacks.runtime.vm.node.host import Host

# In a folder that a reboot empties.
DONE_PATH = "/run/tonnage/speed.json"
DISK_FILE = "/models/.tonnage-speed"
DISK_MIB = 1024
DISK_TIMEOUT_S = 300.0
NAME = "tonnage-speed"
PROGRAM_PATH = "/run/tonnage/all_reduce.py"
REDUCE_TIMEOUT_S = 600.0
# Prints the bus bandwidth in GB/s: bytes / time * 2 (n - 1) / n, as nccl-tests count it. The first
# rounds build the connections.
PROGRAM = """
import os, time, torch, torch.distributed as dist
dist.init_process_group("nccl")
rank, count = dist.get_rank(), dist.get_world_size()
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
numbers = torch.ones(2**30, dtype=torch.bfloat16, device="cuda")
for _ in range(3):
    dist.all_reduce(numbers)
torch.cuda.synchronize()
start = time.perf_counter()
for _ in range(10):
    dist.all_reduce(numbers)
torch.cuda.synchronize()
seconds = (time.perf_counter() - start) / 10
if rank == 0:
    print("busbw", 2**31 / seconds / 1e9 * 2 * (count - 1) / count)
dist.destroy_process_group()
"""


def check_speed(machine: Host, settings: Mapping[str, Any], image: str) -> None:
    """Raise BrokenMachineError for a machine that is slow.

    Settings: accelerators, disk_gb_s and all_reduce_gb_s (the least, 0 where it is not known).
    """
    if read_document(machine.path(DONE_PATH)) is not None:
        return
    measured = {}
    if settings["disk_gb_s"]:
        measured["disk_gb_s"] = _disk_speed(machine)
    if settings["all_reduce_gb_s"]:
        measured["all_reduce_gb_s"] = _reduce_speed(
            machine, settings["accelerators"], image
        )
    machine.log(f"speeds in GB/s: {json.dumps(measured)}")
    slow = [
        f"{name.removesuffix('_gb_s')} has {speed:.3g} of {settings[name]:g} GB/s"
        for name, speed in measured.items()
        if speed < settings[name]
    ]
    if slow:
        raise BrokenMachineError("; ".join(slow))
    write_whole(machine.path(DONE_PATH), json.dumps(measured))


def _disk_speed(machine: Host) -> float:
    """Return how fast the disk of the weights writes, GB/s, past the memory of the system."""
    start_s = machine.now_s()
    try:
        machine.run(
            "dd",
            "if=/dev/zero",
            f"of={DISK_FILE}",
            "bs=16M",
            f"count={DISK_MIB // 16}",
            "oflag=direct",
            timeout_s=DISK_TIMEOUT_S,
        )
    finally:
        machine.path(DISK_FILE).unlink(missing_ok=True)
    seconds = max(1e-3, machine.now_s() - start_s)
    return DISK_MIB * 2**20 / seconds / 1e9


def _reduce_speed(machine: Host, accelerators: int, image: str) -> float:
    """Return the bus bandwidth of an all-reduce over the accelerators of this machine, GB/s."""
    write_whole(machine.path(PROGRAM_PATH), PROGRAM)
    machine.run("docker", "rm", "--force", NAME)
    output = machine.run(
        "docker",
        "run",
        "--rm",
        f"--name={NAME}",
        "--gpus=all",
        "--network=host",
        "--ipc=host",
        "--ulimit=memlock=-1",
        f"--volume={PROGRAM_PATH}:/all_reduce.py:ro",
        "--entrypoint=python3",
        image,
        "-m",
        "torch.distributed.run",
        "--standalone",
        f"--nproc-per-node={accelerators}",
        "/all_reduce.py",
        timeout_s=REDUCE_TIMEOUT_S,
    )
    for line in output.splitlines():
        word, _, number = line.partition(" ")
        if word == "busbw":
            return float(number)
    raise StepError(f"the all-reduce says nothing: {output.strip()[-200:]}")

"""Machines with a part of an accelerator: their image has no driver, or one that is in the way."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

from tests.stacks.runtime.vm.sandbox import (
    DAY,
    HOUR,
    MINUTE,
    SandboxMachine,
    World,
    settings_of,
    state_of,
)

FIRST, SECOND = "https://drivers.example/a.run", "https://mirror.example/b.run"
LICENSE = "/etc/nvidia/gridd.conf"


def bare(
    world: World, *, digest: str = "", has_free_driver: bool = False
) -> SandboxMachine:
    """A machine without a driver, and where it gets one."""
    settings: dict[str, Any] = settings_of(world.provider, "workspace")
    settings["driver"] = {
        "sources": [
            {"url": FIRST, "sha256": digest},
            {"url": SECOND, "sha256": ""},
        ],
        "license": ["EnableUI=FALSE"],
    }
    return world.add(
        "workspace",
        settings,
        has_driver=False,
        has_free_driver=has_free_driver,
        utilization=50.0,
    )


def installs(machine: SandboxMachine) -> int:
    return sum(words[0] == "sh" for words in machine.commands)


def test_it_brings_the_driver_before_it_looks_at_the_accelerators(
    world: World,
) -> None:
    world.drivers[FIRST] = b"driver"
    machine = bare(world, digest=sha256(b"driver").hexdigest())
    world.run(20 * MINUTE)
    assert state_of(machine)["phase"] == "working"
    assert installs(machine) == machine.boots == 1
    assert machine.path(LICENSE).read_text() == "EnableUI=FALSE\n"


def test_the_free_driver_is_kept_out_by_one_more_boot(world: World) -> None:
    world.drivers[FIRST] = b"driver"
    machine = bare(world, has_free_driver=True)
    world.run(20 * MINUTE)
    assert state_of(machine)["phase"] == "working"
    assert machine.boots == 2
    assert installs(machine) == 1


def test_a_free_driver_that_stays_ends_the_machine_and_no_boot_follows(
    world: World,
) -> None:
    world.drivers[FIRST] = b"driver"
    machine = bare(world, has_free_driver=True)
    machine.free_driver_stays = True
    world.run(DAY, lambda: not machine.is_up)
    assert machine.ended_s is not None
    assert machine.ended_s <= 2 * HOUR
    assert machine.boots == 2
    assert installs(machine) == 0


def test_another_place_has_it_where_the_first_has_not(world: World) -> None:
    world.drivers[SECOND] = b"older"
    machine = bare(world)
    world.run(20 * MINUTE)
    assert state_of(machine)["phase"] == "working"
    assert machine.path("/var/lib/tonnage/driver.run").read_bytes() == b"older"


def test_a_file_with_another_digest_is_not_run(world: World) -> None:
    world.drivers[FIRST] = b"something else"
    machine = bare(world, digest=sha256(b"driver").hexdigest())
    world.run(20 * MINUTE)
    assert installs(machine) == 0
    assert "has the digest" in state_of(machine)["problem"]
    assert "404" in state_of(machine)["problem"]


def test_a_boot_with_another_kernel_installs_it_again(world: World) -> None:
    world.drivers[FIRST] = b"driver"
    machine = bare(world)
    world.run(20 * MINUTE)
    machine.reboot()
    world.run(40 * MINUTE)
    assert installs(machine) == 1
    machine.has_driver = False
    machine.reboot()
    world.run(60 * MINUTE)
    assert installs(machine) == 2
    assert state_of(machine)["phase"] == "working"


def test_a_machine_with_a_driver_installs_none(world: World) -> None:
    machine = world.add("workspace", utilization=50.0)
    world.run(20 * MINUTE)
    assert state_of(machine)["phase"] == "working"
    assert installs(machine) == 0

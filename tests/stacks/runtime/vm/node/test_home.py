"""Disks of a workspace that outlive its machines."""

from __future__ import annotations

from tests.stacks.runtime.vm.sandbox import (
    DAY,
    HOUR,
    MINUTE,
    Home,
    SandboxMachine,
    World,
    settings_of,
    state_of,
)


def work_of(machine: SandboxMachine) -> list[str]:
    """What lies in /work of a machine."""
    assert "/work" in machine.mounts
    return sorted(path.name for path in machine.path("/work").iterdir())


def formats(machine: SandboxMachine) -> int:
    return sum(
        words[0] == "mkfs.ext4" and "tonnage-home" in words
        for words in machine.commands
    )


def test_the_next_machine_has_the_files_of_the_last_one(world: World) -> None:
    first = world.add("workspace")
    world.run(10 * MINUTE)
    assert state_of(first)["phase"] == "working"
    (first.path("/work") / "notebook.ipynb").write_text("x")
    world.run(DAY, lambda: not first.is_up)
    assert not first.is_up
    second = world.add("workspace")
    world.run(DAY + 20 * MINUTE)
    assert work_of(second) == ["notebook.ipynb"]
    assert (formats(first), formats(second)) == (1, 0)


def test_a_reboot_keeps_the_disk(world: World) -> None:
    machine = world.add("workspace", utilization=90.0)
    world.run(10 * MINUTE)
    (machine.path("/work") / "kept").write_text("x")
    world.timeline.at(20 * MINUTE, lambda: machine.reboot(wipes_disks=True))
    world.run(HOUR)
    assert work_of(machine) == ["kept"]
    assert formats(machine) == 1
    assert state_of(machine)["phase"] == "working"


def test_each_user_has_a_disk(world: World) -> None:
    settings = settings_of(world.provider, "workspace")
    names = (
        ["vol-1", "vol-2", "vol-3"]
        if world.provider == "aws"
        else [f"desk-home-{number}" for number in range(3)]
    )
    world.homes = {name: Home() for name in names}
    cloud = {**settings["cloud"], "homes": names}
    for _ in range(3):
        world.add("workspace", {**settings, "cloud": cloud}, utilization=90.0)
    world.run(30 * MINUTE)
    assert sorted(machine.home() for machine in world.machines) == names


def test_a_disk_that_another_machine_still_has_is_waited_for(
    world: World,
) -> None:
    first = world.add("workspace", utilization=90.0)
    world.run(10 * MINUTE)
    second = world.add("workspace", utilization=90.0)
    world.timeline.at(30 * MINUTE, lambda: world.end(first, replaced=True))
    world.run(25 * MINUTE)
    assert state_of(second)["step"] == "home"
    assert "other machines have all disks" in state_of(second)["problem"]
    world.run(HOUR)
    assert state_of(second)["phase"] == "working"
    assert second.home()


def test_a_disk_with_something_else_on_it_is_never_formatted(
    world: World,
) -> None:
    names = settings_of(world.provider, "workspace")["cloud"].get(
        "homes", ["vol-1"]
    )
    world.homes = {name: Home(("xfs", "mine")) for name in names}
    machine = world.add("workspace")
    world.run(DAY, lambda: not machine.is_up)
    assert not machine.is_up
    assert {home.contents for home in world.homes.values()} == {("xfs", "mine")}

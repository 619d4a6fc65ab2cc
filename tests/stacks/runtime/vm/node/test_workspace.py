"""Machines of people: what they type and what they left running keeps them, and nothing else."""

from __future__ import annotations

import os

import pytest

from tests.stacks.runtime.vm.sandbox import (
    DAY,
    HOUR,
    MINUTE,
    START,
    Container,
    SandboxMachine,
    World,
    state_of,
)


def types(machine: SandboxMachine) -> None:
    """Somebody presses a key in a terminal."""
    terminal = machine.path("/dev/pts/3")
    terminal.parent.mkdir(parents=True, exist_ok=True)
    terminal.touch()
    time_s = START.timestamp() + machine.world.timeline.now_s
    os.utime(terminal, (time_s, time_s))


def test_a_workspace_that_nobody_uses_is_given_back(world: World) -> None:
    machine = world.add("workspace")
    world.run(DAY, lambda: not machine.is_up)
    assert machine.ended_s is not None
    # Half an hour after a boot is no idleness.
    assert 1.5 * HOUR <= machine.ended_s <= 1.5 * HOUR + 10 * MINUTE


def test_somebody_who_types_now_and_then_keeps_it(world: World) -> None:
    machine = world.add("workspace")
    for half_hour in range(16):
        world.timeline.at(half_hour * HOUR / 2, lambda: types(machine))
    world.run(8 * HOUR)
    assert machine.is_up
    world.run(DAY, lambda: not machine.is_up)
    assert machine.ended_s is not None
    assert machine.ended_s <= 9 * HOUR


@pytest.mark.parametrize("signal", ["accelerator", "processor"])
def test_a_program_that_runs_keeps_it(world: World, signal: str) -> None:
    machine = world.add("workspace")
    if signal == "accelerator":
        machine.utilization = 30.0
    else:
        machine.path("/proc/loadavg").write_text("1.50 1.2 1.0 2/100 1\n")
    world.run(6 * HOUR)
    assert machine.is_up


def test_a_terminal_that_was_left_open_does_not_keep_it(world: World) -> None:
    machine = world.add("workspace")
    world.timeline.at(MINUTE, lambda: types(machine))
    world.run(DAY, lambda: not machine.is_up)
    assert machine.ended_s is not None
    assert machine.ended_s <= 1.5 * HOUR + 10 * MINUTE


def test_accelerators_that_do_not_answer_are_no_work(world: World) -> None:
    machine = world.add("workspace")

    def breaks() -> None:
        machine.failures["nvidia-smi"] = lambda: True

    world.timeline.at(10 * MINUTE, breaks)
    world.run(DAY, lambda: not machine.is_up)
    assert machine.ended_s is not None
    assert machine.ended_s <= 1.5 * HOUR + 10 * MINUTE


def test_somebody_who_edits_a_notebook_keeps_it(world: World) -> None:
    machine = world.add("workspace")

    def edits() -> None:
        machine.edited_s = world.timeline.now_s

    for quarter in range(24):
        world.timeline.at(quarter * HOUR / 4, edits)
    world.run(6 * HOUR)
    assert machine.is_up
    world.run(DAY, lambda: not machine.is_up)
    assert machine.ended_s is not None
    assert 6.75 * HOUR <= machine.ended_s <= 7 * HOUR


def test_a_kernel_that_computes_keeps_it(world: World) -> None:
    machine = world.add("workspace", kernel_state="busy")
    world.run(6 * HOUR)
    assert machine.is_up


def test_an_idle_kernel_does_not_keep_it(world: World) -> None:
    machine = world.add("workspace", kernel_s=20 * MINUTE)
    world.run(DAY, lambda: not machine.is_up)
    assert machine.ended_s is not None
    assert machine.ended_s <= 1.75 * HOUR


def test_a_notebook_server_that_ends_is_started_again(world: World) -> None:
    machine = world.add("workspace", utilization=90.0)

    def die() -> None:
        machine.containers["tonnage-notebook"].is_running = False

    for hour in (1, 2):
        world.timeline.at(hour * HOUR, die)
    world.run(3 * HOUR)
    assert machine.containers["tonnage-notebook"].is_running
    assert state_of(machine)["problem"] == ""


def test_a_container_engine_that_refuses_leaves_the_machine_to_its_user(
    world: World,
) -> None:
    machine = world.add("workspace", utilization=90.0)
    world.run(10 * MINUTE)
    machine.containers.clear()
    machine.failures["docker"] = lambda: True
    world.run(4 * HOUR)
    assert machine.is_up
    assert state_of(machine)["phase"] == "working"
    assert "JupyterLab" in state_of(machine)["problem"]


def test_a_notebook_server_that_cannot_run_leaves_the_machine_to_its_user(
    world: World,
) -> None:
    def end(_: SandboxMachine, server: Container) -> None:
        server.is_running, server.code = False, 1

    machine = world.add("workspace", utilization=90.0, job=end)
    world.run(3 * HOUR)
    assert machine.is_up
    assert state_of(machine)["phase"] == "working"
    assert "ends again and again" in state_of(machine)["problem"]

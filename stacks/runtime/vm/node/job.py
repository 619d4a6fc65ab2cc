"""The work of a node, from its disk to its last request."""

from __future__ import annotations

from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

from stacks.runtime.vm.node import activity, container, disk, health, speed
from stacks.runtime.vm.node.cloud import notice_of, open_cloud
from stacks.runtime.vm.node.work import (
    FAILURES,
    BrokenMachineError,
    run_steps,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from stacks.runtime.vm.node.cloud import CloudApi
    from stacks.runtime.vm.node.host import Host
    from stacks.runtime.vm.node.work import Work

LOOK_S = 15.0
MEASURE_S = 60.0
HEALTH_S = 3600.0
# What a machine is bought for, by the module and the class that do it.
ROLES = {
    "serve": ("serve", "ServingNode"),
    "train": ("train", "TrainingNode"),
    "batch": ("batch", "BatchNode"),
    "bench": ("bench", "BenchNode"),
    "workspace": ("workspace", "WorkspaceNode"),
}


class Role(Protocol):
    """What a machine was bought for."""

    def look(self) -> bool:
        """Do what is due, and say how it stands; False once the work has ended for good."""

    def leave(self) -> None:
        """Save what can be saved: the machine is about to end."""


def do_work(
    machine: Host, cloud: CloudApi, work: Work, settings: Mapping[str, Any]
) -> None:
    """Prepare the machine, and do what it was bought for until that or the machine ends."""
    run_steps(machine, work, _steps(machine, cloud, settings))
    module, name = ROLES[settings["role"]]
    role: Role = getattr(
        import_module(f"stacks.runtime.vm.node.{module}"), name
    )(machine, cloud, work, settings["work"])
    try:
        _watch(machine, cloud, work, role, settings["health"])
    except KeyboardInterrupt:
        role.leave()
        raise
    # The unit would start again what has ended.
    while True:
        machine.sleep(HEALTH_S)


def _watch(
    machine: Host,
    cloud: CloudApi,
    work: Work,
    role: Role,
    health_settings: Mapping[str, Any],
) -> None:
    """Look after the work, until it has ended or the cloud takes the machine back."""
    checked_s = machine.now_s()
    measured_s = -MEASURE_S
    while not (notice := notice_of(machine, cloud)):
        try:
            if not role.look():
                return
            if machine.now_s() - measured_s >= MEASURE_S:
                measured_s = machine.now_s()
                work.measure(activity.accelerator_numbers(machine))
            if machine.now_s() - checked_s >= HEALTH_S:
                _check_health(machine, health_settings)
                checked_s = machine.now_s()
        except BrokenMachineError as error:
            work.tell("unhealthy", "health", str(error))
        except FAILURES as error:
            work.note(str(error) or type(error).__name__)
        machine.sleep(LOOK_S)
    work.tell("working", f"leave: {notice}")
    role.leave()


def _steps(
    machine: Host, cloud: CloudApi, settings: Mapping[str, Any]
) -> list[tuple[str, Callable[[], None]]]:
    """Return what prepares a machine, in order; each may be done again."""
    steps: list[tuple[str, Callable[[], None]]] = [
        ("disk", partial(disk.mount_models, machine, settings["disk"])),
    ]
    if "driver" in settings:
        steps.append(
            ("driver", partial(_prepare_driver, machine, settings["driver"]))
        )
    steps.append(
        ("health", partial(_check_health, machine, settings["health"]))
    )
    job = settings["work"]
    if settings["disk"]["has_home"]:
        steps.append(("home", partial(_mount_home, machine, cloud)))
    if "container" in job:
        steps += [
            ("container engine", partial(container.prepare_engine, machine)),
            (
                "image",
                partial(container.pull, machine, job["container"]["image"]),
            ),
        ]
        steps.append(
            (
                "speed",
                partial(
                    speed.check_speed,
                    machine,
                    settings["health"],
                    job["container"]["image"],
                ),
            )
        )
    if "slices" in job:
        steps.append(("slices", partial(_make_slices, machine, job["slices"])))
    if "bench" in job:
        # Of another engine than its own the client has an image of its own.
        client = job["bench"]["container"]["image"]
        steps.append(("client", partial(container.pull, machine, client)))
    if "router" in job:
        steps.append(
            ("router", partial(container.pull, machine, job["router"]["image"]))
        )
    if "fabric" in job:
        steps.append(
            ("fabric", partial(_prepare_fabric, machine, job["fabric"]))
        )
    if "file_system" in job:
        steps.append(
            ("file system", partial(_mount_files, machine, cloud, job))
        )
    return [*steps, *_weight_steps(machine, cloud, settings)]


def _weight_steps(
    machine: Host, cloud: CloudApi, settings: Mapping[str, Any]
) -> list[tuple[str, Callable[[], None]]]:
    """Return what brings the weights, or the program of a training, to the disk."""
    steps: list[tuple[str, Callable[[], None]]] = []
    job = settings["work"]
    if "hub" in job:
        steps.append(
            ("weights", partial(_fetch_repository, machine, cloud, job))
        )
    if "upload" in job:
        bucket = cloud
        if job["upload"]["is_elsewhere"]:
            cloud_settings = settings["cloud"]
            bucket = open_cloud(
                machine, {**cloud_settings, **cloud_settings["weights"]}
            )
        steps.append(("upload", partial(_fetch_upload, machine, bucket, job)))
    for other in job.get("beside", ()):
        fetch = _fetch_repository if "hub" in other else _fetch_upload
        steps.append(
            (
                f"weights of {other['name']}",
                partial(fetch, machine, cloud, other),
            )
        )
    return steps


def _check_health(machine: Host, settings: Mapping[str, Any]) -> None:
    """Raise BrokenMachineError for a machine that is not sound."""
    problems = health.health_problems(machine, settings)
    if problems:
        raise BrokenMachineError("; ".join(problems))


# What only some machines do, only they have.
def _prepare_driver(machine: Host, settings: Mapping[str, Any]) -> None:
    from stacks.runtime.vm.node.driver import prepare_driver

    prepare_driver(machine, settings)


def _mount_home(machine: Host, cloud: CloudApi) -> None:
    from stacks.runtime.vm.node.home import mount_home

    mount_home(machine, cloud)


def _prepare_fabric(machine: Host, settings: Mapping[str, Any]) -> None:
    from stacks.runtime.vm.node.fabric import prepare_fabric

    prepare_fabric(machine, settings)


def _mount_files(
    machine: Host, cloud: CloudApi, job: Mapping[str, Any]
) -> None:
    from stacks.runtime.vm.node.file_system import mount_files

    mount_files(machine, cloud, job["file_system"])


def _make_slices(machine: Host, slices: Sequence[Mapping[str, Any]]) -> None:
    from stacks.runtime.vm.node.slices import make_slices

    make_slices(machine, slices)


def _fetch_repository(
    machine: Host, cloud: CloudApi, job: Mapping[str, Any]
) -> None:
    from stacks.runtime.vm.node.hub import fetch_repository

    fetch_repository(machine, cloud, job["hub"], job["container"]["image"])


def _fetch_upload(
    machine: Host, cloud: CloudApi, job: Mapping[str, Any]
) -> None:
    from stacks.runtime.vm.node.upload import fetch_upload

    fetch_upload(machine, cloud, job["upload"])

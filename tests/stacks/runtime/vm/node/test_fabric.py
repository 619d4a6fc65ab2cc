"""What a machine does for its fabric before a container may use it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.stacks.runtime.vm.sandbox import (
    FABRIC_SERVICE,
    HOUR,
    MINUTE,
    SandboxMachine,
    World,
    settings_of,
)

SHOWN = "/dev/aperture_devices"


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[SandboxMachine]:
    """One of two machines of Google Cloud that train together over TCPXO."""
    world = World("gcp", tmp_path)
    world.upload("job/", ["train.py"])
    made = world.add(
        "train", settings_of("gcp", "train"), missing_modules={"import-helper"}
    )
    yield made
    world.timeline.close()


def test_the_module_is_installed_where_the_kernel_has_none(
    machine: SandboxMachine,
) -> None:
    machine.world.run(10 * MINUTE)
    installed = [
        words[words.index("install") + 1 :]
        for words in machine.commands
        if words[0] == "apt-get" and "install" in words
    ]
    assert ("apt-transport-artifact-registry",) in installed
    [built] = [names for names in installed if "dmabuf-import-helper" in names]
    assert "linux-headers-6.11.0-1016-gcp" in built
    lists = sorted(machine.path("/etc/apt/sources.list.d").iterdir())
    assert len(lists) == 2
    for path in lists:
        key = path.read_text().partition("signed-by=")[2].partition("]")[0]
        # The sandbox has keys that are no letters.
        assert key.endswith(".gpg")
        assert machine.path(key).exists()


def test_devices_are_shown_once_and_after_each_boot(
    machine: SandboxMachine,
) -> None:
    for boot_s in (0.0, 20 * MINUTE):
        machine.world.run(boot_s + 10 * MINUTE)
        shown = sorted(machine.path(SHOWN).iterdir())
        assert len(shown) == 8
        for path in shown:
            assert (path / "vendor").read_text() == "0x1ae0\n"
            assert (path / "resource0").stat().st_mode & 0o777 == 0o666
        binds = [words for words in machine.commands if words[0] == "mount"]
        assert len(binds) == (8 if not boot_s else 16)
        machine.reboot()


def test_the_job_starts_once_the_service_of_the_fabric_is_ready(
    machine: SandboxMachine,
) -> None:
    world = machine.world
    for _ in range(machine.settings["work"]["nodes"] - 1):
        world.add("train", machine.settings)
    world.run(HOUR)
    started = [
        name
        for words in machine.commands
        for name in (FABRIC_SERVICE, "tonnage-train")
        if words[:2] == ("docker", "run") and f"--name={name}" in words
    ]
    assert started[0] == FABRIC_SERVICE
    # What starts again is the job, which this test has none of.
    assert set(started[1:]) == {"tonnage-train"}


def test_a_service_that_does_not_come_up_gives_the_machine_back(
    machine: SandboxMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = machine.settings["work"]["fabric"]["services"][0]
    monkeypatch.setitem(settings, "ready", "never said")
    machine.world.run(6 * HOUR, lambda: not machine.is_up)
    assert machine.ended_s is not None
    assert machine.ended_s < 2 * HOUR
    [reason] = [
        data.decode()
        for key, (data, _) in machine.world.objects.items()
        if key.startswith("released/")
    ]
    assert f"fabric: {FABRIC_SERVICE} does not say" in reason

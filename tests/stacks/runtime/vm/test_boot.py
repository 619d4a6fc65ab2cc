"""Units of systemd that a machine gets, by what systemd itself says of them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from stacks.runtime.vm.node import file_system
from tests.stacks.runtime.vm.sandbox import MINUTE, World

SCRIPTS = Path(__file__).parents[4] / "stacks" / "runtime" / "vm" / "scripts"
ANALYZE = shutil.which("systemd-analyze")


def complaints(folder: Path) -> list[str]:
    """What systemd says of the units of a folder; of other units of this machine nothing."""
    assert ANALYZE is not None
    paths = sorted(map(str, folder.iterdir()))
    found = subprocess.run(
        [ANALYZE, "verify", "--man=no", "--recursive-errors=no", *paths],
        capture_output=True,
        text=True,
        check=False,
    )
    # What it cannot read it ignores, and ends with 0.
    return [line for line in found.stderr.splitlines() if str(folder) in line]


def units_of(world: World, role: str, folder: Path) -> Path:
    """The units of the boot script, and those that a machine wrote in half an hour."""
    world.upload("job/", ["train.py"])
    machine = world.add(role)
    world.run(30 * MINUTE)
    folder.mkdir()
    written = machine.path("/etc/systemd/system")
    for path in [*SCRIPTS.glob("*.service"), *written.glob("*.mount")]:
        shutil.copy(path, folder)
    return folder


@pytest.mark.skipif(ANALYZE is None, reason="no systemd-analyze on PATH")
@pytest.mark.parametrize("role", ["serve", "train", "workspace"])
def test_systemd_reads_all_units_of_a_machine(
    world: World, role: str, tmp_path: Path
) -> None:
    folder = units_of(world, role, tmp_path / "units")
    (folder / file_system.UNIT).write_text(
        file_system.UNIT_TEXT.format(source="10.0.0.9@tcp:/data")
    )
    kept = {"work.mount"} if role == "workspace" else set()
    assert {path.name for path in folder.iterdir()} == kept | {
        "data.mount",
        "models.mount",
        "tonnage-agent.service",
        "tonnage-work.service",
    }
    assert complaints(folder) == []


@pytest.mark.skipif(ANALYZE is None, reason="no systemd-analyze on PATH")
def test_a_unit_that_systemd_cannot_read_is_found(tmp_path: Path) -> None:
    folder = tmp_path / "units"
    folder.mkdir()
    text = (SCRIPTS / "tonnage-agent.service").read_text()
    (folder / "tonnage-agent.service").write_text(
        text.replace("Restart=always", "Restart=alwayss")
    )
    assert len(complaints(folder)) == 1

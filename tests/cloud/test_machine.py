"""What only a cloud can show (docs/unproved.md), on one small machine of an account of yours.

`make cloud-test CLOUD=aws` plans the cheapest accelerator, refuses what may cost more than $5,
applies it, asks the machine, and destroys everything at the end, also after a failure. It needs
the login and the tools of the cloud, the Pulumi CLI, and about 40 minutes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

CLOUD = os.environ.get("TONNAGE_CLOUD", "")
if not CLOUD:
    pytest.skip("no cloud is named: make cloud-test", allow_module_level=True)

STACK = "tonnage-cloud-test"
MOST_USD = 5.0
BOOT_S = 1800.0
LOOK_S = 30.0
SPEC = f"""
apiVersion: tonnage/v1
kind: Workspace
name: {STACK}
fits: {{model: llama-3.1-8b, for: lora}}
shutdown: {{idle: 30m, ttl: 1h}}
where: {{clouds: [{CLOUD}]}}
"""
# What a node of every kind must be able to say.
ON_THE_MACHINE = {
    "python": "python3 -c 'import bz2, sys; assert sys.version_info >= (3, 10)'",
    "commands": "command -v mdadm blkid mkfs.ext4 docker nvidia-ctk",
    "agent": "systemctl is-active tonnage-agent",
    "driver": "nvidia-smi --query-gpu=name --format=csv,noheader",
    "disk": "mountpoint /models",
    "journal": "test -d /var/log/journal",
}


def tonnage(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "planner.cli.main", *words],
        check=False,
        capture_output=True,
        text=True,
    )


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A stack with one machine whose agent lives."""
    folder: Path = tmp_path_factory.mktemp("cloud")
    spec, plan = folder / "spec.yaml", folder / "plan.json"
    spec.write_text(SPEC)
    planned = tonnage("plan", str(spec), "-o", str(plan))
    assert planned.returncode == 0, planned.stderr
    usd_hour = float(json.loads(plan.read_text())["cost"]["usd_hour"])
    assert usd_hour <= MOST_USD, "an hour costs too much; nothing was created"
    try:
        applied = tonnage("apply", str(plan), "--yes")
        assert applied.returncode == 0, applied.stderr
        end_s = time.monotonic() + BOOT_S
        while tonnage("connect", STACK, "--print", "--", "true").returncode:
            assert time.monotonic() < end_s, tonnage("logs", STACK).stdout
            time.sleep(LOOK_S)
        yield
    finally:
        destroyed = tonnage("destroy", STACK, "--yes", "--allow", "delete-data")
    # Otherwise somebody has to: it is paid for.
    assert destroyed.returncode == 0, destroyed.stdout + destroyed.stderr


@pytest.mark.usefixtures("machine")
@pytest.mark.parametrize("what", ON_THE_MACHINE)
def test_a_machine_has_what_its_program_needs(what: str) -> None:
    words = ("connect", STACK, "--", "sh", "-c", ON_THE_MACHINE[what])
    done = tonnage(*words)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.usefixtures("machine")
def test_its_lines_reach_the_logs() -> None:
    assert "tonnage-agent" in tonnage("logs", STACK).stdout


@pytest.mark.usefixtures("machine")
def test_it_goes_and_comes_back() -> None:
    for words in (("scale", STACK, "0"), ("start", STACK)):
        done = tonnage(*words, "--yes")
        assert done.returncode == 0, done.stderr

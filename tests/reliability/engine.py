"""The real Pulumi engine on simulated clouds: processes are killed, and the next run recovers."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from planner.errors import SpecError
from planner.plan.canonical import parse_plan
from providers.simulated.world import load_memory
from stacks.engine.pulumi.retention import retained_names
from stacks.graph import parse_graph
from tests.stacks.engine.test_simulated import TEXT

if TYPE_CHECKING:
    from collections.abc import Callable

    from planner.plan.types import Plan

TONNAGE = (sys.executable, "-m", "planner.cli.main")
FLAGS = ("--simulate", "--engine", "pulumi")
# Whether a way ends only tonnage, or also the engine and its plugins.
WAYS = {
    "SIGKILL of all processes": (signal.SIGKILL, True),
    "SIGKILL of tonnage alone": (signal.SIGKILL, False),
    "SIGTERM": (signal.SIGTERM, False),
    "SIGHUP": (signal.SIGHUP, False),
    "Ctrl-C": (signal.SIGINT, False),
}
VERBS = ("apply", "destroy", "move")
PATIENCE_S = 120
LOCKED_EXIT_CODE = 12


def is_there() -> bool:
    """Tell whether there is a Pulumi program."""
    return shutil.which("pulumi") is not None


def kill_problem(
    verb: str, way: str, cloud: str, next_cloud: str
) -> str | None:
    """Kill a run at some moment; say what is wrong after the next apply, or nothing."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        home = wanted = _planned(folder, cloud)
        if verb != "apply":
            first = _tonnage(folder, "apply", f"{cloud}.json", *FLAGS)
            if first.returncode:
                return f"the first apply: {first.stderr[-300:]}"
        if verb == "move":
            wanted = _planned(folder, next_cloud)
        generator = random.Random(f"{verb} {way} {cloud}")
        moment = generator.randrange(1, len(home.graph.resources))
        path = f"{wanted.graph.provider}.json"
        _run_and_kill(
            folder,
            ("destroy", "chat", "--yes")
            if verb == "destroy"
            else ("apply", path, "--allow", "outage"),
            way,
            lambda count: (
                0 <= count <= moment
                if verb == "destroy"
                else count
                >= moment + (len(home.graph.resources) if verb == "move" else 0)
            ),
        )
        # What was agreed to is not asked for again.
        for _ in range(PATIENCE_S):
            again = _tonnage(folder, "apply", path, *FLAGS)
            # A run that lost its terminal may still be ending.
            if again.returncode != LOCKED_EXIT_CODE:
                break
            time.sleep(1)
        names = sorted(
            found["name"]
            for found in load_memory(_world(folder)).objects.values()
        )
        if again.returncode:
            return f"exit {again.returncode}: {again.stderr[-300:]}"
        expected = [resource.name for resource in wanted.graph.resources]
        if verb == "move":
            expected += retained_names(parse_graph(home.graph))
        if names != sorted(expected):
            return f"{len(names)} objects of {len(expected)}"
    return None


def _planned(folder: Path, cloud: str) -> Plan:
    """Write a plan for a cloud, and return it."""
    (folder / f"{cloud}.yaml").write_text(TEXT.replace("CLOUD", cloud))
    path = f"{cloud}.json"
    _tonnage(folder, "plan", f"{cloud}.yaml", "-o", path, *FLAGS)
    return parse_plan((folder / path).read_bytes(), path)


def _run_and_kill(
    folder: Path,
    arguments: tuple[str, ...],
    way: str,
    is_due: Callable[[int], bool],
) -> None:
    """Start a run, and kill it as soon as the number of objects in the world says so."""
    kill_signal, takes_all = WAYS[way]
    with subprocess.Popen(
        [*TONNAGE, *arguments, *FLAGS],
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=_environment(),
    ) as process:
        deadline_s = time.monotonic() + PATIENCE_S
        while process.poll() is None and time.monotonic() < deadline_s:
            if is_due(_object_count(folder)):
                break
            time.sleep(0.02)
        for process_id in _family(process.pid) if takes_all else [process.pid]:
            try:
                os.kill(process_id, kill_signal)
            except ProcessLookupError:
                continue


def _family(process_id: int) -> list[int]:
    """Return a process and all that it started."""
    found = [process_id]
    for status_path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status_path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == process_id:
            found += _family(int(status_path.parent.name))
    return found


def _object_count(folder: Path) -> int:
    try:
        return len(load_memory(_world(folder)).objects)
    except SpecError:
        return -1


def _world(folder: Path) -> Path:
    return folder / ".tonnage" / "pulumi-simulated" / "world.json"


def _tonnage(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*TONNAGE, *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env=_environment(),
    )


def _environment() -> dict[str, str]:
    root = str(Path(__file__).resolve().parents[2])
    return {**os.environ, "PYTHONPATH": root}

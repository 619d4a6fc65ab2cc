"""The real Pulumi engine on simulated clouds: processes are killed, and the next run recovers."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TypeAlias

from planner.errors import SpecError
from providers.simulated.world import load_memory
from tests.stacks.engine.test_simulated import TEXT

TONNAGE = (sys.executable, "-m", "planner.cli.main")
FLAGS = ("--simulate", "--engine", "pulumi")
# One of each in each cloud.
KILLED_CLOUDS = ("aws", "gcp", "azure")
KILLS_OF_EACH = len(KILLED_CLOUDS)
PATIENCE_S = 120
LOCKED_EXIT_CODE = 12
# Name, how often it was right, how often it was tried, what went wrong.
Row: TypeAlias = tuple[str, int, int, tuple[str, ...]]


def figures() -> list[Row]:
    """Kill apply and destroy in five ways; nothing without a Pulumi program."""
    if shutil.which("pulumi") is None:
        return []
    rows = []
    for verb in ("apply", "destroy"):
        for way, kill_signal, takes_all in (
            ("SIGKILL of all processes", signal.SIGKILL, True),
            ("SIGKILL of tonnage alone", signal.SIGKILL, False),
            ("SIGTERM", signal.SIGTERM, False),
            ("SIGHUP", signal.SIGHUP, False),
            ("Ctrl-C", signal.SIGINT, False),
        ):
            failures = tuple(
                f"{verb} {seed}: {problem}"
                for seed in range(KILLS_OF_EACH)
                if (
                    problem := _kill_problem(
                        verb, kill_signal, seed, all_=takes_all
                    )
                )
            )
            rows.append(
                (
                    f"Pulumi, {verb}, {way}",
                    KILLS_OF_EACH - len(failures),
                    KILLS_OF_EACH,
                    failures,
                )
            )
    return rows


def _kill_problem(
    verb: str, kill_signal: signal.Signals, seed: int, *, all_: bool
) -> str | None:
    """Kill a run at some object; say what is wrong after the next apply, or nothing."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        text = TEXT.replace("CLOUD", KILLED_CLOUDS[seed])
        (folder / "chat.yaml").write_text(text)
        _tonnage(folder, "plan", "chat.yaml", "-o", "p.json")
        resources = json.loads((folder / "p.json").read_text())["graph"][
            "resources"
        ]
        if verb == "destroy":
            _tonnage(folder, "apply", "p.json", *FLAGS)
        generator = random.Random(seed)
        _run_and_kill(
            folder,
            verb,
            kill_signal,
            generator.randrange(1, len(resources)),
            all_=all_,
        )
        for _ in range(PATIENCE_S):
            again = _tonnage(folder, "apply", "p.json", *FLAGS)
            # A run that lost its terminal may still be ending.
            if again.returncode != LOCKED_EXIT_CODE:
                break
            time.sleep(1)
        names = [
            found["name"]
            for found in load_memory(_world(folder)).objects.values()
        ]
        if again.returncode:
            return f"exit {again.returncode}: {again.stderr[-300:]}"
        if sorted(names) != sorted(resource["name"] for resource in resources):
            return f"{len(names)} objects of {len(resources)}"
    return None


def _run_and_kill(
    folder: Path,
    verb: str,
    kill_signal: signal.Signals,
    target_count: int,
    *,
    all_: bool,
) -> None:
    arguments = (
        ("apply", "p.json") if verb == "apply" else ("destroy", "chat", "--yes")
    )
    with subprocess.Popen(
        [*TONNAGE, *arguments, *FLAGS],
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=_environment(),
    ) as process:
        deadline_s = time.monotonic() + PATIENCE_S
        while process.poll() is None and time.monotonic() < deadline_s:
            count = _object_count(folder)
            is_there = (
                count >= target_count
                if verb == "apply"
                else 0 <= count <= target_count
            )
            if is_there:
                break
            time.sleep(0.02)
        for process_id in _family(process.pid) if all_ else [process.pid]:
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

"""The agent of a node: gives the node back when it is idle, or past its time to live.

Runs on the node with the standard library alone; everything it knows stands in its settings.
A probe that fails counts as busy, so that a broken probe never kills work; the time to live and
the backstop of the cloud still hold.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

TICK = 60.0
GRACE = 1800.0


def decide(
    now: float, state: dict[str, float], settings: dict[str, Any]
) -> str:
    """Return "ttl", "idle" or "": the reason to give the node back, if any.

    state: booted, last_busy (seconds since the epoch). settings: idle, ttl (seconds or 0).
    """
    if settings.get("ttl") and now - state["booted"] >= settings["ttl"]:
        return "ttl"
    idle = settings.get("idle", 0)
    if idle and now - max(state["last_busy"], state["booted"] + GRACE) >= idle:
        return "idle"
    return ""


def gpu_busy() -> bool:
    """Whether any accelerator works; raises on a probe that fails."""
    query = [
        "nvidia-smi",
        "--query-gpu=utilization.gpu",
        "--format=csv,noheader,nounits",
    ]
    shown = subprocess.run(  # noqa: S603 - a fixed command
        query, capture_output=True, text=True, timeout=30, check=True
    )
    return any(float(line) >= 5.0 for line in shown.stdout.split())


def requests_waiting(port: int) -> bool:
    """Whether the server runs or queues requests."""
    with urllib.request.urlopen(
        f"http://127.0.0.1:{port}/metrics", timeout=10
    ) as answer:
        lines = answer.read().decode("utf-8", "replace").splitlines()
    wanted = ("vllm:num_requests_running", "vllm:num_requests_waiting")
    return any(
        line.startswith(wanted) and float(line.split()[-1]) > 0
        for line in lines
    )


def busy(settings: dict[str, Any]) -> bool:
    """Whether the node works; a failed probe counts as busy and is told."""
    try:
        if gpu_busy():
            return True
        return bool(settings.get("port")) and requests_waiting(settings["port"])
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        sys.stderr.write(f"probe failed, counted as busy: {error}\n")
        return True


def main(path: str) -> None:
    """Watch until a reason comes up, then run the command that gives the node back."""
    settings = json.loads(Path(path).read_text(encoding="utf-8"))
    uptime = float(Path("/proc/uptime").read_text(encoding="utf-8").split()[0])
    booted = (
        time.time() - uptime
    )  # not the start of this process: a restart resets nothing
    state = {"booted": booted, "last_busy": time.time()}
    while True:
        now = time.time()
        if busy(settings):
            state["last_busy"] = now
        reason = decide(now, state, settings)
        if reason:
            sys.stderr.write(f"giving the node back: {reason}\n")
            command = ["/bin/sh", "-c", settings["give_back"]]
            try:
                subprocess.run(command, check=False, timeout=300)  # noqa: S603 - from the plan
            except (OSError, subprocess.SubprocessError) as error:
                sys.stderr.write(
                    f"could not give the node back, tried again: {error}\n"
                )
            time.sleep(
                300
            )  # the cloud stops the machine meanwhile; else it is tried again
        time.sleep(TICK)


if __name__ == "__main__":
    main(sys.argv[1])

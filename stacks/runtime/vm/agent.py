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

SAID_S = 120.0  # in which a word of the job that the node is busy holds


def release_reason(
    now_s: float, node_state: dict[str, float], settings: dict[str, Any]
) -> str:
    """Return "ttl", "idle" or "": the reason to give the node back, if any.

    state: booted, last_busy (seconds since the epoch). settings: idle, ttl (seconds or 0), and
    grace (seconds after the boot in which a node does not count as idle).
    """
    if settings.get("ttl") and now_s - node_state["booted"] >= settings["ttl"]:
        return "ttl"
    idle_limit_s = settings.get("idle", 0)
    if (
        idle_limit_s
        and now_s
        - max(node_state["last_busy"], node_state["booted"] + settings["grace"])
        >= idle_limit_s
    ):
        return "idle"
    return ""


def says_busy(now_s: float, path: str) -> bool:
    """Whether the job has lately said that the node loads or stands by; False without a path."""
    busy_file = Path(path)
    if not path or not busy_file.exists():
        return False
    return now_s - busy_file.stat().st_mtime < SAID_S


def gpu_busy() -> bool:
    """Whether any accelerator works; raises on a probe that fails."""
    query_command = [
        "nvidia-smi",
        "--query-gpu=utilization.gpu",
        "--format=csv,noheader,nounits",
    ]
    query_result = subprocess.run(  # noqa: S603 - a fixed command
        query_command, capture_output=True, text=True, timeout=30, check=True
    )
    return any(
        float(utilization) >= 5.0 for utilization in query_result.stdout.split()
    )


def requests_waiting(port: int) -> bool:
    """Whether the server runs or queues requests."""
    with urllib.request.urlopen(
        f"http://127.0.0.1:{port}/metrics", timeout=10
    ) as response:
        metric_lines = response.read().decode("utf-8", "replace").splitlines()
    metric_names = ("vllm:num_requests_running", "vllm:num_requests_waiting")
    return any(
        metric_line.startswith(metric_names)
        and float(metric_line.split()[-1]) > 0
        for metric_line in metric_lines
    )


def node_busy(settings: dict[str, Any]) -> bool:
    """Whether the node works; a failed probe counts as busy and is told."""
    try:
        if gpu_busy() or says_busy(time.time(), settings["busy_file"]):
            return True
        return bool(settings.get("port")) and requests_waiting(settings["port"])
    except (OSError, ValueError, subprocess.SubprocessError) as probe_error:
        sys.stderr.write(f"probe failed, counted as busy: {probe_error}\n")
        return True


def main(settings_path: str) -> None:
    """Watch until a reason comes up, then run the command that gives the node back."""
    settings = json.loads(Path(settings_path).read_text(encoding="utf-8"))
    uptime_s = float(
        Path("/proc/uptime").read_text(encoding="utf-8").split()[0]
    )
    booted_at_s = (
        time.time() - uptime_s
    )  # not the start of this process: a restart resets nothing
    node_state = {"booted": booted_at_s, "last_busy": time.time()}
    while True:
        now_s = time.time()
        if node_busy(settings):
            node_state["last_busy"] = now_s
        release_cause = release_reason(now_s, node_state, settings)
        if release_cause:
            sys.stderr.write(f"giving the node back: {release_cause}\n")
            command = ["/bin/sh", "-c", settings["give_back"]]
            try:
                subprocess.run(command, check=False, timeout=300)  # noqa: S603 - from the plan
            except (OSError, subprocess.SubprocessError) as command_error:
                sys.stderr.write(
                    f"could not give the node back, tried again: {command_error}\n"
                )
            time.sleep(
                300
            )  # the cloud stops the machine meanwhile; else it is tried again
        time.sleep(settings["poll"])


if __name__ == "__main__":
    main(sys.argv[1])

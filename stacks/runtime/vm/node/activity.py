"""What shows that a machine is used: requests, accelerators, and people."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, NamedTuple

from stacks.runtime.vm.node.host import CommandError, RequestError

if TYPE_CHECKING:
    from stacks.runtime.vm.node.host import Host

# Looks at an engine that was well before, until it counts as broken.
SICK_LOOKS = 4
# An engine that has requests and makes no tokens.
HUNG_S = 300.0
# Per cent at which an accelerator works: a display or a monitor causes less.
BUSY_UTILIZATION = 5.0
# Processes that wait for a processor, on average over a minute.
BUSY_LOAD = 0.3


class EngineMetrics(NamedTuple):
    """What an engine calls what it counts.

    gauges    requests that it runs or queues; without any, it counts those that have ended alone
    counters  tokens of prompts and answers, or requests that have ended
    label     of the lines that count, where each stage counts for itself
    path      where it is asked
    """

    gauges: tuple[str, ...]
    counters: tuple[str, ...]
    label: str = ""
    path: str = "/metrics"


class EngineCounts(NamedTuple):
    """What a serving engine counts.

    requests  that it runs or queues
    tokens    of all prompts and answers since its start, or requests that have ended since
    """

    requests: float
    tokens: float


def engine_traffic(
    machine: Host, address: str, port: int, metrics: EngineMetrics
) -> EngineCounts | None:
    """Return what the engine at an address counts; nothing when it does not answer."""
    try:
        answer = machine.send(
            "GET", f"http://{address}:{port}{metrics.path}", timeout_s=10
        )
    except RequestError:
        return None
    lines = answer.body.decode("utf-8", "replace").splitlines()
    lines = [line for line in lines if metrics.label in line]
    return EngineCounts(
        _total(lines, metrics.gauges), _total(lines, metrics.counters)
    )


def _total(lines: list[str], names: tuple[str, ...]) -> float:
    """Add the values of metrics over their labels; other names may begin alike."""
    return sum(
        float(line.split()[-1])
        for line in lines
        if line.partition("{")[0].partition(" ")[0] in names
    )


def is_healthy(machine: Host, port: int, address: str = "127.0.0.1") -> bool:
    """Whether the engine at an address says that it is well."""
    try:
        machine.send("GET", f"http://{address}:{port}/health", timeout_s=10)
    except RequestError:
        return False
    return True


def accelerators_work(machine: Host) -> bool:
    """Whether any accelerator works. Raises CommandError when they do not answer."""
    lines = machine.run(
        "nvidia-smi",
        "--query-gpu=utilization.gpu",
        "--format=csv,noheader,nounits",
        timeout_s=30,
    ).split()
    return any(float(line) >= BUSY_UTILIZATION for line in lines)


def accelerator_numbers(machine: Host) -> dict[str, float]:
    """Return the mean utilization in per cent and the power in watts; what is told of them."""
    lines = machine.run(
        "nvidia-smi",
        "--query-gpu=utilization.gpu,power.draw",
        "--format=csv,noheader,nounits",
        timeout_s=30,
    ).splitlines()
    cells = [line.partition(",") for line in lines]
    shares = [n for first, _, _ in cells if (n := _number(first)) is not None]
    watts = [n for _, _, last in cells if (n := _number(last)) is not None]
    return {
        **({"Utilization": sum(shares) / len(shares)} if shares else {}),
        **({"Power": sum(watts)} if watts else {}),
    }


def _number(text: str) -> float | None:
    """Return a number; nothing for [N/A]."""
    try:
        return float(text)
    except ValueError:
        return None


def people_work(machine: Host, seconds: float) -> bool:
    """Whether somebody typed in the last `seconds`, or programs keep the processors busy."""
    load = float(machine.path("/proc/loadavg").read_text().split()[0])
    if load >= BUSY_LOAD:
        return True
    now = machine.utc().timestamp()
    return any(
        # Input and output of a terminal are read from and written to it.
        now - max(terminal.stat().st_atime, terminal.stat().st_mtime) < seconds
        for terminal in machine.path("/dev/pts").glob("[0-9]*")
    )


def notebook_is_used(machine: Host, port: int, seconds: float) -> bool:
    """Whether a kernel of JupyterLab is busy, or it or a terminal was used in the last `seconds`.

    A page that somebody has left open is no use: it asks by itself.
    """
    for kind in ("kernels", "terminals"):
        try:
            answer = machine.send(
                "GET",
                f"http://127.0.0.1:{port}/api/{kind}?no_track_activity=1",
                timeout_s=10,
            )
        except RequestError:
            return False
        for entry in answer.document():
            # Python 3.10 reads no Z.
            used_at = dt.datetime.fromisoformat(
                entry["last_activity"].replace("Z", "+00:00")
            )
            age_s = (machine.utc() - used_at).total_seconds()
            if entry.get("execution_state") == "busy" or age_s < seconds:
                return True
    return False


def files_change(machine: Host, folder: str, minutes: int) -> bool:
    """Whether a file of a folder was written in the last minutes: an editor saves, a copy runs."""
    found = machine.run(
        "find",
        folder,
        "-xdev",
        "-maxdepth",
        "6",
        "-type",
        "f",
        "-mmin",
        f"-{minutes}",
        "-print",
        "-quit",
    )
    return bool(found.strip())


def last_line(machine: Host, container: str) -> str:
    """Return the newest line that a container has written, with its time."""
    try:
        return machine.run(
            "docker",
            "logs",
            "--tail=1",
            "--timestamps",
            container,
            with_errors=True,
        )
    except CommandError:
        return ""

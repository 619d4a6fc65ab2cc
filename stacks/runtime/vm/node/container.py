"""Containers: the engine that runs them, their image, and one that is kept up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from stacks.runtime.vm.node.host import CommandError
from stacks.runtime.vm.node.package import Repository, install, install_from

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from stacks.runtime.vm.node.host import Host

PULL_TIMEOUT_S = 3600.0
# So many failures in so many seconds are many: a large model loads for most of an hour.
FAILURES = 3
FAILURES_S = 10_800.0
TOOLKIT_URL = "https://nvidia.github.io/libnvidia-container"
TOOLKIT = Repository(
    "nvidia-container-toolkit",
    f"{TOOLKIT_URL}/gpgkey",
    f"{TOOLKIT_URL}/stable/deb/$(ARCH) /",
    ["nvidia-container-toolkit"],
)
# Into the journal of the machine, where they outlive the container and have a limit. What Python
# prints comes at once.
LOG_WORDS = ("--log-driver=journald", "--env=PYTHONUNBUFFERED=1")
ALL_DEVICES = "all"
# Every container of accelerators: the network and the memory of the host, and pinned memory.
RUN_WORDS = (
    "docker",
    "run",
    "--detach",
    "--network=host",
    "--ipc=host",
    "--ulimit=memlock=-1",
    "--ulimit=stack=67108864",
    *LOG_WORDS,
    "--cap-add=IPC_LOCK",
    "--volume=/models:/models",
)


class Exit(NamedTuple):
    """How a container ended."""

    code: int
    last_lines: str


class Failures:
    """Failures of a container; many in a short time are a matter of the machine."""

    def __init__(self, machine: Host) -> None:
        self._machine = machine
        self._times_s: list[float] = []

    def add(self) -> None:
        """Count a failure of now."""
        self._times_s.append(self._machine.now_s())

    @property
    def are_many(self) -> bool:
        """Whether the last failures came in so short a time that another start is no use."""
        now_s = self._machine.now_s()
        recent = [
            time_s for time_s in self._times_s if now_s - time_s < FAILURES_S
        ]
        return len(recent) >= FAILURES


def prepare_engine(machine: Host) -> None:
    """Install what is missing of Docker and of the toolkit that gives it accelerators."""
    if not machine.succeeds("docker", "--version"):
        install(machine, "docker.io")
    if not machine.succeeds("nvidia-ctk", "--version"):
        install_from(machine, TOOLKIT)
    if "nvidia" not in machine.run(
        "docker", "info", "--format", "{{.Runtimes}}"
    ):
        machine.run("nvidia-ctk", "runtime", "configure", "--runtime=docker")
        machine.run("systemctl", "restart", "docker")


def pull(machine: Host, image: str) -> None:
    """Fetch an image that is not on the machine yet."""
    if not machine.succeeds("docker", "image", "inspect", image):
        machine.run("docker", "pull", "-q", image, timeout_s=PULL_TIMEOUT_S)


def start(
    machine: Host,
    name: str,
    settings: Mapping[str, Any],
    words: Sequence[str],
    variables: Mapping[str, str] | None = None,
    *,
    more_options: Sequence[str] = (),
    devices: str = ALL_DEVICES,
) -> None:
    """Start a container in place of an older one of its name.

    Settings: image, options (words of docker run), environment, entry and lead (the program and
    its first words). `devices` are the accelerators that it sees, as docker names them.
    """
    remove(machine, name)
    environment = {**settings["environment"], **(variables or {})}
    machine.run(
        *RUN_WORDS,
        f"--gpus={devices}",
        f"--name={name}",
        *settings["options"],
        *more_options,
        *(f"--env={key}={text}" for key, text in sorted(environment.items())),
        f"--entrypoint={settings['entry']}",
        settings["image"],
        *settings["lead"],
        *words,
    )


def is_running(machine: Host, name: str) -> bool:
    """Whether a container is there and runs."""
    try:
        answer = machine.run(
            "docker", "inspect", "--format", "{{.State.Running}}", name
        )
    except CommandError:
        return False
    return answer.strip() == "true"


def ended(machine: Host, name: str) -> Exit | None:
    """Return how a container ended; nothing while it runs."""
    if is_running(machine, name):
        return None
    try:
        code = machine.run(
            "docker", "inspect", "--format", "{{.State.ExitCode}}", name
        )
        lines = machine.run(
            "docker", "logs", "--tail=5", name, with_errors=True
        )
    except CommandError as error:
        return Exit(-1, str(error))
    return Exit(int(code), lines.strip())


def stop(machine: Host, name: str, grace_s: int) -> None:
    """Ask a container to end, and end it after the grace."""
    if is_running(machine, name):
        machine.run(
            "docker", "stop", f"--time={grace_s}", name, timeout_s=grace_s + 60
        )


def remove(machine: Host, name: str) -> None:
    """Remove a container, whatever it does; one that is missing is removed already."""
    machine.run("docker", "rm", "--force", name)

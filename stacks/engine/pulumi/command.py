"""The Pulumi program as a process of ours: it gets the signals that we decide on."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from typing import TYPE_CHECKING, Final

from pulumi.automation import CommandResult, PulumiCommand
from pulumi.automation.errors import create_command_error

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import IO

END_GRACE_S: Final = 1.0


class StoppableCommand(PulumiCommand):  # type: ignore[misc]  # it has no types
    """Runs the program in a session of its own, so that a terminal's Ctrl-C reaches only us."""

    def __init__(self) -> None:
        super().__init__()
        self.process: subprocess.Popen[str] | None = None

    def run(
        self,
        args: list[str],
        cwd: str,
        additional_env: Mapping[str, str],
        on_output: Callable[[str], object] | None = None,
        on_error: Callable[[str], object] | None = None,
    ) -> CommandResult:
        """Run a command of the program and return its output; raises CommandError if it fails."""
        with subprocess.Popen(  # noqa: S603 - the program that the user has installed
            [self.command, "--non-interactive", *args],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=cwd,
            env={
                **os.environ,
                **additional_env,
                "PULUMI_AUTOMATION_API": "true",
            },
            encoding="utf-8",
            start_new_session=True,
        ) as process:
            self.process = process
            output_lines: list[str] = []
            error_lines: list[str] = []
            readers = [
                threading.Thread(target=_read_lines, args=reader_arguments)
                for reader_arguments in (
                    (process.stdout, on_output, output_lines),
                    (process.stderr, on_error, error_lines),
                )
            ]
            for reader in readers:
                reader.start()
            for reader in readers:
                reader.join()
            exit_code = process.wait()
        self.process = None
        result = CommandResult(
            stdout="\n".join(output_lines),
            stderr="\n".join(error_lines),
            code=exit_code,
        )
        if exit_code:
            raise create_command_error(result)
        return result

    def interrupt(self) -> None:
        """Ask the program to end after what is in flight; a second time ends it at once."""
        if self.process is not None:
            self.process.send_signal(signal.SIGINT)

    def end(self) -> None:
        """End the program and its plugins now; what is in flight stays pending in its state."""
        process = self.process
        if process is None:
            return
        process.send_signal(signal.SIGINT)
        try:
            process.wait(END_GRACE_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)


def _read_lines(
    stream: IO[str],
    callback: Callable[[str], object] | None,
    lines: list[str],
) -> None:
    for line in stream:
        stripped_line = line.rstrip()
        if callback:
            callback(stripped_line)
        lines.append(stripped_line)

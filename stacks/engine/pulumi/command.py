"""The Pulumi program as a process of ours: it gets the signals that we decide on."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from typing import TYPE_CHECKING, Final

from pulumi.automation import CommandResult, PulumiCommand
from pulumi.automation.errors import CommandError, create_command_error

from planner.errors import Problem, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import IO

END_GRACE_S: Final = 1.0
# A state that is being written is whole again a moment later.
READ_ATTEMPTS: Final = 12
READ_PAUSE_S: Final = 0.5
READING_COMMANDS: Final = frozenset(
    {"export", "history", "ls", "output", "select"}
)
CUT_TEXTS: Final = ("EOF", "unexpected end of JSON")


class StoppableCommand(PulumiCommand):  # type: ignore[misc]  # it has no types
    """Runs the program in a session of its own, so that a terminal's Ctrl-C reaches only us."""

    def __init__(self, mend: Callable[[], None]) -> None:
        super().__init__()
        # Lets states that a dead process has cut be read again.
        self.mend = mend
        self.process: subprocess.Popen[str] | None = None

    def run(
        self,
        args: list[str],
        cwd: str,
        additional_env: Mapping[str, str],
        on_output: Callable[[str], object] | None = None,
        on_error: Callable[[str], object] | None = None,
    ) -> CommandResult:
        """Run a command of the program and return its output; raises CommandError if it fails.

        What only reads a state is asked again while another process writes it, or has died of it.
        Raises UsageError where the states of a backend cannot be used.
        """
        is_reading = args[0] == "stack" and args[1] in READING_COMMANDS
        for _ in range(READ_ATTEMPTS if is_reading else 1):
            result = self._result_of(
                args, cwd, additional_env, on_output, on_error
            )
            if not result.code:
                return result
            if not any(text in result.stderr for text in CUT_TEXTS):
                break
            time.sleep(READ_PAUSE_S)
            self.mend()
        error = create_command_error(result)
        if args[0] == "stack" and type(error) is CommandError:
            raise _unusable(result.stderr) from error
        raise error

    def _result_of(
        self,
        args: list[str],
        cwd: str,
        additional_env: Mapping[str, str],
        on_output: Callable[[str], object] | None,
        on_error: Callable[[str], object] | None,
    ) -> CommandResult:
        """Run a command of the program to its end."""
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
        return CommandResult(
            stdout="\n".join(output_lines),
            stderr="\n".join(error_lines),
            code=exit_code,
        )

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


def _unusable(error_text: str) -> UsageError:
    """Return the error for a backend whose states the program cannot read or write."""
    lines = error_text.strip().splitlines() or ["it says nothing"]
    return UsageError(
        Problem(
            code="backend",
            message="Pulumi cannot use the states",
            cause=lines[-1].strip().removeprefix("error: "),
            next_step="check --backend, what it needs to log in, and the file that is named",
        )
    )


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

"""Pulumi on this machine: its program, its folders, and calls that can be ended."""

from __future__ import annotations

import shutil
import threading
import time
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from planner.errors import LockedError, PolicyError, Problem, UsageError
from providers.files import make_folder
from providers.simulated.shared import FOLDER_VARIABLE, WORLD_VARIABLE
from stacks.engine.failure import RefusedCall, combined_error
from stacks.engine.pulumi.checkpoint import PROJECT_NAME, folder_backend
from stacks.engine.pulumi.plugin import install_plugins
from stacks.engine.stop import cancelled_error

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from planner.plan.types import Properties
    from stacks.engine.pulumi.command import StoppableCommand
    from stacks.engine.pulumi.event import EventRecorder
    from stacks.engine.pulumi.stack import PulumiStack
    from stacks.engine.stop import StopRequest

POLL_S: Final = 0.05


class PulumiSession:
    """Opens stacks of a backend, and runs calls on them.

    world_source  rules of the simulated clouds, or `default`; none for real clouds
    policy_packs  folders with policies of Pulumi, which judge every preview and update
    """

    def __init__(
        self,
        folder: Path,
        *,
        backend: str | None,
        world_source: str | None,
        environment: dict[str, str],
    ) -> None:
        self.folder = folder
        self.state_folder = folder / "state"
        self.backend = backend or self.state_folder.as_uri()
        self.world_source = world_source
        self.environment = environment
        self.policy_packs: tuple[str, ...] = ()
        self._command: StoppableCommand | None = None

    def automation(self) -> Any:
        """Import the Automation API, or say what is missing and how to get it."""
        if find_spec("pulumi") is None:
            raise _missing_tool(
                "the Python package pulumi", "pip install 'tonnage[pulumi]'"
            )
        if shutil.which("pulumi", path=self.environment.get("PATH")) is None:
            command = "curl -fsSL https://get.pulumi.com | sh"
            raise _missing_tool("the pulumi program", command)
        from pulumi import automation

        return automation

    @property
    def command(self) -> StoppableCommand:
        """The program of Pulumi."""
        self.automation()
        from stacks.engine.pulumi.command import StoppableCommand

        if self._command is None:
            self._command = StoppableCommand(self._mend)
        return self._command

    def stack_names(self) -> list[str]:
        """Return the names of all stacks of the backend."""
        automation = self.automation()
        self._mend()
        workspace = automation.LocalWorkspace(**self._options(automation))
        return sorted(
            stack_summary.name.split("/")[-1]
            for stack_summary in workspace.list_stacks()
        )

    def _mend(self) -> None:
        """Let all states be read again that a run was killed while it wrote them."""
        files = folder_backend(self.backend)
        if files is not None:
            for stack_name in files.stack_names():
                files.mend(stack_name)

    def open_stack(self, stack_name: str) -> PulumiStack | None:
        """Open a stack of the backend; nothing when there is none."""
        automation = self.automation()
        try:
            return self._open(stack_name, create=False)
        except automation.StackNotFoundError:
            return None

    def create_stack(self, stack_name: str) -> PulumiStack:
        """Open a stack of the backend, or create one with nothing in it."""
        return self._open(stack_name, create=True)

    def _open(self, stack_name: str, *, create: bool) -> PulumiStack:
        automation = self.automation()
        from stacks.engine.pulumi.stack import PulumiStack

        self._mend()
        workspace = automation.LocalWorkspace(
            # Each run brings its own program.
            program=_empty_program,
            **self._options(automation),
        )
        return PulumiStack(self, stack_name, workspace, create=create)

    def run(
        self,
        call: Callable[[], Any],
        recorder: EventRecorder,
        stack_name: str,
        stop: StopRequest,
    ) -> None:
        """Make a call of the program; its failures become typed errors from its events."""
        from pulumi.automation import errors

        try:
            self._run_to_end(call, stop)
        except errors.ConcurrentUpdateError as cli_error:
            problem = Problem(
                code="locked",
                message=f"{stack_name} is locked by Pulumi itself",
                cause=str(cli_error).strip().splitlines()[-1].strip(),
                next_step="wait for the other run; of one that is dead: "
                f"tonnage unlock {stack_name}",
            )
            raise LockedError(problem) from cli_error
        except errors.CommandError as cli_error:
            if recorder.violations:
                raise PolicyError(*recorder.violations) from cli_error
            if stop.is_made:
                raise cancelled_error(stack_name, "the run") from cli_error
            raise combined_error(
                recorder.failures()
                or [RefusedCall("pulumi", str(cli_error).splitlines()[0])]
            ) from cli_error

    def refused_plugins(self, versions: Mapping[str, str]) -> list[RefusedCall]:
        """Install the packages of clouds, by version, and return those that cannot be had."""
        from pulumi.automation import errors

        automation = self.automation()
        workspace = automation.LocalWorkspace(**self._options(automation))
        refused = []
        for package, version in versions.items():
            try:
                workspace.install_plugin(package, f"v{version}")
            except errors.CommandError as cli_error:
                lines = [
                    line.partition("error: ")[2]
                    for line in str(cli_error).splitlines()
                    if "error: " in line
                ]
                refused.append(
                    RefusedCall(
                        f"the plug-in {package} {version} of Pulumi",
                        lines[-1] if lines else str(cli_error).strip(),
                        "resource",
                        f"install it: pulumi plugin install resource {package} v{version}",
                    )
                )
        return refused

    def _run_to_end(self, call: Callable[[], Any], stop: StopRequest) -> None:
        """Run a call in a thread, and pass a request to stop on to the program.

        It then finishes what is in flight. After the time that a request leaves, or when this
        process has to end at once, the program ends too.
        """
        call_errors: list[Exception] = []

        def run_call() -> None:
            try:
                call()
            except Exception as call_error:  # noqa: BLE001 - carried over to the caller's thread
                call_errors.append(call_error)

        thread = threading.Thread(target=run_call, daemon=True)
        thread.start()
        is_interrupted = False
        try:
            while thread.is_alive():
                thread.join(POLL_S)
                if stop.is_made and not is_interrupted:
                    self.command.interrupt()
                    is_interrupted = True
                if stop.is_overdue(time.monotonic()):
                    self.command.end()
                    thread.join()
        except KeyboardInterrupt:
            self.command.end()
            thread.join()
            raise
        if call_errors:
            raise call_errors[0]

    def _options(self, automation: Any) -> Properties:
        """Folders and environment; the simulated clouds get a home of their own."""
        work_folder, home_folder = self.folder / "work", self.folder / "home"
        for folder_path in (work_folder, home_folder, self.state_folder):
            make_folder(folder_path)
        project_settings = automation.ProjectSettings(
            name=PROJECT_NAME,
            runtime="python",
            backend=automation.ProjectBackend(url=self.backend),
        )
        environment = {
            "PULUMI_SKIP_UPDATE_CHECK": "true",
            "PULUMI_CONFIG_PASSPHRASE": self.environment.get(
                "PULUMI_CONFIG_PASSPHRASE", ""
            ),
        }
        options: Properties = {
            "work_dir": str(work_folder),
            "project_settings": project_settings,
            "pulumi_command": self.command,
        }
        if self.world_source is not None:
            install_plugins(home_folder)
            environment |= {
                "PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION": "true",
                FOLDER_VARIABLE: str(self.folder),
            }
            if self.world_source != "default":
                environment[WORLD_VARIABLE] = str(
                    Path(self.world_source).resolve()
                )
            options["pulumi_home"] = str(home_folder)
        return {**options, "env_vars": environment}


def _empty_program() -> None:
    """Registers nothing."""


def _missing_tool(tool_name: str, install_command: str) -> UsageError:
    message = f"{tool_name} is needed to apply and was not found"
    next_step = f"install it with: {install_command}   or try the simulated clouds: --simulate"
    return UsageError(
        Problem(code="pulumi", message=message, next_step=next_step)
    )

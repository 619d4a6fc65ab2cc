"""The Pulumi engine: the Automation API on a generic program, real clouds or simulated ones.

The backend holds the truth. What tonnage must know of a stack (by which plan, since when) is
exported by the stack itself, so it is wherever the state is.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import signal
import sys
import threading
from contextlib import closing
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from msgspec.json import decode as json_decode
from msgspec.json import encode as json_encode

from planner.errors import LockedError, MissingError, Problem, UsageError
from planner.facts.cloud import clouds
from planner.plan.status import ResourceRef, StackFacts, StackStatus
from providers import registry
from stacks.engine import state as states
from stacks.engine.failure import combined_error
from stacks.engine.fill import fill_text, placeholder_values
from stacks.engine.protocol import (
    EngineOutcome,
    ResourceStep,
)
from stacks.engine.pulumi_event import EventRecorder
from stacks.graph import parse_graph
from stacks.spec.table import lookup_table

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from planner.plan.types import Plan, Properties
    from providers.base import IdentitySource
    from providers.simulated.world import World
    from stacks.engine.program import Program
    from stacks.engine.protocol import Listener
    from stacks.graph import Graph

PROJECT_NAME: Final = "tonnage"
PLAN_OUTPUT = "tonnage:plan"
STARTED_OUTPUT = "tonnage:started"
FACTS_OUTPUT = "tonnage:facts"
RESERVED_OUTPUTS: Final = (PLAN_OUTPUT, STARTED_OUTPUT, FACTS_OUTPUT)


class PulumiEngine:
    """Applies plans with the Pulumi CLI. `world_source` makes the clouds simulated ones."""

    def __init__(
        self,
        folder: Path,
        *,
        backend: str | None,
        world_source: str | None,
        environment: dict[str, str],
    ) -> None:
        self.folder = folder.resolve()
        self.backend = backend
        self.world_source = world_source
        self.environment = environment

    def stack_status(self, stack_name: str) -> StackStatus | None:
        """Return the stack as the backend has it."""
        pulumi_stack = self._open_stack(stack_name, create=False)
        if pulumi_stack is None:
            return None
        deployment = pulumi_stack.export_stack().deployment or {}
        start_config = _entry_values(pulumi_stack.get_all_config())
        state_records = [
            state_record
            for state_record in deployment.get("resources", [])
            if state_record.get("custom") and "id" in state_record
        ]
        state_records = [
            state_record
            for state_record in state_records
            if not state_record["type"].startswith("pulumi:")
        ]
        stack_outputs = _stack_outputs(deployment)
        state_json = json.dumps(
            [
                [
                    state_record["urn"],
                    state_record["id"],
                    state_record.get("inputs"),
                ]
                for state_record in state_records
            ],
            sort_keys=True,
        )
        return StackStatus(
            stack=stack_name,
            plan=str(
                start_config.get(PLAN_OUTPUT)
                or stack_outputs.get(PLAN_OUTPUT, "")
            ),
            state_sha256=hashlib.sha256(state_json.encode()).hexdigest(),
            complete=_is_complete(stack_outputs, start_config, deployment),
            resources=tuple(
                sorted(
                    (
                        ResourceRef(
                            type=state_record["type"],
                            name=state_record["urn"].rsplit("::", 1)[-1],
                        )
                        for state_record in state_records
                    ),
                    key=lambda resource: (resource.type, resource.name),
                )
            ),
            outputs={
                entry_name: entry_value
                for entry_name, entry_value in stack_outputs.items()
                if entry_name not in RESERVED_OUTPUTS
            },
            facts=json_decode(
                stack_outputs.get(FACTS_OUTPUT, "null"), type=StackFacts | None
            ),
        )

    def preview(self, plan: Plan) -> tuple[ResourceStep, ...]:
        """Return what apply would do, as Pulumi's own preview sees it."""
        steps_by_name: dict[str, ResourceStep] = {}

        def record_step(resource_step: ResourceStep) -> None:
            if (
                resource_step.name not in steps_by_name
                or resource_step.action != "same"
            ):
                steps_by_name[resource_step.name] = resource_step

        pulumi_stack = self._open_stack(plan.stack.name, create=True)
        started_at = _start_time(pulumi_stack)
        event_recorder = EventRecorder(
            lambda progress_event: record_step(progress_event.step)
        )
        with closing(self._program(plan, started_at)) as program:
            self._call_cli(
                lambda: pulumi_stack.preview(
                    program=program, on_event=event_recorder, color="never"
                ),
                event_recorder,
            )
        return tuple(
            steps_by_name[resource_name]
            for resource_name in sorted(steps_by_name)
        )

    def apply(self, plan: Plan, listener: Listener) -> EngineOutcome:
        """Make the stack what the plan says."""
        stack_name = plan.stack.name
        stack_lock = states.exclusive_lock(
            self.folder / f"{stack_name}.json", stack_name
        )
        with stack_lock:
            pulumi_stack = self._open_stack(stack_name, create=True)
            started_at = _start_time(pulumi_stack)
            event_recorder = EventRecorder(listener)
            self._record_start(pulumi_stack, plan, started_at)
            with closing(self._program(plan, started_at)) as program:
                self._call_cli(
                    lambda: pulumi_stack.up(
                        program=program, on_event=event_recorder, color="never"
                    ),
                    event_recorder,
                )
            stack_outputs = {
                entry_name: entry_value
                for entry_name, entry_value in _entry_values(
                    pulumi_stack.outputs()
                ).items()
                if entry_name not in RESERVED_OUTPUTS
            }
        return EngineOutcome(
            steps=event_recorder.changed_steps(),
            outputs=stack_outputs,
            elapsed_s=event_recorder.elapsed_s(),
        )

    def _record_start(
        self, pulumi_stack: Any, plan: Plan, started_at: str
    ) -> None:
        """Write down by which plan and since when, before anything is created.

        A run that fails exports nothing, and the same plan must be able to go on.
        """
        automation = self._import_automation()
        config_values = {
            PLAN_OUTPUT: plan.digest,
            STARTED_OUTPUT: started_at,
        }
        pulumi_stack.set_all_config(
            {
                config_key: automation.ConfigValue(config_value)
                for config_key, config_value in config_values.items()
            }
        )

    def destroy(self, stack_name: str, listener: Listener) -> EngineOutcome:
        """Delete everything of the stack, and the stack itself."""
        stack_lock = states.exclusive_lock(
            self.folder / f"{stack_name}.json", stack_name
        )
        with stack_lock:
            pulumi_stack = self._open_stack(stack_name, create=False)
            if pulumi_stack is None:
                next_step = "run: tonnage status"
                message = f"no stack is named {stack_name}"
                raise MissingError(
                    Problem(code="stack", message=message, next_step=next_step)
                )
            event_recorder = EventRecorder(listener)
            self._call_cli(
                lambda: pulumi_stack.destroy(
                    on_event=event_recorder, color="never"
                ),
                event_recorder,
            )
            pulumi_stack.workspace.remove_stack(stack_name)
        return EngineOutcome(
            steps=event_recorder.changed_steps(),
            elapsed_s=event_recorder.elapsed_s(),
        )

    def stack_names(self) -> list[str]:
        """Return the names of all stacks of the backend."""
        automation = self._import_automation()
        workspace = automation.LocalWorkspace(
            **self._workspace_options(automation)
        )
        return sorted(
            stack_summary.name.split("/")[-1]
            for stack_summary in workspace.list_stacks()
        )

    def _open_stack(self, stack_name: str, *, create: bool) -> Any:
        """Open a stack of the backend. Nothing when there is none and none is to be created."""
        automation = self._import_automation()
        open_function = (
            automation.create_or_select_stack
            if create
            else automation.select_stack
        )
        try:
            return open_function(
                stack_name,
                project_name=PROJECT_NAME,
                # Each run brings its own program.
                program=_empty_program,
                opts=automation.LocalWorkspaceOptions(
                    **self._workspace_options(automation)
                ),
            )
        except automation.StackNotFoundError:
            return None

    def _program(self, plan: Plan, started_at: str) -> Program:
        """Return the program that registers what a plan asks for. It must be closed."""
        self._import_automation()
        from stacks.engine.program import Program

        resource_graph = parse_graph(plan.graph)
        return Program(
            resource_graph,
            self._text_filler(plan, resource_graph, started_at),
            self._plugin_version(resource_graph.provider),
            {
                PLAN_OUTPUT: plan.digest,
                STARTED_OUTPUT: started_at,
                FACTS_OUTPUT: json_encode(
                    StackFacts.of(plan), order="sorted"
                ).decode(),
            },
        )

    def _text_filler(
        self, plan: Plan, resource_graph: Graph, started_at: str
    ) -> Callable[[str], str]:
        identity: IdentitySource = self._load_world() or registry.provider(
            resource_graph.provider
        ).identity(self.environment)
        placeholders = placeholder_values(
            identity.project,
            datetime.fromisoformat(started_at),
            plan.shutdown.ttl,
        )
        return lambda template_text: fill_text(template_text, placeholders)

    def _import_automation(self) -> Any:
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

    def _workspace_options(self, automation: Any) -> Properties:
        """Folders and environment of the CLI; the simulated clouds get a home of their own."""
        work_folder, home_folder, state_folder = (
            self.folder / folder_name
            for folder_name in ("work", "home", "state")
        )
        for folder_path in (work_folder, home_folder, state_folder):
            folder_path.mkdir(parents=True, exist_ok=True)
        project_settings = automation.ProjectSettings(
            name=PROJECT_NAME,
            runtime="python",
            backend=automation.ProjectBackend(
                url=self.backend or state_folder.as_uri()
            ),
        )
        environment = {
            "PULUMI_SKIP_UPDATE_CHECK": "true",
            "PULUMI_CONFIG_PASSPHRASE": self.environment.get(
                "PULUMI_CONFIG_PASSPHRASE", ""
            ),
        }
        workspace_options: Properties = {
            "work_dir": str(work_folder),
            "project_settings": project_settings,
        }
        if self.world_source is not None:
            _install_plugins(home_folder)
            environment |= {
                "PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION": "true",
                "TONNAGE_SIMULATED_FOLDER": str(self.folder),
            }
            if self.world_source != "default":
                environment["TONNAGE_SIMULATED_WORLD"] = str(
                    Path(self.world_source).resolve()
                )
            workspace_options["pulumi_home"] = str(home_folder)
        return {**workspace_options, "env_vars": environment}

    def _load_world(self) -> World | None:
        if self.world_source is None:
            return None
        from providers.simulated import world

        if self.world_source == "default":
            return world.default_world()
        return world.read_world(
            Path(self.world_source).read_bytes(), self.world_source
        )

    def _plugin_version(self, provider: str) -> str:

        return lookup_table("plugins.csv", "package", "version")[
            clouds()[provider].package
        ]

    def _call_cli(
        self, cli_call: Callable[[], Any], event_recorder: EventRecorder
    ) -> None:
        """Run a call of the CLI; its failures become typed errors from its structured events."""
        from pulumi.automation import errors

        try:
            _run_to_end(cli_call)
        except errors.ConcurrentUpdateError as cli_error:
            next_step = (
                "wait for the other run, or run pulumi cancel when it is dead"
            )
            problem = Problem(
                code="locked",
                message="the stack is locked",
                next_step=next_step,
            )
            raise LockedError(problem) from cli_error
        except errors.CommandError as cli_error:
            raise combined_error(
                event_recorder.failures()
                or [("pulumi", str(cli_error).splitlines()[0])]
            ) from cli_error


def _run_to_end(cli_call: Callable[[], Any]) -> None:
    """Run work in a thread, so that Ctrl-C lets the CLI finish what is in flight and save.

    The terminal sends the interrupt to the CLI as well; it stops by itself.
    """
    call_finished = threading.Event()
    call_errors = []

    def run_call() -> None:
        try:
            cli_call()
        except Exception as call_error:  # noqa: BLE001 - carried over to the caller's thread
            call_errors.append(call_error)
        finally:
            call_finished.set()

    in_main_thread = threading.current_thread() is threading.main_thread()
    prior_handler = (
        signal.signal(signal.SIGINT, lambda *_: None)
        if in_main_thread
        else None
    )
    try:
        threading.Thread(target=run_call, daemon=True).start()
        while not call_finished.wait(0.1):
            pass
    finally:
        if in_main_thread:
            signal.signal(signal.SIGINT, prior_handler)
    if call_errors:
        raise call_errors[0]


def _is_complete(
    stack_outputs: Properties,
    start_config: dict[str, str],
    deployment: Properties,
) -> bool:
    """Whether the last run ended well: what it began with is what it exported."""
    same_plan = stack_outputs.get(PLAN_OUTPUT) == start_config.get(
        PLAN_OUTPUT, stack_outputs.get(PLAN_OUTPUT)
    )
    return (
        PLAN_OUTPUT in stack_outputs
        and same_plan
        and not deployment.get("pending_operations")
    )


def _empty_program() -> None:
    """Registers nothing."""


def _entry_values(entries: Mapping[str, Any]) -> dict[str, Any]:
    """The values of outputs, or of a configuration."""
    return {name: entry.value for name, entry in entries.items()}


def _start_time(pulumi_stack: Any) -> str:
    """When a stack was first applied, as it wrote down; the present time for a new one."""
    return str(
        _entry_values(pulumi_stack.outputs()).get(STARTED_OUTPUT)
        or _entry_values(pulumi_stack.get_all_config()).get(STARTED_OUTPUT)
        or datetime.now(UTC).isoformat()
    )


def _stack_outputs(deployment: Properties) -> Properties:
    for state_record in deployment.get("resources", []):
        if state_record["type"] == "pulumi:pulumi:Stack":
            stack_outputs: Properties = state_record.get("outputs", {})
            return stack_outputs
    return {}


def _install_plugins(home_folder: Path) -> None:
    """Put our provider plugins where the engine looks first, without touching PATH."""
    source_root = Path(__file__).resolve().parents[2]
    for package_name, plugin_version in lookup_table(
        "plugins.csv", "package", "version"
    ).items():
        plugin_path = (
            home_folder
            / "plugins"
            / f"resource-{package_name}-v{plugin_version}"
            / f"pulumi-resource-{package_name}"
        )
        python_code = (
            f"import sys; sys.path.insert(0, {str(source_root)!r}); "
            f"from providers.simulated.plugin import main; main({plugin_version!r})"
        )
        plugin_path.parent.mkdir(parents=True, exist_ok=True)
        quoted_code = python_code.replace("'", "'\"'\"'")
        plugin_path.write_text(
            f"#!/bin/sh\nexec '{sys.executable}' -c '{quoted_code}' \"$@\"\n",
            "utf-8",
        )
        plugin_path.chmod(0o755)


def _missing_tool(tool_name: str, install_command: str) -> UsageError:
    message = f"{tool_name} is needed to apply and was not found"
    next_step = f"install it with: {install_command}   or try the simulated clouds: --simulate"
    return UsageError(
        Problem(code="pulumi", message=message, next_step=next_step)
    )

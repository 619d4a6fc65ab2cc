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
import time
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from planner.errors import LockedError, MissingError, Problem, UsageError
from stacks.engine import state as states
from stacks.engine.failure import error
from stacks.engine.fill import words, written
from stacks.engine.protocol import Event, Outcome, Standing, Step
from stacks.engine.simulated import facts
from stacks.graph import Graph, restore
from stacks.site import table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from providers.simulated.world import World
    from stacks.engine.protocol import Action, Listener

PROJECT: Final = "tonnage"
PLAN, STARTED, FACTS = "tonnage:plan", "tonnage:started", "tonnage:facts"
OURS: Final = (PLAN, STARTED, FACTS)
ACTIONS: Final[dict[str, Action]] = {
    "create": "create",
    "update": "update",
    "delete": "delete",
    "replace": "replace",
    "create-replacement": "replace",
    "delete-replaced": "replace",
    "same": "same",
}
NOTHING: Final = Graph(provider="aws", region="", resources=())


class PulumiEngine:
    """Applies plans with the Pulumi CLI. `world` makes the clouds simulated ones."""

    def __init__(
        self,
        folder: Path,
        *,
        backend: str | None,
        world: str | None,
        environment: dict[str, str],
    ) -> None:
        self.folder, self.backend, self.world = folder.resolve(), backend, world
        self.environment = environment
        self._started = ""

    def standing(self, stack: str) -> Standing | None:
        """Return the stack as the backend has it."""
        with self._opened(stack, NOTHING, {}, create=False) as found:
            if found is None:
                return None
            deployment = found.export_stack().deployment or {}
            begun = {k: v.value for k, v in found.get_all_config().items()}
        rows = [
            r
            for r in deployment.get("resources", [])
            if r.get("custom") and "id" in r
        ]
        rows = [r for r in rows if not r["type"].startswith("pulumi:")]
        outputs = _outputs(deployment)
        seed = json.dumps(
            [[r["urn"], r["id"], r.get("inputs")] for r in rows], sort_keys=True
        )
        return Standing(
            name=stack,
            plan=str(begun.get(PLAN) or outputs.get(PLAN, "")),
            sha256=hashlib.sha256(seed.encode()).hexdigest(),
            complete=_complete(outputs, begun, deployment),
            resources=tuple(
                sorted((r["type"], r["urn"].rsplit("::", 1)[-1]) for r in rows)
            ),
            outputs={k: v for k, v in outputs.items() if k not in OURS},
            facts=json.loads(outputs.get(FACTS, "{}")),
        )

    def preview(self, plan: dict[str, Any]) -> tuple[Step, ...]:
        """Return what apply would do, as Pulumi's own preview sees it."""
        seen: dict[str, Step] = {}

        def note(step: Step) -> None:
            if step.name not in seen or step.action != "same":
                seen[step.name] = step

        graph = restore(plan["graph"])
        with self._opened(plan["stack"]["name"], graph, plan) as stack:
            watch = _Watch(lambda event: note(event.step))
            self._call(
                lambda: stack.preview(on_event=watch, color="never"), watch
            )
        return tuple(seen[name] for name in sorted(seen))

    def apply(self, plan: dict[str, Any], listen: Listener) -> Outcome:
        """Make the stack what the plan says."""
        name = plan["stack"]["name"]
        graph = restore(plan["graph"])
        lock = states.locked(self.folder / f"{name}.json", name)
        with lock, self._opened(name, graph, plan) as stack:
            watch = _Watch(listen)
            self._begin(stack, plan)
            self._call(lambda: stack.up(on_event=watch, color="never"), watch)
            outputs = {
                k: v.value for k, v in stack.outputs().items() if k not in OURS
            }
        return Outcome(
            steps=watch.changed(), outputs=outputs, seconds=watch.clock()
        )

    def _begin(self, stack: Any, plan: dict[str, Any]) -> None:
        """Write down by which plan and since when, before anything is created.

        A run that fails exports nothing, and the same plan must be able to go on.
        """
        auto = self._automation()
        values = {PLAN: plan["digest"], STARTED: self._started}
        stack.set_all_config(
            {key: auto.ConfigValue(value) for key, value in values.items()}
        )

    def destroy(self, stack: str, listen: Listener) -> Outcome:
        """Delete everything of the stack, and the stack itself."""
        lock = states.locked(self.folder / f"{stack}.json", stack)
        with lock, self._opened(stack, NOTHING, {}, create=False) as found:
            if found is None:
                step = "run: tonnage status"
                message = f"no stack is named {stack}"
                raise MissingError(
                    Problem(code="stack", message=message, next_step=step)
                )
            watch = _Watch(listen)
            self._call(
                lambda: found.destroy(on_event=watch, color="never"), watch
            )
            found.workspace.remove_stack(stack)
        return Outcome(steps=watch.changed(), seconds=watch.clock())

    def stacks(self) -> list[str]:
        """Return the names of all stacks of the backend."""
        auto = self._automation()
        workspace = auto.LocalWorkspace(**self._settings(auto))
        return sorted(s.name.split("/")[-1] for s in workspace.list_stacks())

    @contextmanager
    def _opened(
        self,
        name: str,
        graph: Graph,
        plan: dict[str, Any],
        *,
        create: bool = True,
    ) -> Iterator[Any]:
        """Open a stack with its program, and close the program's loop however the work ends.

        Yields None when the stack does not exist and is not to be created.
        """
        auto = self._automation()
        from stacks.engine.program import Program

        started = datetime.now(UTC).isoformat()
        program = Program(graph, str, self._version(graph.provider), {})
        opening = auto.create_or_select_stack if create else auto.select_stack
        try:
            stack = opening(
                name,
                project_name=PROJECT,
                program=program,
                opts=auto.LocalWorkspaceOptions(**self._settings(auto)),
            )
        except auto.StackNotFoundError:
            yield None
            return
        if create:
            known = {k: v.value for k, v in stack.outputs().items()}
            begun = {k: v.value for k, v in stack.get_all_config().items()}
            started = str(known.get(STARTED) or begun.get(STARTED) or started)
            self._started = started
            program.fill = self._filler(plan, graph, started)
            program.exports = {
                PLAN: plan["digest"],
                STARTED: started,
                FACTS: json.dumps(facts(plan), sort_keys=True),
            }
        try:
            yield stack
        finally:
            program.close()

    def _filler(
        self, plan: dict[str, Any], graph: Graph, started: str
    ) -> Callable[[str], str]:
        project = self.environment.get("GOOGLE_CLOUD_PROJECT", "")
        world = self._world()
        if world is not None:
            project = world.project
        elif graph.provider == "gcp" and not project:
            problem = Problem(
                code="project",
                message="no Google Cloud project is set",
                next_step="set GOOGLE_CLOUD_PROJECT",
            )
            raise UsageError(problem)
        known = words(
            project, datetime.fromisoformat(started), plan["shutdown"]["ttl"]
        )
        return lambda text: written(text, known)

    def _automation(self) -> Any:
        """Import the Automation API, or say what is missing and how to get it."""
        if find_spec("pulumi") is None:
            raise _absent(
                "the Python package pulumi", "pip install 'tonnage[pulumi]'"
            )
        if shutil.which("pulumi", path=self.environment.get("PATH")) is None:
            command = "curl -fsSL https://get.pulumi.com | sh"
            raise _absent("the pulumi program", command)
        from pulumi import automation

        return automation

    def _settings(self, auto: Any) -> dict[str, Any]:
        """Folders and environment of the CLI; the simulated clouds get a home of their own."""
        work, home, state = (
            self.folder / part for part in ("work", "home", "state")
        )
        for path in (work, home, state):
            path.mkdir(parents=True, exist_ok=True)
        settings = auto.ProjectSettings(
            name=PROJECT,
            runtime="python",
            backend=auto.ProjectBackend(url=self.backend or state.as_uri()),
        )
        environment = {
            "PULUMI_SKIP_UPDATE_CHECK": "true",
            "PULUMI_CONFIG_PASSPHRASE": self.environment.get(
                "PULUMI_CONFIG_PASSPHRASE", ""
            ),
        }
        found: dict[str, Any] = {
            "work_dir": str(work),
            "project_settings": settings,
        }
        if self.world is not None:
            _install_plugins(home)
            environment |= {
                "PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION": "true",
                "TONNAGE_SIMULATED_FOLDER": str(self.folder),
            }
            if self.world != "default":
                environment["TONNAGE_SIMULATED_WORLD"] = str(
                    Path(self.world).resolve()
                )
            found["pulumi_home"] = str(home)
        return {**found, "env_vars": environment}

    def _world(self) -> World | None:
        if self.world is None:
            return None
        from providers.simulated import world

        if self.world == "default":
            return world.default()
        return world.read(Path(self.world).read_bytes(), self.world)

    def _version(self, provider: str) -> str:
        from stacks.engine.program import PACKAGES

        return table("plugins.csv", "package", "version")[PACKAGES[provider]]

    def _call(self, work: Callable[[], Any], watch: _Watch) -> None:
        """Run a call of the CLI; its failures become typed errors from its structured events."""
        from pulumi.automation import errors

        try:
            _patiently(work)
        except errors.ConcurrentUpdateError as trouble:
            step = (
                "wait for the other run, or run pulumi cancel when it is dead"
            )
            problem = Problem(
                code="locked", message="the stack is locked", next_step=step
            )
            raise LockedError(problem) from trouble
        except errors.CommandError as trouble:
            raise error(
                watch.failures() or [("pulumi", str(trouble).splitlines()[0])]
            ) from trouble


def _patiently(work: Callable[[], Any]) -> None:
    """Run work in a thread, so that Ctrl-C lets the CLI finish what is in flight and save.

    The terminal sends the interrupt to the CLI as well; it stops by itself.
    """
    done, trouble = threading.Event(), []

    def run() -> None:
        try:
            work()
        except Exception as error_:  # noqa: BLE001 - carried over to the caller's thread
            trouble.append(error_)
        finally:
            done.set()

    inside = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGINT, lambda *_: None) if inside else None
    try:
        threading.Thread(target=run, daemon=True).start()
        while not done.wait(0.1):
            pass
    finally:
        if inside:
            signal.signal(signal.SIGINT, before)
    if trouble:
        raise trouble[0]


class _Watch:
    """Turns the engine's structured events into ours, and keeps its errors by resource."""

    def __init__(self, listen: Listener) -> None:
        self.listen, self.start = listen, time.monotonic()
        self.steps: dict[str, Step] = {}
        self.errors: dict[str, list[str]] = {}

    def __call__(self, event: Any) -> None:
        phases = (
            ("begin", event.resource_pre_event),
            ("done", event.res_outputs_event),
            ("failed", event.res_op_failed_event),
        )
        for phase, found in phases:
            if found is not None:
                self._resource(phase, found.metadata)
        note = event.diagnostic_event
        if note is not None and note.severity == "error":
            self.errors.setdefault(note.urn or "", []).append(
                note.message.strip()
            )

    def _resource(self, phase: Any, metadata: Any) -> None:
        action = ACTIONS.get(metadata.op.value)
        if action is None or metadata.type.startswith("pulumi:"):
            return
        name = metadata.urn.rsplit("::", 1)[-1]
        step = Step(
            action,
            metadata.type,
            name,
            tuple(sorted(metadata.detailed_diff or {})),
        )
        if action != "same":
            self.steps[name] = step
            detail = (
                "; ".join(self.errors.get(metadata.urn, []))
                if phase == "failed"
                else ""
            )
            self.listen(Event(self.clock(), step, phase, detail))

    def clock(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self.start

    def changed(self) -> tuple[Step, ...]:
        """Return the steps that changed something."""
        return tuple(self.steps[name] for name in sorted(self.steps))

    def failures(self) -> list[tuple[str, str]]:
        """Return what failed, by resource; the run's own summary only when nothing else did."""
        named = [
            (u.rsplit("::", 1)[-1], "; ".join(m))
            for u, m in sorted(self.errors.items())
            if u
        ]
        return named or [("the update", m) for m in self.errors.get("", [])]


def _complete(
    outputs: dict[str, Any], begun: dict[str, str], deployment: dict[str, Any]
) -> bool:
    """Whether the last run ended well: what it began with is what it exported."""
    same = outputs.get(PLAN) == begun.get(PLAN, outputs.get(PLAN))
    return PLAN in outputs and same and not deployment.get("pending_operations")


def _outputs(deployment: dict[str, Any]) -> dict[str, Any]:
    for resource in deployment.get("resources", []):
        if resource["type"] == "pulumi:pulumi:Stack":
            found: dict[str, Any] = resource.get("outputs", {})
            return found
    return {}


def _install_plugins(home: Path) -> None:
    """Put our provider plugins where the engine looks first, without touching PATH."""
    root = Path(__file__).resolve().parents[2]
    for package, version in table("plugins.csv", "package", "version").items():
        place = (
            home
            / "plugins"
            / f"resource-{package}-v{version}"
            / f"pulumi-resource-{package}"
        )
        code = (
            f"import sys; sys.path.insert(0, {str(root)!r}); "
            f"from providers.simulated.plugin import main; main({version!r})"
        )
        place.parent.mkdir(parents=True, exist_ok=True)
        quoted = code.replace("'", "'\"'\"'")
        place.write_text(
            f"#!/bin/sh\nexec '{sys.executable}' -c '{quoted}' \"$@\"\n",
            "utf-8",
        )
        place.chmod(0o755)


def _absent(what: str, command: str) -> UsageError:
    message = f"{what} is needed to apply and was not found"
    step = (
        f"install it with: {command}   or try the simulated clouds: --simulate"
    )
    return UsageError(Problem(code="pulumi", message=message, next_step=step))

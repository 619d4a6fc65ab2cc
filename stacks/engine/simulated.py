"""The in-process engine on the simulated clouds, in simulated time.

Steps run as soon as everything they need is done, ten at a time; each takes the time of its
type on the simulated clock. The state is saved after every step.
"""

from __future__ import annotations

import heapq
from datetime import datetime, timedelta
from graphlib import TopologicalSorter
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct, convert, field, to_builtins

from planner.errors import MissingError, Problem
from planner.plan.status import ResourceRef, StackFacts, StackStatus
from providers.simulated.cloud import CloudError, SimulatedCloud, durations_s
from providers.simulated.world import load_memory, save_memory
from stacks.engine import state as states
from stacks.engine.change import DELETE_FIRST, diff_steps, is_relocated
from stacks.engine.failure import combined_error
from stacks.engine.fill import fill_references, output_at, placeholder_values
from stacks.engine.protocol import (
    EngineOutcome,
    ProgressEvent,
    ResourceStep,
)
from stacks.graph import Graph, parse_graph

if TYPE_CHECKING:
    from pathlib import Path

    from planner.plan.types import Plan, Properties
    from providers.simulated.world import World, WorldMemory
    from stacks.engine.protocol import Action, Listener

MAX_PARALLEL: Final = 10
CHANGE_ACTIONS: Final = ("create", "update", "replace")
REPLACED_PREFIX: Final = "old:"


class SimulatedEngine:
    """Applies plans to the clouds of a world; everything it knows lies in one folder."""

    def __init__(self, world: World, folder: Path) -> None:
        self.world = world
        self.folder = folder
        self.memory_path = folder / "world.json"

    def state_path(self, stack_name: str) -> Path:
        """Where the state of a stack lies."""
        return self.folder / "stacks" / f"{stack_name}.json"

    def stack_status(self, stack_name: str) -> StackStatus | None:
        """Return the stack as the state has it."""
        stack_state = states.load_state(self.state_path(stack_name))
        if stack_state is None:
            return None
        resource_rows = sorted(
            (resource_record["type"], resource_name)
            for resource_name, resource_record in stack_state[
                "resources"
            ].items()
        )
        return StackStatus(
            stack=stack_name,
            plan=stack_state["plan"],
            state_sha256=states.state_digest(stack_state),
            complete=stack_state["complete"],
            resources=tuple(
                ResourceRef(type=resource_type, name=resource_name)
                for resource_type, resource_name in resource_rows
            ),
            outputs=stack_state["outputs"],
            facts=convert(stack_state["facts"], StackFacts | None),
        )

    def preview(self, plan: Plan) -> tuple[ResourceStep, ...]:
        """Return what apply would do."""
        stack_name = plan.stack.name
        stack_state = states.load_state(
            self.state_path(stack_name)
        ) or states.empty_state(stack_name)
        resource_graph = parse_graph(plan.graph)
        return diff_steps(
            resource_graph,
            stack_state,
            self._open_cloud(
                resource_graph.region, load_memory(self.memory_path)
            ).immutable_changes,
        )

    def apply(self, plan: Plan, listener: Listener) -> EngineOutcome:
        """Make the stack what the plan says."""
        stack_name = plan.stack.name
        state_path = self.state_path(stack_name)
        with (
            states.exclusive_lock(self.memory_path, "the simulated clouds"),
            states.exclusive_lock(state_path, stack_name),
        ):
            stack_state = states.load_state(state_path) or states.empty_state(
                stack_name
            )
            world_memory = load_memory(self.memory_path)
            resource_graph = parse_graph(plan.graph)
            simulated_run = self._start_run(
                resource_graph, stack_state, world_memory, state_path, listener
            )
            planned_steps = diff_steps(
                resource_graph,
                stack_state,
                simulated_run.cloud.immutable_changes,
            )
            if (
                all(
                    planned_step.action == "same"
                    for planned_step in planned_steps
                )
                and stack_state["complete"]
            ):
                return EngineOutcome(steps=(), outputs=stack_state["outputs"])
            if not stack_state["started"]:
                stack_state["started"] = (
                    simulated_run.simulated_now().isoformat()
                )
            stack_state |= {
                "complete": False,
                "plan": plan.digest,
                "facts": to_builtins(StackFacts.of(plan)),
            }
            simulated_run.placeholders = placeholder_values(
                self.world.project,
                datetime.fromisoformat(stack_state["started"]),
                plan.shutdown.ttl,
            )
            simulated_run.run_steps(planned_steps)
            simulated_run.record_outputs(plan)
        changed_steps = tuple(
            planned_step
            for planned_step in planned_steps
            if planned_step.action != "same"
        )
        return EngineOutcome(
            steps=changed_steps,
            outputs=stack_state["outputs"],
            elapsed_s=simulated_run.elapsed_s,
        )

    def destroy(self, stack_name: str, listener: Listener) -> EngineOutcome:
        """Delete everything of the stack, dependents first."""
        state_path = self.state_path(stack_name)
        with (
            states.exclusive_lock(self.memory_path, "the simulated clouds"),
            states.exclusive_lock(state_path, stack_name),
        ):
            stack_state = states.load_state(state_path)
            if stack_state is None:
                raise MissingError(
                    Problem(
                        code="stack",
                        message=f"no stack is named {stack_name}",
                        next_step="run: tonnage status --simulate",
                    )
                )
            world_memory = load_memory(self.memory_path)
            region = (stack_state["facts"] or {}).get("region", "")
            simulated_run = self._start_run(
                Graph(provider="", region=region, resources=()),
                stack_state,
                world_memory,
                state_path,
                listener,
            )
            planned_steps = tuple(
                ResourceStep("delete", resource_record["type"], resource_name)
                for resource_name, resource_record in sorted(
                    stack_state["resources"].items()
                )
            )
            simulated_run.run_steps(planned_steps)
            save_memory(self.memory_path, world_memory)
            state_path.unlink()
        return EngineOutcome(
            steps=planned_steps, elapsed_s=simulated_run.elapsed_s
        )

    def stack_names(self) -> list[str]:
        """Return the names of all stacks."""
        return sorted(
            state_path.stem
            for state_path in (self.folder / "stacks").glob("*.json")
        )

    def _open_cloud(
        self, region: str, world_memory: WorldMemory
    ) -> SimulatedCloud:
        return SimulatedCloud(self.world, world_memory, region)

    def _start_run(
        self,
        resource_graph: Graph,
        stack_state: Properties,
        world_memory: WorldMemory,
        state_path: Path,
        listener: Listener,
    ) -> _SimulatedRun:
        def save_progress() -> None:
            stack_state["serial"] += 1
            save_memory(self.memory_path, world_memory)
            states.save_state(state_path, stack_state)

        return _SimulatedRun(
            resource_graph,
            stack_state,
            self._open_cloud(resource_graph.region, world_memory),
            listener,
            save_progress,
        )


class _SimulatedRun(Struct):
    """One run over a list of steps."""

    resource_graph: Graph
    stack_state: Properties
    cloud: SimulatedCloud
    listener: Listener
    save_progress: Any
    placeholders: dict[str, str] = field(default_factory=dict)
    elapsed_s: float = 0.0
    failures: list[tuple[ResourceStep, CloudError]] = field(
        default_factory=list
    )

    def simulated_now(self) -> datetime:
        return self.cloud.world.clock + timedelta(
            seconds=self.cloud.memory.seconds
        )

    def run_steps(self, planned_steps: tuple[ResourceStep, ...]) -> None:
        """First what must go before its replacement comes, then the new, then the old."""
        delete_first_steps = [
            planned_step
            for planned_step in planned_steps
            if planned_step.action == "replace"
            and planned_step.reasons == DELETE_FIRST
        ]
        deleted_names = {
            planned_step.name for planned_step in delete_first_steps
        }
        delete_steps = [
            planned_step
            for planned_step in planned_steps
            if planned_step.action == "delete"
        ]
        resource_records = self.stack_state["resources"]
        relocated_steps = [
            planned_step
            for planned_step in delete_steps
            if is_relocated(
                resource_records[planned_step.name], self.resource_graph
            )
        ]
        self._run_phase(
            [
                _with_action("delete", planned_step)
                for planned_step in delete_first_steps
            ]
            + relocated_steps,
            is_backwards=True,
        )
        change_steps = [
            _with_action("create", planned_step)
            if planned_step.name in deleted_names
            else planned_step
            for planned_step in planned_steps
        ]
        self._run_phase(
            [
                planned_step
                for planned_step in change_steps
                if planned_step.action in CHANGE_ACTIONS
            ],
            is_backwards=False,
        )
        remaining_steps = [
            planned_step
            for planned_step in delete_steps
            if planned_step not in relocated_steps
        ]
        self._run_phase(
            remaining_steps + self._replaced_steps(), is_backwards=True
        )

    def record_outputs(self, plan: Plan) -> None:
        resource_outputs = {
            resource_name: resource_record["outputs"]
            for resource_name, resource_record in self.stack_state[
                "resources"
            ].items()
        }
        self.stack_state["outputs"] = {
            output_name: output_at(
                resource_outputs[output_reference["$ref"]],
                output_reference["output"],
            )
            for output_name, output_reference in plan.graph.outputs.items()
        }
        self.stack_state["complete"] = True
        self.save_progress()

    def _replaced_steps(self) -> list[ResourceStep]:
        """Old objects that a replacement left behind: they go when nothing needs them."""
        resource_records = sorted(self.stack_state["resources"].items())
        return [
            ResourceStep("delete", resource_record["type"], record_name)
            for record_name, resource_record in resource_records
            if record_name.startswith(REPLACED_PREFIX)
        ]

    def _run_phase(
        self, phase_steps: list[ResourceStep], *, is_backwards: bool
    ) -> None:
        """Run steps in the order of dependencies, as parallel as that allows."""
        steps_by_name = {
            phase_step.name: phase_step for phase_step in phase_steps
        }
        sorter = TopologicalSorter(
            {
                name: self._prerequisites(
                    name, phase_steps, is_backwards=is_backwards
                )
                for name in steps_by_name
            }
        )
        sorter.prepare()
        ready_names: list[str] = []
        running_steps: list[tuple[float, str]] = []
        while True:
            ready_names = sorted([*ready_names, *sorter.get_ready()])
            while (
                ready_names
                and len(running_steps) < MAX_PARALLEL
                and not self.failures
            ):
                started_step = steps_by_name[ready_names.pop(0)]
                self._begin_step(started_step, running_steps)
            if not running_steps:
                break
            finish_s, finished_name = heapq.heappop(running_steps)
            self.cloud.memory.seconds += finish_s - self.elapsed_s
            self.elapsed_s = finish_s
            self._try_step(steps_by_name[finished_name])
            sorter.done(finished_name)
        if self.failures:
            raise combined_error(
                [
                    (
                        f"{phase_step.action} of {phase_step.name}",
                        str(cloud_error),
                    )
                    for phase_step, cloud_error in self.failures
                ]
            )

    def _begin_step(
        self, step: ResourceStep, running_steps: list[tuple[float, str]]
    ) -> None:
        """Start a step; it ends when the simulated clock says so."""
        self.listener(ProgressEvent(self.elapsed_s, step, "begin"))
        duration_s = durations_s().get(step.type, durations_s()["*"])
        heapq.heappush(running_steps, (self.elapsed_s + duration_s, step.name))

    def _prerequisites(
        self,
        step_name: str,
        phase_steps: list[ResourceStep],
        *,
        is_backwards: bool,
    ) -> set[str]:
        """Names in the same phase that must be done first."""
        phase_names = {phase_step.name for phase_step in phase_steps}
        if not is_backwards:
            needs_by_name = {
                graph_resource.name: set(graph_resource.dependencies())
                for graph_resource in self.resource_graph.resources
            }
            return needs_by_name.get(step_name, set()) & phase_names
        resource_records = self.stack_state["resources"]
        resource_name = step_name.rsplit(":", maxsplit=1)[
            -1
        ]  # old:SERIAL:NAME of what a replacement left behind
        return {
            phase_name
            for phase_name in phase_names
            if phase_name != step_name
            and resource_name
            in resource_records.get(phase_name, {}).get("needs", ())
        }

    def _try_step(self, current_step: ResourceStep) -> None:
        try:
            self._execute_step(current_step)
        except CloudError as cloud_error:
            self.failures.append((current_step, cloud_error))
            self.listener(
                ProgressEvent(
                    self.elapsed_s, current_step, "failed", str(cloud_error)
                )
            )
        else:
            self.listener(ProgressEvent(self.elapsed_s, current_step, "done"))
        self.save_progress()

    def _execute_step(self, current_step: ResourceStep) -> None:
        resource_records = self.stack_state["resources"]
        if current_step.action == "delete":
            self.cloud.delete(resource_records[current_step.name]["id"])
            del resource_records[current_step.name]
            return
        resource = next(
            resource_record
            for resource_record in self.resource_graph.resources
            if resource_record.name == current_step.name
        )
        resource_outputs = {
            record_name: resource_record["outputs"]
            for record_name, resource_record in resource_records.items()
        }
        filled_inputs = fill_references(
            resource.inputs, self.placeholders, resource_outputs
        )
        if current_step.action == "update":
            resource_id = resource_records[current_step.name]["id"]
            created_outputs = self.cloud.update(resource_id, filled_inputs)
        else:
            resource_id, created_outputs = self.cloud.create(
                current_step.type, current_step.name, filled_inputs
            )
            if current_step.action == "replace":
                resource_records[
                    f"{REPLACED_PREFIX}{self.stack_state['serial']}:{current_step.name}"
                ] = resource_records[current_step.name]
        resource_records[current_step.name] = {
            "type": current_step.type,
            "id": resource_id,
            "inputs": resource.inputs,
            "outputs": created_outputs,
            "needs": resource.dependencies(),
            "place": [self.resource_graph.provider, self.resource_graph.region],
        }


def _with_action(
    new_action: Action, planned_step: ResourceStep
) -> ResourceStep:
    return ResourceStep(
        new_action, planned_step.type, planned_step.name, planned_step.reasons
    )

"""One run of the in-process engine: steps in the order of dependencies, in simulated time.

A call is in the state before it is made. Its outcome is written with the next call, or at the end
of the phase; whatever ends the process in between, the next run looks the call up.
"""

from __future__ import annotations

import heapq
from functools import partial
from graphlib import TopologicalSorter
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct, field
from msgspec.structs import replace

from planner.plan.status import Coming
from providers.resource_type import has_same_name, has_same_parent
from providers.simulated.cloud import (
    CloudError,
    call_seconds,
    immutable_changes,
)
from stacks.engine.change import stays_itself
from stacks.engine.failure import (
    MAX_ATTEMPTS,
    RefusedCall,
    combined_error,
    is_transient,
    retry_delay_s,
)
from stacks.engine.fill import (
    built_on_digests,
    fill_references,
    fill_text,
    output_at,
)
from stacks.engine.handover import ADDRESS_DETAIL, address_step
from stacks.engine.keep import kept_keys
from stacks.engine.naming import refuse_stranger
from stacks.engine.protocol import ProgressEvent, ResourceStep
from stacks.engine.recovery import inputs_digest
from stacks.engine.rolling import is_machine_group
from stacks.engine.state import (
    REPLACED_PREFIX,
    PendingCall,
    ResourceRecord,
    resource_name,
    retained_key,
    settle,
)
from stacks.engine.stop import cancelled_error
from stacks.graph import creation_order

if TYPE_CHECKING:
    from collections.abc import Iterable

    from planner.plan.types import Properties
    from providers.simulated.shared import SharedWorld
    from stacks.engine.handover import Handover
    from stacks.engine.protocol import Listener, RunControl
    from stacks.engine.state_file import StateFile
    from stacks.graph import Graph, Resource

MAX_PARALLEL: Final = 10
CHANGE_ACTIONS: Final = ("create", "update", "replace")


class StepFailure(Struct, frozen=True):
    """A step that the cloud refused."""

    step: ResourceStep
    refusal: CloudError


class StackRun(Struct, kw_only=True):
    """A run over the steps of a stack.

    placeholders  what `${...}` in texts stands for
    elapsed_s     simulated time since the run began
    unsaved_s     the part of it that the world does not know yet
    attempts      how often a step was refused so far
    fresh_ids  objects that this apply has made, so that they hold no data yet
    handover  what has to answer before old machines go; nothing where they go without
    answering  groups of it that stand, and are waited for
    """

    resource_graph: Graph
    state_file: StateFile
    world: SharedWorld
    listener: Listener
    control: RunControl
    placeholders: dict[str, str] = field(default_factory=dict)
    elapsed_s: float = 0.0
    unsaved_s: float = 0.0
    failures: list[StepFailure] = field(default_factory=list)
    attempts: dict[str, int] = field(default_factory=dict)
    fresh_ids: set[str] = field(default_factory=set)
    handover: Handover | None = None
    answering: set[str] = field(default_factory=set)

    @property
    def records(self) -> dict[str, ResourceRecord]:
        """What stands."""
        return self.state_file.state.resources

    @property
    def graph_names(self) -> set[str]:
        """Names of what the graph has."""
        return {resource.name for resource in self.resource_graph.resources}

    @property
    def place(self) -> tuple[str, str]:
        """Cloud and region of the graph."""
        return (self.resource_graph.provider, self.resource_graph.region)

    def forget_gone(self) -> None:
        """Forget what somebody has deleted, so that it is made again."""
        state = self.state_file.state
        known_count = len(state.resources) + len(state.retained)
        for records in (state.resources, state.retained):
            for key, record in list(records.items()):
                if self.world.view(record.place[1]).read(record.id) is None:
                    del records[key]
                    step = ResourceStep(
                        "delete", record.type, resource_name(key)
                    )
                    self._tell(step, "done", "somebody has deleted it")
        if len(state.resources) + len(state.retained) < known_count:
            self.state_file.save()

    def take_back(self) -> None:
        """Take back what was left in the cloud, where the graph has it again.

        It was left for its data, or by a change that did not come to its end. What stands in its
        place is another thing, such as one of another cloud or network, and is deleted like what
        is replaced. Networks come before what is in them.
        """
        state = self.state_file.state
        graph_names = self.graph_names
        for resource in creation_order(self.resource_graph):
            present = state.resources.get(resource.name)
            is_alike = present is not None and self._is_same_thing(
                resource, present
            )
            if (
                is_alike
                and present is not None
                and self._stays_itself(resource, present)
            ):
                continue
            found = self._left_behind(resource, graph_names, is_itself=is_alike)
            if found is None:
                continue
            records, key = found
            if present is not None:
                replaced_key = (
                    f"{REPLACED_PREFIX}{state.serial}:{resource.name}"
                )
                state.resources[replaced_key] = present
            state.resources[resource.name] = records.pop(key)
            step = ResourceStep("adopt", resource.type, resource.name)
            self._tell(step, "done")

    def _is_same_thing(
        self, resource: Resource, record: ResourceRecord
    ) -> bool:
        """Whether a record is of the type, the place and the name that a resource has."""
        return (
            record.type == resource.type
            and record.place == self.place
            and has_same_name(record.type, record.inputs, resource.inputs)
            and has_same_parent(record.type, record.inputs, resource.inputs)
        )

    def _stays_itself(self, resource: Resource, record: ResourceRecord) -> bool:
        return stays_itself(
            resource,
            record,
            {name: known.outputs for name, known in self.records.items()},
            self.placeholders,
            immutable_changes,
        )

    def _left_behind(
        self, resource: Resource, graph_names: set[str], *, is_itself: bool
    ) -> tuple[dict[str, ResourceRecord], str] | None:
        """Return where an object of a resource is that was left, the latest one first.

        With `is_itself` it has to be what the resource asks for without being made anew.
        """
        state = self.state_file.state
        for records in (state.resources, state.retained):
            for key, record in reversed(records.items()):
                if (
                    key not in graph_names
                    and resource_name(key) == resource.name
                    and self._is_same_thing(resource, record)
                    and (not is_itself or self._stays_itself(resource, record))
                ):
                    return records, key
        return None

    def retain(
        self,
        name: str,
        object_id: str,
        cloud_object: Properties | None,
    ) -> None:
        """Keep an object for a resource of the graph, as if an earlier run had left it.

        Raises MissingError without the object, PolicyError for one of another type or name.
        """
        resource = next(
            resource
            for resource in self.resource_graph.resources
            if resource.name == name
        )
        refuse_stranger(
            resource,
            object_id,
            cloud_object,
            partial(fill_text, placeholders=self.placeholders),
        )
        key = retained_key(name, self.place, object_id)
        self.state_file.state.retained[key] = ResourceRecord(
            type=resource.type,
            id=object_id,
            inputs=resource.inputs,
            outputs=(cloud_object or {}).get("outputs", {}),
            needs=resource.dependencies,
            place=self.place,
            options=resource.options,
        )

    def take_back_retained(self) -> None:
        """Take everything back that was left for its data, so that it is deleted."""
        state = self.state_file.state
        for key, record in state.retained.items():
            name = resource_name(key)
            state.resources[f"{REPLACED_PREFIX}{record.id}:{name}"] = record
        state.retained = {}

    def keep_data(
        self, planned_steps: tuple[ResourceStep, ...]
    ) -> tuple[ResourceStep, ...]:
        """Return steps that keep what holds data, where they would delete it.

        What is replaced goes last too, and what it lives in stays with it.
        """
        kept = self._kept_keys(
            step.name
            for step in planned_steps
            if step.action == "delete"
            or (step.action == "replace" and not step.deletes_first)
        )
        return tuple(
            replace(step, action="keep")
            if step.action == "delete" and step.name in kept
            else step
            for step in planned_steps
        )

    def delete_all(self) -> tuple[ResourceStep, ...]:
        """Delete everything that stands, but what holds data; return the steps."""
        steps = self._deletions(sorted(self.records))
        self._run_phase(steps, is_backwards=True)
        return tuple(steps)

    def run_steps(self, planned_steps: tuple[ResourceStep, ...]) -> None:
        """Delete what must go first, make the new, then delete the old."""
        self._run_phase(
            self._deletions(
                step.name for step in planned_steps if step.deletes_first
            ),
            is_backwards=True,
        )
        self._run_phase(
            [
                replace(step, action="create") if step.deletes_first else step
                for step in planned_steps
                if step.action in CHANGE_ACTIONS
            ],
            is_backwards=False,
        )
        if self.handover is not None and self.handover.stay_s:
            stack_name = self.state_file.state.stack
            self._tell(address_step(stack_name), "awaits", ADDRESS_DETAIL)
            self._let_pass(self.handover.stay_s)
        graph_names = self.graph_names
        self._run_phase(
            self._deletions(
                key for key in sorted(self.records) if key not in graph_names
            ),
            is_backwards=True,
        )

    def release_machines(self) -> None:
        """Delete the machines that stand, and what needs them."""
        released_keys = [key for key in self.records if is_machine_group(key)]
        for key in released_keys:
            released_keys += [
                other_key
                for other_key, record in self.records.items()
                if resource_name(key) in record.needs
                and other_key not in released_keys
            ]
        self.failures.clear()
        self._run_phase(self._deletions(released_keys), is_backwards=True)

    def _deletions(self, keys: Iterable[str]) -> list[ResourceStep]:
        """Return the steps that delete records, or keep them for their data."""
        deleted_keys = [key for key in keys if key in self.records]
        kept = self._kept_keys(deleted_keys)
        return [
            ResourceStep(
                "keep" if key in kept else "delete", self.records[key].type, key
            )
            for key in deleted_keys
        ]

    def _kept_keys(self, deleted_keys: Iterable[str]) -> set[str]:
        """Return which records that would be deleted stay in the cloud for their data."""
        if "delete-data" in self.control.allow:
            return set()
        return kept_keys(
            self.records,
            [
                key
                for key in deleted_keys
                if self.records[key].id not in self.fresh_ids
            ],
            [
                (resource_name(key), record)
                for key, record in self.state_file.state.retained.items()
            ],
        )

    def _run_phase(
        self, phase_steps: list[ResourceStep], *, is_backwards: bool
    ) -> None:
        """Run steps in the order of dependencies, as parallel as that allows."""
        steps_by_name = {step.name: step for step in phase_steps}
        sorter = TopologicalSorter(
            {
                name: self._prerequisites(
                    name, steps_by_name, is_backwards=is_backwards
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
                and not self.control.stop.is_made
            ):
                started_step = steps_by_name[ready_names.pop(0)]
                self._begin_step(started_step, running_steps)
            if not running_steps:
                break
            finish_s, finished_name = heapq.heappop(running_steps)
            self._let_pass(finish_s - self.elapsed_s)
            if finished_name in self.answering:
                self.answering.remove(finished_name)
                sorter.done(finished_name)
                continue
            step = steps_by_name[finished_name]
            if not self._try_step(step, running_steps):
                continue
            if self._is_awaited(step):
                self._await_answer(step, running_steps)
            else:
                sorter.done(finished_name)
        if steps_by_name:
            self.state_file.save()
        self._raise_failures()
        if self.control.stop.is_made:
            raise cancelled_error(self.state_file.state.stack, "the run")

    def _let_pass(self, seconds: float) -> None:
        """Let simulated time pass; the world hears of it with the next call."""
        self.unsaved_s += seconds
        self.elapsed_s += seconds

    def _is_awaited(self, step: ResourceStep) -> bool:
        """Whether a step has made machines that must answer before the old ones go."""
        return (
            self.handover is not None
            and not self.failures
            and step.action in ("create", "replace")
            and step.name in self.handover.pools
        )

    def _await_answer(
        self, step: ResourceStep, running_steps: list[tuple[float, str]]
    ) -> None:
        """Keep a step open until its machines answer."""
        assert self.handover is not None  # noqa: S101 - it is awaited
        self._announce_bucket()
        self._tell(step, "awaits", self.handover.answer_detail)
        self.answering.add(step.name)
        answer_s = self.elapsed_s + self.handover.startup_s
        heapq.heappush(running_steps, (answer_s, step.name))

    def _announce_bucket(self) -> None:
        """Write down which bucket the new machines have, so that uploads find it."""
        state = self.state_file.state
        bucket = self._output(self.resource_graph.outputs["bucket"])
        assert state.facts is not None  # noqa: S101 - the run began with them
        state.coming = Coming(facts=state.facts, bucket=str(bucket))
        self.state_file.save()

    def _output(self, output_reference: Properties) -> Any:
        return output_at(
            self.records[output_reference["$ref"]].outputs,
            output_reference["output"],
        )

    def _raise_failures(self) -> None:
        if self.failures:
            raise combined_error(
                [
                    RefusedCall(
                        f"{failure.step.action} of {failure.step.name}",
                        str(failure.refusal),
                    )
                    for failure in self.failures
                ]
            )

    def _begin_step(
        self, step: ResourceStep, running_steps: list[tuple[float, str]]
    ) -> None:
        """Start a step; it ends when the simulated clock says so."""
        self._tell(step, "begin")
        duration_s = (
            0.0
            if step.action == "keep"
            else call_seconds(self.world.rules, step.type)
        )
        heapq.heappush(running_steps, (self.elapsed_s + duration_s, step.name))

    def _prerequisites(
        self,
        step_name: str,
        steps_by_name: dict[str, ResourceStep],
        *,
        is_backwards: bool,
    ) -> set[str]:
        """Names in the same phase that must be done first."""
        if not is_backwards:
            needs_by_name = {
                resource.name: set(resource.dependencies)
                for resource in self.resource_graph.resources
            }
            return needs_by_name.get(step_name, set()) & steps_by_name.keys()
        place = self.records[step_name].place
        return {
            phase_name
            for phase_name in steps_by_name
            if phase_name != step_name
            and self.records[phase_name].place == place
            and resource_name(step_name) in self.records[phase_name].needs
        }

    def _try_step(
        self, step: ResourceStep, running_steps: list[tuple[float, str]]
    ) -> bool:
        """Carry out a step; return whether it is over, or will be tried again."""
        try:
            self._execute_step(step)
        except CloudError as refusal:
            attempt = self.attempts[step.name] = (
                self.attempts.get(step.name, 0) + 1
            )
            if is_transient(str(refusal)) and attempt < MAX_ATTEMPTS:
                delay_s = retry_delay_s(
                    attempt,
                    [str(refusal)],
                    f"{self.state_file.state.stack}/{step.name}",
                )
                heapq.heappush(
                    running_steps, (self.elapsed_s + delay_s, step.name)
                )
                self._tell(step, "retry", str(refusal))
                return False
            self.failures.append(StepFailure(step, refusal))
            self._tell(step, "failed", str(refusal))
        else:
            self._tell(step, "done")
        return True

    def _execute_step(self, step: ResourceStep) -> None:
        if step.action == "keep":
            record = self.records.pop(step.name)
            key = retained_key(
                resource_name(step.name), record.place, record.id
            )
            self.state_file.state.retained[key] = record
            return
        call, filled_inputs = self._planned_call(step)
        pending = self.state_file.state.pending
        pending[step.name] = call
        self.state_file.save()
        try:
            made_record = self._make_call(call, filled_inputs)
        except CloudError:
            del pending[step.name]
            raise
        settle(self.state_file.state, replace(call, record=made_record))

    def _planned_call(self, step: ResourceStep) -> tuple[PendingCall, Any]:
        """Return the call that a step makes, and the inputs that it sends."""
        state = self.state_file.state
        token = f"{state.stack}/{step.name}/{state.serial}"
        if step.action == "delete":
            call = PendingCall(
                action="delete",
                key=step.name,
                token=token,
                record=self.records[step.name],
            )
            return call, None
        resource = next(
            resource
            for resource in self.resource_graph.resources
            if resource.name == step.name
        )
        known_outputs = {
            name: known.outputs for name, known in self.records.items()
        }
        record = ResourceRecord(
            type=resource.type,
            id="",
            inputs=resource.inputs,
            outputs={},
            needs=resource.dependencies,
            place=self.place,
            options=resource.options,
            built_on=built_on_digests(
                resource.inputs, self.placeholders, known_outputs
            ),
        )
        is_update = step.action == "update"
        if is_update:
            record = replace(record, id=self.records[step.name].id)
        filled_inputs = fill_references(
            resource.inputs, self.placeholders, known_outputs
        )
        call = PendingCall(
            action="update" if is_update else "create",
            key=step.name,
            token=token,
            record=record,
            sent_sha256=inputs_digest(filled_inputs),
        )
        return call, filled_inputs

    def _make_call(
        self, call: PendingCall, filled_inputs: Properties
    ) -> ResourceRecord:
        """Make a call and return the record as it then is. Raises CloudError."""
        record = call.record
        with self.world.call(record.place[1]) as cloud:
            cloud.memory.seconds += self.unsaved_s
            self.unsaved_s = 0.0
            if call.action == "delete":
                cloud.delete(record.id)
                return record
            if call.action == "update":
                outputs = cloud.update(record.id, filled_inputs)
                return replace(record, outputs=outputs)
            object_id, outputs = cloud.create(
                record.type, call.key, filled_inputs, call.token
            )
            self.fresh_ids.add(object_id)
            return replace(record, id=object_id, outputs=outputs)

    def record_outputs(self, graph_outputs: Properties) -> None:
        """Write down what the stack tells, and that it is complete."""
        state = self.state_file.state
        state.outputs = {
            output_name: self._output(output_reference)
            for output_name, output_reference in graph_outputs.items()
        }
        state.operation = "applied"
        state.coming = None
        state.refusals = {}
        self.state_file.save()

    def _tell(self, step: ResourceStep, phase: Any, detail: str = "") -> None:
        self.listener(ProgressEvent(self.elapsed_s, step, phase, detail))

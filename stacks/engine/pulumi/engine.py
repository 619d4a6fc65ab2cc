"""The engine that applies plans with the Pulumi program.

The backend holds the truth. What tonnage must know of a stack (by which plan, since when) is
exported by the stack itself, so it is wherever the state is.
"""

from __future__ import annotations

from contextlib import closing
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

from msgspec.json import encode as json_encode

from planner.errors import (
    CapacityError,
    MissingError,
    Problem,
)
from planner.plan.status import StackFacts, StackStatus
from providers import registry
from providers.files import MAX_DOCUMENT_BYTES, read_regular
from providers.simulated.clock import advance
from providers.simulated.shared import SharedWorld
from providers.simulated.world import default_world
from stacks.engine.backend import open_store
from stacks.engine.fill import fill_text, placeholder_values
from stacks.engine.guard import (
    account_text,
    refuse_left_disks,
    refuse_other_account,
    refuse_protected,
)
from stacks.engine.handover import machines_go
from stacks.engine.ladder import walk_down
from stacks.engine.naming import (
    move_notes,
    refuse_rename,
    refuse_stranger,
)
from stacks.engine.protocol import (
    UNCONTROLLED,
    DriftedResource,
    EngineOutcome,
    ResourceStep,
)
from stacks.engine.pulumi.attempt import bring_up
from stacks.engine.pulumi.checkpoint import folder_backend, resource_ids
from stacks.engine.pulumi.drift import face_drift, find_drift
from stacks.engine.pulumi.event import EventRecorder
from stacks.engine.pulumi.finder import CloudFinder, SimulatedFinder
from stacks.engine.pulumi.gate import open_gate
from stacks.engine.pulumi.move import is_move, take_back
from stacks.engine.pulumi.recovery import recover_stack
from stacks.engine.pulumi.rehearsal import rehearse_apply
from stacks.engine.pulumi.retention import (
    RetainedObjects,
    clear_flags,
    standing_records,
)
from stacks.engine.pulumi.session import PulumiSession
from stacks.engine.pulumi.status import (
    ACCOUNT_KEY,
    FACTS_OUTPUT,
    OPERATION_KEY,
    PLAN_OUTPUT,
    STARTED_OUTPUT,
    name_of,
    start_time,
    status_of,
    user_outputs,
)
from stacks.engine.rolling import goes_first, is_machine_group
from stacks.engine.stop import cancelled_error
from stacks.graph import parse_graph, plugin_versions

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from planner.plan.types import Plan
    from providers.base import IdentitySource
    from providers.simulated.world import World
    from stacks.engine.failure import RefusedCall
    from stacks.engine.protocol import Listener, ProgressEvent, RunControl
    from stacks.engine.pulumi.finder import ObjectFinder
    from stacks.engine.pulumi.gate import Gate
    from stacks.engine.pulumi.program import Program
    from stacks.engine.pulumi.stack import PulumiStack
    from stacks.graph import Graph


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
        self.world_source = world_source
        self.environment = environment
        self.session = PulumiSession(
            self.folder,
            backend=backend,
            world_source=world_source,
            environment=environment,
        )
        self.store = open_store(backend, self.folder)

    def simulated_world(self) -> SharedWorld | None:
        """Return the simulated clouds; none on real ones."""
        world = self._load_world()
        return SharedWorld(world, self.folder) if world else None

    def _passing(self) -> Callable[[float], object] | None:
        """Return what lets the time of simulated clouds pass; none on real ones."""
        world = self.simulated_world()
        return partial(advance, world) if world else None

    def _now(self) -> datetime:
        shared_world = self.simulated_world()
        return shared_world.now() if shared_world else datetime.now(UTC)

    def stack_names(self) -> list[str]:
        """Return the names of all stacks of the backend."""
        return self.session.stack_names()

    def stack_status(self, stack_name: str) -> StackStatus | None:
        """Return the stack as the backend has it."""
        pulumi_stack = self.session.open_stack(stack_name)
        return self._status(pulumi_stack) if pulumi_stack else None

    def _status(self, pulumi_stack: PulumiStack) -> StackStatus:
        retained = RetainedObjects(self.store, pulumi_stack.name)
        return status_of(pulumi_stack, retained.left(), retained.coming)

    def preview(self, plan: Plan) -> tuple[ResourceStep, ...]:
        """Return what apply would do, as Pulumi's own preview sees it."""
        return self._preview(plan, self.session.create_stack(plan.stack.name))

    def _preview(
        self, plan: Plan, pulumi_stack: PulumiStack
    ) -> tuple[ResourceStep, ...]:
        steps_by_name: dict[str, ResourceStep] = {}

        def record_step(progress_event: ProgressEvent) -> None:
            resource_step = progress_event.step
            if progress_event.phase != "advice" and (
                resource_step.name not in steps_by_name
                or resource_step.action != "same"
            ):
                steps_by_name[resource_step.name] = resource_step

        event_recorder = EventRecorder(record_step)
        with closing(self._program(plan, pulumi_stack, {})) as program:
            pulumi_stack.preview(program, event_recorder)
        return tuple(
            steps_by_name[resource_name]
            for resource_name in sorted(steps_by_name)
        )

    def preflight(self, plan: Plan) -> list[RefusedCall]:
        """Return what the simulated clouds would refuse, or which plug-ins of real ones lack."""
        world = self._load_world()
        if world is None:
            return self.session.refused_plugins(
                plugin_versions(plan.graph.provider)
            )
        stack_name = plan.stack.name
        pulumi_stack = self.session.open_stack(stack_name)
        return rehearse_apply(
            parse_graph(plan.graph),
            pulumi_stack.deployment if pulumi_stack else {},
            RetainedObjects(self.store, stack_name),
            SharedWorld(world, self.folder),
            placeholder_values(world, self._now(), plan.shutdown.ttl),
        )

    def apply(
        self,
        plan: Plan,
        listener: Listener,
        control: RunControl = UNCONTROLLED,
    ) -> EngineOutcome:
        """Make the stack what the plan says, or what its first fallback does that there is."""
        stack_name = plan.stack.name
        with self.store.lock(stack_name, f"tonnage apply {stack_name}"):
            self._free_dead_locks(stack_name)
            standing = self.session.open_stack(stack_name)
            if standing is not None:
                self._refuse_other_account(standing)
            stack_status = self._status(standing) if standing else None
            control.check(stack_status)
            standing_facts = stack_status.facts if stack_status else None
            refuse_protected(stack_name, standing_facts, control.allow)
            refuse_left_disks(plan, standing_facts)
            pulumi_stack = standing or self.session.create_stack(stack_name)
            self._recover(pulumi_stack, listener)
            prior_ids = resource_ids(pulumi_stack.deployment)
            return walk_down(
                plan,
                stack_status,
                self.store,
                now=self._now(),
                control=control,
                listener=listener,
                preview=lambda variant: self._preview(variant, pulumi_stack),
                attempt=lambda variant, rung: self._apply(
                    pulumi_stack,
                    variant,
                    rung,
                    listener=listener,
                    control=control,
                    prior_ids=prior_ids,
                ),
            )

    def _apply(
        self,
        pulumi_stack: PulumiStack,
        plan: Plan,
        rung: int,
        *,
        listener: Listener,
        control: RunControl,
        prior_ids: set[str],
    ) -> EngineOutcome:
        """Make the stack what the plan says, as it is on a rung.

        What an earlier rung has made holds no data yet; `prior_ids` are older.
        """
        clear_flags(pulumi_stack, prior_ids)
        take_back(pulumi_stack, (plan.graph.provider, plan.graph.region))
        face_drift(
            pulumi_stack,
            listener,
            lambda: self._preview(plan, pulumi_stack),
            control.allow,
        )
        # A run that fails exports nothing, and the same plan must be able to go on.
        pulumi_stack.set_config(
            {
                PLAN_OUTPUT: plan.digest,
                STARTED_OUTPUT: start_time(pulumi_stack, self._now()),
                ACCOUNT_KEY: account_text(
                    plan.graph.provider,
                    self._identity(plan.graph.provider).account,
                ),
                OPERATION_KEY: "applying",
            }
        )
        event_recorder = EventRecorder(listener)
        try:
            if goes_first(plan) and machines_go(
                self._preview(plan, pulumi_stack)
            ):
                self._release_machines(pulumi_stack, event_recorder, control)
            self._up(pulumi_stack, plan, rung, event_recorder, control)
        except CapacityError:
            # Half of a fleet serves nobody, and is paid for.
            if status_of(pulumi_stack).facts is None:
                self._release_machines(pulumi_stack, event_recorder, control)
            raise
        # Pulumi says of some runs that were interrupted that they succeeded.
        if control.stop.is_made and not status_of(pulumi_stack).complete:
            raise cancelled_error(plan.stack.name, "apply")
        return EngineOutcome(
            steps=event_recorder.changed_steps(),
            outputs=user_outputs(pulumi_stack.outputs),
            elapsed_s=event_recorder.elapsed_s(),
        )

    def _release_machines(
        self,
        pulumi_stack: PulumiStack,
        event_recorder: EventRecorder,
        control: RunControl,
    ) -> None:
        """Delete the machines that stand, and what needs them."""
        machine_urns = [
            state_record["urn"]
            for state_record in pulumi_stack.deployment.get("resources", ())
            if is_machine_group(name_of(state_record))
        ]
        if machine_urns:
            pulumi_stack.destroy(event_recorder, control.stop, machine_urns)

    def _up(
        self,
        pulumi_stack: PulumiStack,
        plan: Plan,
        rung: int,
        event_recorder: EventRecorder,
        control: RunControl,
    ) -> None:
        """Bring a stack up to a plan, and take back what an earlier run has left for its data."""
        stack_name = plan.stack.name
        retained = RetainedObjects(self.store, stack_name)
        if "delete-data" in control.allow:
            clear_flags(pulumi_stack)
        else:
            retained.remember(pulumi_stack.deployment)
        import_ids = retained.import_ids(
            parse_graph(plan.graph),
            pulumi_stack.deployment,
            self._text_filler(plan, start_time(pulumi_stack, self._now())),
        )
        facts = StackFacts.of(plan, rung)
        retained.announce_uploads(facts, status_of(pulumi_stack))
        # What is imported is as it was, so a second round changes what differs.
        for round_ids in [import_ids, {}] if import_ids else [{}]:
            gate = open_gate(
                plan, pulumi_stack, event_recorder, control, self._passing()
            )
            if gate is not None:
                gate.announce = partial(retained.announce, facts)
            with closing(
                self._program(plan, pulumi_stack, round_ids, rung, gate)
            ) as program:
                self._call_up(pulumi_stack, program, event_recorder, control)
            retained.settle(pulumi_stack.deployment)

    def _call_up(
        self,
        pulumi_stack: PulumiStack,
        program: Program,
        event_recorder: EventRecorder,
        control: RunControl,
    ) -> None:
        bring_up(
            pulumi_stack,
            program,
            event_recorder,
            stop=control.stop,
            pause=self._passing() or control.stop.wait,
        )

    def destroy(
        self,
        stack_name: str,
        listener: Listener,
        control: RunControl = UNCONTROLLED,
    ) -> EngineOutcome:
        """Delete everything of the stack, and the stack itself."""
        with self.store.lock(stack_name, f"tonnage destroy {stack_name}"):
            self._free_dead_locks(stack_name)
            pulumi_stack = self._present_stack(stack_name)
            self._recover(pulumi_stack, listener)
            stack_status = status_of(pulumi_stack)
            control.check(stack_status)
            refuse_protected(stack_name, stack_status.facts, control.allow)
            retained = RetainedObjects(self.store, stack_name)
            pulumi_stack.set_config({OPERATION_KEY: "destroying"})
            kept_names: list[str] = []
            if "delete-data" in control.allow:
                clear_flags(pulumi_stack)
            else:
                kept_names = retained.remember(pulumi_stack.deployment)
            event_recorder = EventRecorder(listener, kept_names)
            self._call_destroy(pulumi_stack, event_recorder, control)
            retained.settle(pulumi_stack.deployment, "destroyed")
            if "delete-data" in control.allow:
                self._delete_retained(
                    pulumi_stack, retained, event_recorder, control
                )
            if retained.records:
                pulumi_stack.set_config({OPERATION_KEY: "destroyed"})
            else:
                pulumi_stack.remove()
        return EngineOutcome(
            steps=event_recorder.changed_steps(),
            elapsed_s=event_recorder.elapsed_s(),
        )

    def _call_destroy(
        self,
        pulumi_stack: PulumiStack,
        event_recorder: EventRecorder,
        control: RunControl,
    ) -> None:
        pulumi_stack.destroy(event_recorder, control.stop)
        # Pulumi says of some runs that were interrupted that they succeeded.
        if control.stop.is_made and status_of(pulumi_stack).resources:
            raise cancelled_error(pulumi_stack.name, "destroy")

    def _delete_retained(
        self,
        pulumi_stack: PulumiStack,
        retained: RetainedObjects,
        event_recorder: EventRecorder,
        control: RunControl,
    ) -> None:
        """Import what earlier runs have left for its data, and delete it."""
        from stacks.engine.pulumi.program import Program

        for graph, import_ids in retained.left_graphs():
            program = Program(
                graph,
                lambda text: text,
                _plugin_version(graph),
                {},
                import_ids,
            )
            with closing(program):
                self._call_up(pulumi_stack, program, event_recorder, control)
            clear_flags(pulumi_stack)
            self._call_destroy(pulumi_stack, event_recorder, control)
            retained.forget(import_ids.values())

    def recover(self, stack_name: str, listener: Listener) -> EngineOutcome:
        """Look up every call whose end is not known."""
        with self.store.lock(stack_name, f"tonnage recover {stack_name}"):
            self._free_dead_locks(stack_name)
            pulumi_stack = self._present_stack(stack_name)
            found_steps = self._recover(pulumi_stack, listener)
        return EngineOutcome(steps=found_steps)

    def drift(self, stack_name: str) -> tuple[DriftedResource, ...]:
        """Compare the stack with the clouds, as Pulumi's own refresh sees them."""
        return find_drift(self._present_stack(stack_name))

    def rename(self, stack_name: str, new_name: str) -> None:
        """Let a stack have another name."""
        with (
            self.store.lock(stack_name, f"tonnage rename {stack_name}"),
            self.store.lock(new_name, f"tonnage rename {stack_name}"),
        ):
            pulumi_stack = self._present_stack(stack_name)
            refuse_rename(
                stack_name,
                new_name,
                is_taken=new_name in self.session.stack_names(),
                pending=status_of(pulumi_stack).pending,
            )
            pulumi_stack.rename(new_name)
            RetainedObjects(self.store, stack_name).rename(new_name)
            move_notes(self.store, stack_name, new_name)
            shared_world = self.simulated_world()
            if shared_world is not None:
                shared_world.rename(stack_name, new_name)

    def take_over(self, plan: Plan, resource_name: str, object_id: str) -> None:
        """Let the next apply take an object as a resource of a plan."""
        stack_name = plan.stack.name
        graph = parse_graph(plan.graph)
        resource = next(
            resource
            for resource in graph.resources
            if resource.name == resource_name
        )
        text_filler = self._text_filler(plan, self._now().isoformat())
        shared_world = self.simulated_world()
        if shared_world is not None:
            found = shared_world.view().read(object_id)
            refuse_stranger(resource, object_id, found, text_filler)
        with self.store.lock(stack_name, f"tonnage import {stack_name}"):
            RetainedObjects(self.store, stack_name).take_over(
                resource,
                object_id,
                (graph.provider, graph.region),
                text_filler,
            )

    def object_ids(self, stack_name: str) -> set[str]:
        """Return the ids of everything that is known of a stack."""
        pulumi_stack = self.session.open_stack(stack_name)
        retained = RetainedObjects(self.store, stack_name)
        return {
            *(resource_ids(pulumi_stack.deployment) if pulumi_stack else ()),
            *retained.records,
        }

    def unlock(self, stack_name: str) -> bool:
        """Free the locks that a dead run has left: ours, and Pulumi's."""
        was_locked = self.store.unlock(stack_name)
        return self._free_dead_locks(stack_name) or was_locked

    def _free_dead_locks(self, stack_name: str) -> bool:
        """Free what a dead run of Pulumi has locked; tell whether there was anything."""
        files = folder_backend(self.session.backend)
        return bool(files and files.free_dead_locks(stack_name))

    def _recover(
        self, pulumi_stack: PulumiStack, listener: Listener
    ) -> tuple[ResourceStep, ...]:
        def finder_of(place: tuple[str, str]) -> ObjectFinder:
            if self.world_source is None:
                variables = self._id_variables(*place)
                return CloudFinder(place[0], variables)
            return SimulatedFinder(SharedWorld(default_world(), self.folder))

        return recover_stack(pulumi_stack, finder_of, listener)

    def _id_variables(self, cloud: str, region: str) -> dict[str, str]:
        """Return what ids name beside inputs: whose account it is."""
        identity = self._identity(cloud)
        return {
            "project": identity.project,
            "region": region,
            "subscription": identity.account,
            "account": identity.account,
        }

    def _present_stack(self, stack_name: str) -> PulumiStack:
        pulumi_stack = self.session.open_stack(stack_name)
        if pulumi_stack is None:
            raise MissingError(
                Problem(
                    code="stack",
                    message=f"no stack is named {stack_name}",
                    next_step="see all stacks: tonnage list",
                )
            )
        self._refuse_other_account(pulumi_stack)
        return pulumi_stack

    def _refuse_other_account(self, pulumi_stack: PulumiStack) -> None:
        refuse_other_account(
            pulumi_stack.name,
            status_of(pulumi_stack).account,
            lambda provider: self._identity(provider).account,
        )

    def _program(
        self,
        plan: Plan,
        pulumi_stack: PulumiStack,
        import_ids: Mapping[str, str],
        rung: int = 0,
        gate: Gate | None = None,
    ) -> Program:
        """Return the program that registers what a plan asks for. It must be closed."""
        self.session.automation()
        from stacks.engine.pulumi.program import Program

        started_at = start_time(pulumi_stack, self._now())
        resource_graph = parse_graph(plan.graph)
        place = (resource_graph.provider, resource_graph.region)
        program = Program(
            resource_graph,
            self._text_filler(plan, started_at),
            _plugin_version(resource_graph),
            {
                PLAN_OUTPUT: plan.digest,
                STARTED_OUTPUT: started_at,
                FACTS_OUTPUT: json_encode(
                    StackFacts.of(plan, rung), order="sorted"
                ).decode(),
            },
            import_ids,
            standing={
                name: record.inputs
                for name, record in standing_records(
                    pulumi_stack.deployment, place
                ).items()
            },
            is_move=is_move(pulumi_stack.deployment, place),
            gate=gate,
        )
        program.retained_names = RetainedObjects(
            self.store, pulumi_stack.name
        ).kept_names(resource_graph, pulumi_stack.deployment)
        return program

    def _text_filler(self, plan: Plan, started_at: str) -> Callable[[str], str]:
        placeholders = placeholder_values(
            self._identity(plan.graph.provider),
            datetime.fromisoformat(started_at),
            plan.shutdown.ttl,
        )
        return partial(fill_text, placeholders=placeholders)

    def _identity(self, provider: str) -> IdentitySource:
        """Return who is signed in to a cloud."""
        return self._load_world() or registry.provider(provider).identity(
            self.environment
        )

    def _load_world(self) -> World | None:
        if self.world_source is None:
            return None
        if self.world_source == "default":
            return default_world()
        from providers.simulated.world_file import read_world

        return read_world(
            read_regular(self.world_source, MAX_DOCUMENT_BYTES),
            self.world_source,
        )


def _plugin_version(resource_graph: Graph) -> str:
    return plugin_versions(resource_graph.provider).popitem()[1]

"""The in-process engine on the simulated clouds, in simulated time."""

from __future__ import annotations

from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING

from planner.errors import CapacityError, MissingError, Problem
from planner.plan.status import ResourceRef, StackFacts, StackStatus
from planner.suggest import did_you_mean
from providers.simulated.cloud import immutable_changes
from providers.simulated.shared import SharedWorld
from stacks.engine.change import diff_steps
from stacks.engine.drift import find_drift, heed_drift
from stacks.engine.fill import placeholder_values
from stacks.engine.guard import (
    account_text,
    refuse_left_disks,
    refuse_other_account,
    refuse_protected,
)
from stacks.engine.handover import handover_of, machines_go
from stacks.engine.keep import held_gib, refuse_replaced_data
from stacks.engine.ladder import walk_down
from stacks.engine.naming import move_notes, refuse_rename
from stacks.engine.protocol import UNCONTROLLED, EngineOutcome
from stacks.engine.recovery import recover
from stacks.engine.rehearsal import rehearse
from stacks.engine.rolling import goes_first
from stacks.engine.run import StackRun
from stacks.engine.state import state_digest
from stacks.engine.state_file import StateFile
from stacks.engine.store import FolderStore
from stacks.graph import Graph, parse_graph

if TYPE_CHECKING:
    from collections.abc import Iterator
    from decimal import Decimal
    from pathlib import Path

    from planner.plan.types import Plan
    from providers.simulated.world import World
    from stacks.engine.failure import RefusedCall
    from stacks.engine.protocol import (
        DriftedResource,
        Listener,
        ResourceStep,
        RunControl,
    )
    from stacks.engine.state import StackState
    from stacks.engine.store import StateStore


class SimulatedEngine:
    """Applies plans to the clouds of a world.

    The world lies in a folder, with the states of the stacks, unless `store` keeps them elsewhere.
    """

    def __init__(
        self, world: World, folder: Path, store: StateStore | None = None
    ) -> None:
        self.world = world
        self.folder = folder
        self.shared_world = SharedWorld(world, folder)
        self.store = store or FolderStore(folder / "stacks")

    def simulated_world(self) -> SharedWorld | None:
        """Return the simulated clouds."""
        return self.shared_world

    def stack_names(self) -> list[str]:
        """Return the names of all stacks."""
        return self.store.stack_names()

    def stack_status(self, stack_name: str) -> StackStatus | None:
        """Return the stack as the state has it."""
        return _status(StateFile(self.store, stack_name))

    def preview(self, plan: Plan) -> tuple[ResourceStep, ...]:
        """Return what apply would do."""
        return self._planned_steps(self._considered_run(plan))

    def preflight(self, plan: Plan) -> list[RefusedCall]:
        """Return what the clouds would refuse of an apply."""
        run = self._considered_run(plan)
        return rehearse(
            run.resource_graph,
            self._planned_steps(run),
            run.records,
            self.shared_world,
            run.placeholders,
        )

    def _considered_run(self, plan: Plan) -> StackRun:
        """Return a run that knows what an apply would begin with, and is not carried out."""
        run = self._open_run(plan.stack.name, parse_graph(plan.graph))
        run.placeholders = self._placeholders(
            run.state_file.state, plan.shutdown.ttl
        )
        run.take_back()
        return run

    def apply(
        self,
        plan: Plan,
        listener: Listener,
        control: RunControl = UNCONTROLLED,
    ) -> EngineOutcome:
        """Make the stack what the plan says, or what its first fallback does that there is."""
        stack_name = plan.stack.name
        with self.store.lock(stack_name, f"tonnage apply {stack_name}"):
            stack_status = self.stack_status(stack_name)
            control.check(stack_status)
            standing_facts = stack_status.facts if stack_status else None
            refuse_protected(stack_name, standing_facts, control.allow)
            refuse_left_disks(plan, standing_facts)
            fresh_ids: set[str] = set()
            return walk_down(
                plan,
                stack_status,
                self.store,
                now=self.shared_world.now(),
                control=control,
                listener=listener,
                preview=self.preview,
                attempt=lambda variant, rung: self._apply(
                    self._open_run(
                        stack_name,
                        parse_graph(variant.graph),
                        listener,
                        control,
                        fresh_ids,
                    ),
                    variant,
                    rung,
                ),
            )

    def _apply(self, run: StackRun, plan: Plan, rung: int) -> EngineOutcome:
        """Make the stack what the plan says, as it is on a rung."""
        state = run.state_file.state
        self._refuse_other_account(state)
        found_steps = recover(run.state_file, self.shared_world, run.listener)
        run.forget_gone()
        run.placeholders = self._placeholders(state, plan.shutdown.ttl)
        run.take_back()
        planned_steps = heed_drift(
            self._planned_steps(run),
            find_drift(run.records, self.shared_world, run.placeholders),
            run.control.allow,
        )
        changed_steps = tuple(
            step for step in planned_steps if step.action != "same"
        )
        facts = StackFacts.of(plan, rung)
        if not changed_steps and state.complete:
            # Some of a plan is in no resource, such as whether its data are protected.
            if state.facts != facts:
                state.plan, state.facts = plan.digest, facts
                run.state_file.save()
            return EngineOutcome(steps=found_steps, outputs=state.outputs)
        if "delete-data" not in run.control.allow:
            # What an earlier rung has made is empty.
            refuse_replaced_data(
                step
                for step in planned_steps
                if step.name not in run.records
                or run.records[step.name].id not in run.fresh_ids
            )
        if not state.started:
            state.started = self.shared_world.now().isoformat()
        state.account = account_text(plan.graph.provider, self.world.account)
        state.operation = "applying"
        state.plan = plan.digest
        state.facts = facts
        run.state_file.save()
        try:
            if machines_go(planned_steps):
                if goes_first(plan):
                    run.release_machines()
                    planned_steps = self._planned_steps(run)
                moves = any(
                    record.place != run.place for record in run.records.values()
                )
                run.handover = handover_of(plan, moves=moves)
            run.run_steps(planned_steps)
        except CapacityError:
            # Half of a fleet serves nobody, and is paid for.
            if not state.outputs:
                run.release_machines()
            raise
        run.record_outputs(plan.graph.outputs)
        return EngineOutcome(
            steps=changed_steps,
            outputs=state.outputs,
            elapsed_s=run.elapsed_s,
        )

    def destroy(
        self,
        stack_name: str,
        listener: Listener,
        control: RunControl = UNCONTROLLED,
    ) -> EngineOutcome:
        """Delete everything of the stack, dependents first."""
        nothing = Graph(provider="", region="", resources=())
        with self._locked_run(stack_name, nothing, listener, control) as run:
            state_file = run.state_file
            state = state_file.state
            control.check(_status(state_file))
            if not state_file.exists:
                raise _missing_error(stack_name, self.stack_names())
            self._refuse_other_account(state)
            refuse_protected(stack_name, state.facts, control.allow)
            recover(state_file, self.shared_world, listener)
            state.operation = "destroying"
            # Nothing comes any more that an upload could be for.
            state.coming = None
            if "delete-data" in control.allow:
                run.take_back_retained()
            state_file.save()
            planned_steps = run.delete_all()
            if state.retained:
                state.operation = "destroyed"
                state_file.save()
            else:
                state_file.delete()
        return EngineOutcome(steps=planned_steps, elapsed_s=run.elapsed_s)

    def recover(self, stack_name: str, listener: Listener) -> EngineOutcome:
        """Look up every call whose end is not known."""
        nothing = Graph(provider="", region="", resources=())
        with self._locked_run(
            stack_name, nothing, listener, UNCONTROLLED
        ) as run:
            if not run.state_file.exists:
                raise _missing_error(stack_name, self.stack_names())
            self._refuse_other_account(run.state_file.state)
            found_steps = recover(run.state_file, self.shared_world, listener)
        return EngineOutcome(
            steps=found_steps, outputs=run.state_file.state.outputs
        )

    def drift(self, stack_name: str) -> tuple[DriftedResource, ...]:
        """Compare the stack with the clouds."""
        nothing = Graph(provider="", region="", resources=())
        run = self._open_run(stack_name, nothing)
        if not run.state_file.exists:
            raise _missing_error(stack_name, self.stack_names())
        state = run.state_file.state
        self._refuse_other_account(state)
        ttl_s = state.facts.shutdown.ttl if state.facts else None
        return find_drift(
            run.records, self.shared_world, self._placeholders(state, ttl_s)
        )

    def _refuse_other_account(self, state: StackState) -> None:
        refuse_other_account(
            state.stack, state.account, lambda _: self.world.account
        )

    def _placeholders(
        self, state: StackState, ttl_s: Decimal | None
    ) -> dict[str, str]:
        """Return what `${...}` in texts stands for: dates count from the first apply."""
        started_at = (
            datetime.fromisoformat(state.started)
            if state.started
            else self.shared_world.now()
        )
        return placeholder_values(self.world, started_at, ttl_s)

    def rename(self, stack_name: str, new_name: str) -> None:
        """Let a stack have another name."""
        with (
            self.store.lock(stack_name, f"tonnage rename {stack_name}"),
            self.store.lock(new_name, f"tonnage rename {stack_name}"),
        ):
            old_file = StateFile(self.store, stack_name)
            new_file = StateFile(self.store, new_name)
            if not old_file.exists:
                raise _missing_error(stack_name, self.stack_names())
            refuse_rename(
                stack_name,
                new_name,
                is_taken=new_file.exists,
                pending=old_file.state.pending,
            )
            new_file.state = old_file.state
            new_file.state.stack = new_name
            # Two files of one stack are found; a stack without a file is lost.
            new_file.save()
            move_notes(self.store, stack_name, new_name)
            self.store.delete(stack_name)
            self.shared_world.rename(stack_name, new_name)

    def take_over(self, plan: Plan, resource_name: str, object_id: str) -> None:
        """Let the next apply take an object as a resource of a plan."""
        with self._locked_run(
            plan.stack.name,
            parse_graph(plan.graph),
            lambda _: None,
            UNCONTROLLED,
        ) as run:
            run.placeholders = self._placeholders(run.state_file.state, None)
            cloud_object = self.shared_world.view().read(object_id)
            run.retain(resource_name, object_id, cloud_object)
            run.state_file.save()

    def object_ids(self, stack_name: str) -> set[str]:
        """Return the ids of everything that is known of a stack."""
        state = StateFile(self.store, stack_name).state
        return {
            record.id
            for record in (
                *state.resources.values(),
                *state.retained.values(),
                *(call.record for call in state.pending.values()),
            )
        }

    def unlock(self, stack_name: str) -> bool:
        """Free the lock that a dead run has left."""
        return self.store.unlock(stack_name)

    def _planned_steps(self, run: StackRun) -> tuple[ResourceStep, ...]:
        steps = diff_steps(
            run.resource_graph,
            run.records,
            immutable_changes,
            run.placeholders,
        )
        return run.keep_data(steps)

    @contextmanager
    def _locked_run(
        self,
        stack_name: str,
        resource_graph: Graph,
        listener: Listener,
        control: RunControl,
    ) -> Iterator[StackRun]:
        verb = "apply" if resource_graph.provider else "destroy"
        with self.store.lock(stack_name, f"tonnage {verb} {stack_name}"):
            yield self._open_run(stack_name, resource_graph, listener, control)

    def _open_run(
        self,
        stack_name: str,
        resource_graph: Graph,
        listener: Listener = lambda _: None,
        control: RunControl = UNCONTROLLED,
        fresh_ids: set[str] | None = None,
    ) -> StackRun:
        return StackRun(
            fresh_ids=fresh_ids if fresh_ids is not None else set(),
            resource_graph=resource_graph,
            state_file=StateFile(self.store, stack_name),
            world=self.shared_world,
            listener=listener,
            control=control,
        )


def _status(state_file: StateFile) -> StackStatus | None:
    if not state_file.exists:
        return None
    state = state_file.state
    resource_rows = sorted(
        (record.type, name, held_gib(record.type, record.inputs))
        for name, record in state.resources.items()
    )
    retained_rows = sorted(
        (
            record.type,
            str(record.outputs.get("name") or record.id),
            held_gib(record.type, record.inputs),
        )
        for record in state.retained.values()
    )
    return StackStatus(
        stack=state.stack,
        started=state.started,
        account=state.account,
        plan=state.plan,
        state_sha256=state_digest(state),
        complete=state.complete,
        operation=state.operation,
        resources=tuple(
            ResourceRef(type=resource_type, name=name, size_gib=size_gib)
            for resource_type, name, size_gib in resource_rows
        ),
        retained=tuple(
            ResourceRef(type=resource_type, name=name, size_gib=size_gib)
            for resource_type, name, size_gib in retained_rows
        ),
        pending=tuple(sorted(state.pending)),
        outputs=state.outputs,
        facts=state.facts,
        coming=state.coming,
    )


def _missing_error(stack_name: str, stack_names: list[str]) -> MissingError:
    return MissingError(
        Problem(
            code="stack",
            message=f"no stack is named {stack_name}",
            next_step=did_you_mean(
                stack_name,
                stack_names,
                otherwise="see all stacks: tonnage list --simulate",
            ),
        )
    )

"""Holds an update back until new machines answer.

Pulumi deletes what is replaced or no longer asked for when its program has ended. So the program
waits, and where it fails, nothing is deleted.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from itertools import chain
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from planner.errors import (
    MissingError,
    Problem,
    ResourceError,
    TonnageError,
)
from stacks.engine.handover import (
    ADDRESS_DETAIL,
    WORKING,
    address_step,
    handover_of,
)
from stacks.engine.protocol import ProgressEvent, ResourceStep
from stacks.engine.pulumi.checkpoint import place_of
from stacks.engine.pulumi.move import SUPERSEDED_FLAG, is_move
from stacks.engine.pulumi.status import name_of
from stacks.engine.rolling import GROUP_SUFFIX, is_machine_group
from stacks.engine.stop import WAIT_STEP_S, cancelled_error
from stacks.graph import parse_graph

if TYPE_CHECKING:
    from collections.abc import Callable

    from planner.plan.types import Plan, Properties
    from stacks.engine.handover import Handover
    from stacks.engine.protocol import Lives, RunControl
    from stacks.engine.pulumi.event import EventRecorder
    from stacks.engine.pulumi.stack import PulumiStack
    from stacks.engine.stop import StopRequest
    from stacks.graph import Graph

# Agents tell at once when their work begins.
LOOK_S: Final = 10.0


class StandingGroups(Struct, frozen=True, kw_only=True):
    """The groups of machines that stand before an update.

    ids     of those in the place of the update, by the name of the resource
    leaves  whether one of them goes whatever the update finds
    """

    ids: dict[str, str]
    leaves: bool

    @classmethod
    def of(cls, deployment: Properties, graph: Graph) -> StandingGroups:
        """Read them off a checkpoint."""
        place = (graph.provider, graph.region)
        wanted = {resource.name for resource in graph.resources}
        records = [
            record
            for record in deployment.get("resources") or ()
            if is_machine_group(name_of(record)) and "id" in record
        ]
        staying = {
            name_of(record): str(record["id"])
            for record in records
            if name_of(record) in wanted
            and not record.get(SUPERSEDED_FLAG)
            and place_of(deployment, record) == place
        }
        return cls(ids=staying, leaves=len(staying) < len(records))


def _tell_nobody(bucket: str) -> None:
    """Tell nobody of a bucket."""


class Gate(Struct, kw_only=True):
    """What the program of an update asks before it goes on.

    simulate  lets seconds pass on simulated clouds; none on real ones
    lives     returns what the machines say that live in the bucket of a name
    announce  is told the name of the bucket in which new machines wait for uploads
    before    handles of the machines that lived before the update
    error     why the gate did not open
    is_needed  whether something old goes
    """

    stack_name: str
    handover: Handover
    standing: StandingGroups
    recorder: EventRecorder
    stop: StopRequest
    lives: Callable[[str], Lives]
    simulate: Callable[[float], object] | None
    announce: Callable[[str], object] = _tell_nobody
    before: frozenset[str] = frozenset()
    error: TonnageError | None = None
    is_needed: bool = False

    async def await_answer(
        self, resource_type: str, group: str, group_id: str, bucket: str
    ) -> None:
        """Wait until a group answers, where an old one goes. Raises when it does not in time."""
        known_id = self.standing.ids.get(group)
        is_new = group_id != known_id
        if not (self.standing.leaves or (known_id is not None and is_new)):
            return
        self.is_needed = True
        step = ResourceStep("create", resource_type, group)
        self.announce(bucket)
        self._tell(step, self.handover.answer_detail)
        if self.simulate is not None:
            self.simulate(self.handover.startup_s if is_new else 0.0)
            return
        before = self.before if is_new else frozenset()
        began_s = time.monotonic()
        while True:
            lives = await asyncio.to_thread(self._look, bucket)
            if self.handover.answers(group, lives, before):
                return
            if time.monotonic() - began_s >= self.handover.limit_s:
                raise self._fail(_silent(self.stack_name, group, lives))
            await self._sleep()

    async def await_clients(self) -> None:
        """Let the old machines answer for as long as clients need to learn a new address."""
        stay_s = self.handover.stay_s
        if not (self.is_needed and stay_s):
            return
        self._tell(address_step(self.stack_name), ADDRESS_DETAIL)
        if self.simulate is not None:
            self.simulate(stay_s)
            return
        began_s = time.monotonic()
        while time.monotonic() - began_s < stay_s:
            await self._sleep()

    async def _sleep(self) -> None:
        """Sleep between two looks. Raises CancelledError when the run was asked to end."""
        woken_s = time.monotonic() + LOOK_S
        while time.monotonic() < woken_s:
            await asyncio.sleep(WAIT_STEP_S)
            if self.stop.is_made:
                raise self._fail(cancelled_error(self.stack_name, "apply"))

    def _look(self, bucket: str) -> Lives:
        """Return who lives. What may be another answer at the next look is no error."""
        try:
            return self.lives(bucket)
        except (MissingError, ResourceError):
            return {}
        except TonnageError as error:
            raise self._fail(error) from error

    def _fail(self, error: TonnageError) -> TonnageError:
        self.error = error
        return error

    def _tell(self, step: ResourceStep, detail: str) -> None:
        self.recorder.listener(
            ProgressEvent(self.recorder.elapsed_s(), step, "awaits", detail)
        )


def open_gate(
    plan: Plan,
    pulumi_stack: PulumiStack,
    recorder: EventRecorder,
    control: RunControl,
    simulate: Callable[[float], object] | None,
) -> Gate | None:
    """Return the gate of an update; nothing where old machines go without new ones."""
    deployment = pulumi_stack.deployment
    graph = parse_graph(plan.graph)
    moves = is_move(deployment, (graph.provider, graph.region))
    handover = handover_of(plan, moves=moves)
    if handover is None:
        return None

    def lives(bucket: str) -> Lives:
        return control.lives(graph.provider, bucket, graph.region)

    before: frozenset[str] = frozenset()
    bucket = pulumi_stack.outputs.get("bucket")
    if bucket and simulate is None and not moves:
        # Whoever may not see them may still change what has nothing to do with them.
        with suppress(TonnageError):
            before = frozenset(chain(*lives(str(bucket)).values()))
    return Gate(
        stack_name=plan.stack.name,
        handover=handover,
        standing=StandingGroups.of(deployment, graph),
        recorder=recorder,
        stop=control.stop,
        lives=lives,
        simulate=simulate,
        before=before,
    )


def _silent(stack_name: str, group: str, lives: Lives) -> ResourceError:
    """Return what is said of machines that do not answer."""
    name = group.removesuffix(GROUP_SUFFIX)
    phases = list(lives.get(name, {}).values())
    return ResourceError(
        Problem(
            code="answers",
            message=f"the new machines of {name} do not answer, so the old ones stay",
            cause=f"{len(phases)} of them live, {phases.count(WORKING)} work; "
            "both fleets are paid for",
            next_step=f"see why: tonnage logs {stack_name}; then apply again to go on, or the "
            "plan before to go back",
        )
    )

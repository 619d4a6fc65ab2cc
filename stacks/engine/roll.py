"""A roll is watched until each machine has the new template; one that fails is taken back."""

from __future__ import annotations

import time
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from planner import figures
from planner.cost.lifetime import release_time
from planner.errors import (
    MissingError,
    Problem,
    ResourceError,
    StaleError,
    TonnageError,
)
from providers.simulated.clock import advance
from stacks.engine.handover import WORKING
from stacks.engine.kept_plan import KeptPlan, Roll, keep_plan, read_kept
from stacks.engine.protocol import ProgressEvent, ResourceStep
from stacks.engine.rolling import GROUP_SUFFIX, is_machine_group
from stacks.engine.stop import cancelled_error

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from planner.plan.change import Changes, Rolling
    from planner.plan.status import StackStatus
    from planner.plan.types import Plan, Pool
    from providers.simulated.shared import SharedWorld
    from stacks.engine.protocol import (
        EngineOutcome,
        Listener,
        Lives,
        RunControl,
        StackEngine,
    )
    from stacks.operate.machine import Trouble

LOOK_S: Final = 15.0


class RollError(Exception):
    """A roll whose new machines are not well, and why."""


def begin_roll(
    engine: StackEngine,
    plan: Plan,
    status: StackStatus | None,
    changes: Changes | None,
    control: RunControl,
) -> Roll | None:
    """Return the roll that an apply is going to begin, or that a run before has begun.

    Nothing where no running machine of a service gets a new template, and where it is not known
    which ones run: whoever may not read the bucket may still apply.
    """
    if status is None or changes is None:
        return None
    kept = read_kept(engine.store, plan.stack.name)
    begun = kept.roll if kept is not None else None
    if begun is not None and begun.plan == plan.digest == status.plan:
        return begun
    pools = tuple(
        rolling
        for rolling in changes.rolling
        if rolling.peak_share is not None and (rolling.at_once or rolling.surge)
    )
    if not pools:
        return None
    world = engine.simulated_world()
    old: dict[str, tuple[str, ...]] = {}
    if world is None:
        with suppress(TonnageError):
            old = _living(plan, pools, status, control)
        if not old:
            return None
    roll = Roll(
        plan=plan.digest,
        began=world.now() if world else datetime.now(UTC),
        pools=pools,
        old=old,
    )
    if kept is not None and kept.is_before(status.plan):
        keep_plan(engine.store, replace(kept, roll=roll))
    return roll


def _living(
    plan: Plan,
    pools: Sequence[Rolling],
    status: StackStatus,
    control: RunControl,
) -> dict[str, tuple[str, ...]]:
    """Return the machines that live in the groups of pools."""
    lives = control.lives(
        plan.graph.provider,
        str(status.outputs.get("bucket", "")),
        plan.graph.region,
    )
    groups = _groups(plan, pools)
    return {
        group: tuple(sorted(handles))
        for group, handles in lives.items()
        if group in groups and handles
    }


def _groups(plan: Plan, pools: Sequence[Rolling]) -> dict[str, Pool]:
    """Return the pools of the plan that roll, by the names of their scaling groups."""
    rolling_names = {rolling.pool for rolling in pools}
    return {
        resource.name.removesuffix(GROUP_SUFFIX): pool
        for resource in plan.graph.resources
        if is_machine_group(resource.name)
        for pool in plan.solution.pools
        if pool.name in rolling_names
        and resource.name.startswith(f"{pool.name}-")
    }


def apply_and_watch(
    engine: StackEngine,
    plan: Plan,
    roll: Roll | None,
    listener: Listener,
    control: RunControl,
) -> EngineOutcome:
    """Apply a plan, and wait until its template has reached the machines that run.

    Where the new ones are not well, the plan before is applied again. Raises ResourceError then,
    and every error of an apply.
    """
    stack_name = plan.stack.name
    outcome = engine.apply(plan, listener, control)
    if roll is not None:
        watch = RollWatch(
            plan=plan, roll=roll, listener=listener, control=control
        )
        world = engine.simulated_world()
        try:
            if world is None:
                watch.await_machines(outcome)
            else:
                watch.simulate(world)
        except RollError as failure:
            raise watch.gone_back(engine, failure) from failure
    status = engine.stack_status(stack_name)
    if status is not None and status.plan == plan.digest and status.complete:
        rung = status.facts.rung if status.facts else 0
        keep_plan(engine.store, KeptPlan(plan=plan, rung=rung))
    return outcome


class RollWatch(Struct, kw_only=True):
    """Watches the machines of a roll."""

    plan: Plan
    roll: Roll
    listener: Listener
    control: RunControl
    told: str = ""

    @property
    def limit_s(self) -> float:
        """Seconds after which a machine that was begun is given up, if it does not answer."""
        return max(
            float(pool.startup_s) for pool in self._groups().values()
        ) + float(release_time("start_limit_s"))

    def _groups(self) -> dict[str, Pool]:
        return _groups(self.plan, self.roll.pools)

    def simulate(self, world: SharedWorld) -> None:
        """Let the time pass that a roll takes. Raises RollError where a group is silent.

        time = start-up * ceil(machines / machines that are new at a time)
        """
        silent = world.silent_groups(self.plan.stack.name)
        startups = {
            pool.name: float(pool.startup_s) for pool in self._groups().values()
        }
        for group in self._groups():
            if f"{group}{GROUP_SUFFIX}" in silent:
                advance(world, self.limit_s)
                raise RollError(self._no_answer())
        roll_s = max(
            startups[rolling.pool]
            * -(-rolling.nodes // max(1, rolling.surge or rolling.at_once))
            for rolling in self.roll.pools
        )
        self._tell(f"until its machines are new, {figures.about(roll_s)}", 0.0)
        advance(world, roll_s)

    def await_machines(self, outcome: EngineOutcome) -> None:
        """Look at the machines until all are new. Raises RollError, and CancelledError."""
        bucket = str(outcome.outputs.get("bucket", ""))
        began_s = heard_s = time.monotonic()
        working: set[str] = set()
        while True:
            lives = self._look(bucket)
            troubles = self._troubles(bucket)
            if troubles:
                raise RollError(f"{troubles[0].group}: {troubles[0].reason}")
            new = {
                handle
                for group in self._groups()
                for handle in self._new(lives, group)
            }
            if self._is_over(lives):
                return
            now_s = time.monotonic()
            if new - working:
                heard_s = now_s
                working |= new
            if now_s - heard_s >= self.limit_s:
                raise RollError(self._no_answer())
            old_count = sum(map(len, self.roll.old.values()))
            self._tell(
                f"until its machines are new: {len(new)} of {old_count}",
                now_s - began_s,
            )
            self.control.stop.wait(LOOK_S)
            if self.control.stop.is_made:
                raise cancelled_error(self.plan.stack.name, "apply")

    def gone_back(
        self, engine: StackEngine, failure: RollError
    ) -> ResourceError:
        """Apply the plan before, and return the error that says so.

        Raises the errors of an apply.
        """
        stack_name = self.plan.stack.name
        kept = read_kept(engine.store, stack_name)
        if kept is None or kept.roll != self.roll:
            return _failed(
                stack_name,
                failure,
                "the plan before was not kept, so nothing goes back",
                "apply the plan before",
            )
        for step in _roll_steps(self._groups(), self.plan):
            self.listener(
                ProgressEvent(0.0, step, "failed", f"{failure}; it goes back")
            )
        engine.apply(
            kept.plan,
            self.listener,
            replace(
                self.control,
                check=partial(_refuse_overtaken, self.plan),
                # What was allowed was allowed for the plan that failed.
                allow=self.control.allow - {"delete-data"},
                first_rung=kept.rung,
            ),
        )
        keep_plan(engine.store, replace(kept, roll=None))
        return _failed(
            stack_name,
            failure,
            f"the plan before stands again: {kept.plan.digest[:12]}",
            "plan again when the cause is mended",
        )

    def _is_over(self, lives: Lives) -> bool:
        """Whether in each group as many new machines work as there were, or no old one lives."""
        return all(
            self._has_rolled(lives, group, pool)
            for group, pool in self._groups().items()
            if group in self.roll.old
        )

    def _has_rolled(self, lives: Lives, group: str, pool: Pool) -> bool:
        old = self.roll.old[group]
        new_count = len(self._new(lives, group))
        leaves_nobody = not set(old) & set(lives.get(group, ()))
        return new_count >= len(old) or (
            leaves_nobody and new_count >= max(1, pool.min_nodes)
        )

    def _new(self, lives: Lives, group: str) -> set[str]:
        """Return the machines of a group that work, and did not live before."""
        old = self.roll.old.get(group, ())
        return {
            handle
            for handle, phase in lives.get(group, {}).items()
            if phase == WORKING and handle not in old
        }

    def _look(self, bucket: str) -> Lives:
        """Return who lives. What may be another answer at the next look is no error."""
        try:
            return self.control.lives(
                self.plan.graph.provider, bucket, self.plan.graph.region
            )
        except (MissingError, ResourceError):
            return {}

    def _troubles(self, bucket: str) -> list[Trouble]:
        """Return the new machines that were given back because they do not do their work."""
        old = {handle for group in self.roll.old.values() for handle in group}
        try:
            troubles = self.control.troubles(
                self.plan.graph.provider,
                bucket,
                self.plan.graph.region,
                self.roll.began,
            )
        except (MissingError, ResourceError):
            return []
        return [
            trouble
            for trouble in troubles
            if trouble.group in self._groups() and trouble.handle not in old
        ]

    def _no_answer(self) -> str:
        return f"no new machine answered within {figures.about(self.limit_s)}"

    def _tell(self, detail: str, elapsed_s: float) -> None:
        """Tell what is waited for, when it is another thing than before."""
        if detail != self.told:
            self.told = detail
            for step in _roll_steps(self._groups(), self.plan):
                self.listener(ProgressEvent(elapsed_s, step, "awaits", detail))


def _roll_steps(groups: dict[str, Pool], plan: Plan) -> Iterator[ResourceStep]:
    types = {resource.name: resource.type for resource in plan.graph.resources}
    for group in groups:
        name = f"{group}{GROUP_SUFFIX}"
        yield ResourceStep("update", types[name], name)


def _refuse_overtaken(plan: Plan, status: StackStatus | None) -> None:
    """Raise StaleError where another plan was applied while the machines were watched."""
    if status is None or status.plan != plan.digest:
        raise StaleError(
            Problem(
                code="roll",
                message=f"{plan.stack.name} was changed by another run while this one watched",
                next_step=f"see where it stands: tonnage status {plan.stack.name}",
            )
        )


def _failed(
    stack_name: str, failure: RollError, outcome: str, next_step: str
) -> ResourceError:
    return ResourceError(
        Problem(
            code="roll",
            message=f"the new machines of {stack_name} are not well: {failure}",
            cause=outcome,
            next_step=f"see why: tonnage logs {stack_name}; {next_step}",
        )
    )

"""Faults, signals and drift: what a stack goes through, and whether it stands afterwards."""

from __future__ import annotations

import csv
from functools import cache
from typing import TYPE_CHECKING, TypeAlias

from planner.errors import CancelledError, CapacityError, TonnageError
from providers.simulated import world
from providers.simulated.world_file import read_world
from stacks.engine.failure import MAX_ATTEMPTS, classify_error, is_transient
from stacks.engine.protocol import ProgressEvent, RunControl
from stacks.engine.rolling import is_machine_group
from stacks.engine.simulated import SimulatedEngine
from stacks.engine.stop import StopRequest
from tests.conftest import ROOT
from tests.reliability.crash import EVERYTHING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from planner.plan.types import Plan

FleetKey: TypeAlias = tuple[str, str, str]


@cache
def fault_codes() -> tuple[str, ...]:
    """Return an answer of each kind that the clouds give, as the first row with a code has it."""
    codes: dict[str, str] = {}
    with (ROOT / "stacks/data/errors.csv").open() as rows:
        for row in csv.DictReader(rows):
            # In the world file an answer is a word.
            is_word = row["code"].isalnum() and not row["text"]
            if is_word and classify_error(row["code"]) == row["class"]:
                codes.setdefault(row["class"], row["code"])
    return tuple(codes[error_class] for error_class in sorted(codes))


def fault_problem(
    plan: Plan, resource_name: str, code: str, folder: Path
) -> str | None:
    """Let the creation of a resource fail once; say what is wrong afterwards, or nothing.

    What passes by itself is tried again within the run. Everything else ends the run, is told, and
    is put right by the next one. In the end nothing is left.
    """
    engine = _engine(
        f"faults: [{{on: create, name: {resource_name}, code: {code}}}]", folder
    )
    passes = is_transient(code)
    try:
        engine.apply(plan, _unheard)
    except TonnageError as error:
        if passes:
            return "it was not tried again"
        if resource_name not in str(error) or not error.problems[0].next_step:
            return "the error names neither the resource nor a next step"
        engine.apply(plan, _unheard)
    else:
        if not passes:
            return "nobody was told"
    return _wrong_with(engine, plan)


def endless_fault_problem(
    plan: Plan, resource_name: str, folder: Path
) -> str | None:
    """Let a cloud be busy for ever: the run ends, and what it made can be taken away."""
    engine = _engine(
        f"faults: [{{on: create, name: {resource_name}, code: Throttling, times: 999}}]",
        folder,
    )
    retries: list[ProgressEvent] = []

    def listen(event: ProgressEvent) -> None:
        if event.phase == "retry":
            retries.append(event)

    try:
        engine.apply(plan, listen)
    except TonnageError:
        pass
    else:
        return "it succeeded"
    if len(retries) != MAX_ATTEMPTS - 1:
        return f"it was tried {len(retries) + 1} times"
    engine.destroy(plan.stack.name, _unheard, EVERYTHING)
    return "something is left" if _object_count(engine) else None


def stop_problem(plan: Plan, stop_after: int, folder: Path) -> str | None:
    """Ask a run to end after some events; say what is wrong afterwards, or nothing."""
    engine = _engine("", folder)
    stop = StopRequest()
    heard: list[ProgressEvent] = []

    def listen(event: ProgressEvent) -> None:
        heard.append(event)
        if len(heard) == stop_after:
            stop.make()

    try:
        engine.apply(plan, listen, RunControl(stop=stop))
    except CancelledError:
        status = engine.stack_status(plan.stack.name)
        if status is None or status.pending:
            return "something is still in flight"
        engine.apply(plan, _unheard)
    return _wrong_with(engine, plan)


def drift_problem(plan: Plan, resource_name: str, folder: Path) -> str | None:
    """Delete an object behind the back of a stack; say what is wrong afterwards, or nothing."""
    engine = _engine("", folder)
    engine.apply(plan, _unheard)
    with engine.shared_world.call(plan.graph.region) as clouds:
        for object_id, found in list(clouds.memory.objects.items()):
            if found["name"] == resource_name:
                del clouds.memory.objects[object_id]
    if resource_name not in {
        drifted.name for drifted in engine.drift(plan.stack.name)
    }:
        return "it was not found"
    engine.apply(plan, _unheard, EVERYTHING)
    if engine.drift(plan.stack.name):
        return "it was not repaired"
    return _wrong_with(engine, plan)


def change_problem(plan: Plan, resource_name: str, folder: Path) -> str | None:
    """Change an object behind the back of a stack; say what is wrong afterwards, or nothing.

    It is told, left as it is, and undone when somebody asks for that.
    """
    engine = _engine("", folder)
    engine.apply(plan, _unheard)
    with engine.shared_world.call(plan.graph.region) as clouds:
        for found in clouds.memory.objects.values():
            if found["name"] == resource_name:
                found["inputs"] = {**found["inputs"], "added": "by somebody"}
    if [drifted.name for drifted in engine.drift(plan.stack.name)] != [
        resource_name
    ]:
        return "it was not found"
    if engine.apply(plan, _unheard).steps:
        return "it was undone unasked"
    engine.apply(plan, _unheard, RunControl(allow=frozenset({"drift"})))
    if engine.drift(plan.stack.name):
        return "it was not undone"
    return _wrong_with(engine, plan)


def failover_problem(
    plan: Plan, missing: tuple[FleetKey, ...], folder: Path
) -> str | None:
    """Apply a plan where some of its fleets are missing; say what is wrong, or nothing.

    The first fleet that there is stands, and nothing of the others. Without any, no machine is
    left, and everything else can be taken away.
    """
    rows = ", ".join(
        f"{{provider: {cloud}, region: {region}, instance_type: {machine}, nodes: 0}}"
        for cloud, region, machine in missing
    )
    engine = _engine(f"capacity: [{rows}]" if missing else "", folder)
    wanted_rung = next(
        (
            rung
            for rung, key in enumerate(fleet_keys(plan))
            if key not in missing
        ),
        None,
    )
    if wanted_rung is not None:
        engine.apply(plan, _unheard)
        status = engine.stack_status(plan.stack.name)
        if status is None or status.facts is None:
            return "nothing stands"
        if status.facts.rung != wanted_rung:
            return f"rung {status.facts.rung} stands"
        return _wrong_with(engine, plan.on_rung(wanted_rung))
    try:
        engine.apply(plan, _unheard)
    except CapacityError:
        pass
    else:
        return "nobody was told"
    clouds = engine.shared_world.view().memory.objects.values()
    if any(is_machine_group(found["name"]) for found in clouds):
        return "machines are left"
    engine.destroy(plan.stack.name, _unheard, EVERYTHING)
    return "something is left" if _object_count(engine) else None


def fleet_keys(plan: Plan) -> list[FleetKey]:
    """Return cloud, region and machine type of a plan and of its fallbacks, in their order."""
    pools = [
        plan.solution.pools[0],
        *(fallback.pools[0] for fallback in plan.fallbacks),
    ]
    return [(p.provider, p.region, p.instance_type) for p in pools]


def told(try_it: Callable[[], str | None]) -> str | None:
    """Try something; an error that nobody expects is what is wrong."""
    try:
        return try_it()
    except TonnageError as error:
        return f"{type(error).__name__}: {error}"


def _wrong_with(engine: SimulatedEngine, plan: Plan) -> str | None:
    status = engine.stack_status(plan.stack.name)
    if status is None or not status.complete or status.pending:
        return "the stack is not complete"
    wanted_count = len(plan.graph.resources) + len(status.retained)
    if _object_count(engine) != wanted_count:
        return "the clouds have more or less than the plan"
    engine.destroy(plan.stack.name, _unheard, EVERYTHING)
    return "something is left" if _object_count(engine) else None


def _engine(rules: str, folder: Path) -> SimulatedEngine:
    rules_of_world = (
        read_world(rules.encode(), "world.yaml")
        if rules
        else world.default_world()
    )
    return SimulatedEngine(rules_of_world, folder)


def _object_count(engine: SimulatedEngine) -> int:
    return len(engine.shared_world.view().memory.objects)


def _unheard(_event: object) -> None:
    """Listen to nothing."""

"""Crashes: a run is cut at each of its durable events, and the next run has to put it right.

A durable event is a write of the state or a call to the clouds. Each is cut twice: before it
happens, and when it has happened and nobody has heard of it yet.
"""

from __future__ import annotations

import shutil
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct

from providers.simulated import world
from providers.simulated.shared import SharedWorld
from stacks.engine.protocol import RunControl
from stacks.engine.simulated import SimulatedEngine
from stacks.engine.store import FolderStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from planner.plan.types import Plan
    from providers.simulated.cloud import SimulatedCloud

# What is done with a stack.
Work: TypeAlias = "Callable[[SimulatedEngine], object]"
EVERYTHING = RunControl(allow=frozenset({"delete-data", "outage"}))


class Crash(BaseException):
    """The end of a process: nothing in the product may catch it."""


class Fuse:
    """Counts durable events, and ends the process at one of them.

    cut  the moment at which it ends: twice the number of the event, and one more for after it
    """

    def __init__(self, cut: int = -1) -> None:
        self.cut = cut
        self.moments = 0

    def reach(self) -> None:
        """Pass a moment, or end there."""
        moment = self.moments
        self.moments += 1
        if moment == self.cut:
            raise Crash


class FusedStore(FolderStore):
    """A store whose writes may be the last thing that a process does."""

    def __init__(self, folder: Path, fuse: Fuse) -> None:
        super().__init__(folder)
        self.fuse = fuse

    def write(
        self, stack_name: str, content: bytes, version: str | None
    ) -> str:
        """Write a state, and perhaps end before or after it."""
        self.fuse.reach()
        written = super().write(stack_name, content, version)
        self.fuse.reach()
        return written

    def delete(self, stack_name: str) -> None:
        """Delete a state, and perhaps end before or after it."""
        self.fuse.reach()
        super().delete(stack_name)
        self.fuse.reach()


class FusedWorld(SharedWorld):
    """A world whose calls may be the last thing that a process does."""

    def __init__(self, rules: world.World, folder: Path, fuse: Fuse) -> None:
        super().__init__(rules, folder)
        self.fuse = fuse

    @contextmanager
    def call(self, region: str) -> Iterator[SimulatedCloud]:
        """Make a call, and perhaps end before it or before its answer."""
        self.fuse.reach()
        with super().call(region) as cloud:
            yield cloud
        self.fuse.reach()


class CrashCase(Struct, frozen=True, kw_only=True):
    """What is cut, and what is done then.

    before    what stands when it begins
    work      what is cut
    recovery  what is done afterwards, by another process
    """

    name: str
    before: Work | None
    work: Work
    recovery: Work


def crash_cases(small: Plan, large: Plan, moved: Plan) -> tuple[CrashCase, ...]:
    """Return what is tried with the plans of one stack.

    `large` changes what `small` made, and `moved` has all of it elsewhere.
    """

    def apply_of(plan: Plan) -> Work:
        return lambda engine: engine.apply(plan, _unheard, EVERYTHING)

    def destroy(engine: SimulatedEngine) -> object:
        if engine.stack_status(small.stack.name) is None:
            return None
        return engine.destroy(small.stack.name, _unheard, EVERYTHING)

    apply_small = apply_of(small)
    return (
        CrashCase(
            name="apply, apply",
            before=None,
            work=apply_small,
            recovery=apply_small,
        ),
        CrashCase(
            name="apply, destroy",
            before=None,
            work=apply_small,
            recovery=destroy,
        ),
        CrashCase(
            name="update, update",
            before=apply_small,
            work=apply_of(large),
            recovery=apply_of(large),
        ),
        CrashCase(
            name="update, back",
            before=apply_small,
            work=apply_of(large),
            recovery=apply_small,
        ),
        CrashCase(
            name="move, move",
            before=apply_small,
            work=apply_of(moved),
            recovery=apply_of(moved),
        ),
        CrashCase(
            name="destroy, destroy",
            before=apply_small,
            work=destroy,
            recovery=destroy,
        ),
        CrashCase(
            name="destroy, apply",
            before=apply_small,
            work=destroy,
            recovery=apply_small,
        ),
    )


def crash_moments(case: CrashCase, folder: Path) -> int:
    """Prepare a case, run it once uncut, and return its moments."""
    start = folder / "start"
    start.mkdir(parents=True)
    if case.before is not None:
        case.before(_engine_in(start, Fuse()))
    case.recovery(_engine_in(_copy_of(start, folder / "wanted"), Fuse()))
    fuse = Fuse()
    case.work(_engine_in(_copy_of(start, folder / "whole"), fuse))
    return fuse.moments


def differences_after(case: CrashCase, folder: Path, cut: int) -> list[str]:
    """Cut a case at a moment, recover, and say what is not as if nothing had happened."""
    start = folder / "start"
    cut_folder = _copy_of(start, folder / "cut")
    try:
        case.work(_engine_in(cut_folder, Fuse(cut)))
    except Crash:
        pass
    else:
        return [f"moment {cut} was not reached"]
    recovered = _engine_in(cut_folder, Fuse())
    case.recovery(recovered)
    return _differences(recovered, _engine_in(folder / "wanted", Fuse()))


def _differences(
    recovered: SimulatedEngine, wanted: SimulatedEngine
) -> list[str]:
    found_objects, wanted_objects = (
        sorted(
            f"{cloud_object['type']} {cloud_object['name']}"
            for cloud_object in engine.shared_world.view().memory.objects.values()
        )
        for engine in (recovered, wanted)
    )
    found = [
        f"lost: {name}" for name in wanted_objects if name not in found_objects
    ]
    found += [
        f"forgotten: {name}"
        for name in found_objects
        if name not in wanted_objects
    ]
    if not found and len(found_objects) != len(wanted_objects):
        found.append("something is there twice")
    for stack_name in {*recovered.stack_names(), *wanted.stack_names()}:
        status, wanted_status = (
            engine.stack_status(stack_name) for engine in (recovered, wanted)
        )
        if (status is None) != (wanted_status is None):
            found.append("one of them has a stack")
        elif status is not None and wanted_status is not None:
            if not status.complete or status.pending:
                found.append("the stack is not complete")
            if status.resources != wanted_status.resources:
                found.append("the stack has other resources")
    return found


def _engine_in(folder: Path, fuse: Fuse) -> SimulatedEngine:
    rules = world.default_world()
    engine = SimulatedEngine(rules, folder, FusedStore(folder / "stacks", fuse))
    engine.shared_world = FusedWorld(rules, folder, fuse)
    return engine


def _copy_of(folder: Path, copy: Path) -> Path:
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(folder, copy)
    return copy


def _unheard(_event: object) -> None:
    """Listen to nothing."""

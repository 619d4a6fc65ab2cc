"""The Pulumi engine dies at each of its durable events, as a recorded run has passed them.

A durable event is a write of a checkpoint, of what tonnage notes beside it, or of the simulated
clouds. Pulumi keeps every checkpoint of a recorded run; a thread keeps the other files. What a
process leaves that dies at some time is the newest version of each file at that time.
"""

from __future__ import annotations

import json
import os
import shutil
import threading
from collections import Counter
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from planner.errors import TonnageError
from providers.simulated.world import load_memory
from stacks.engine.protocol import RunControl
from stacks.engine.pulumi.engine import PulumiEngine
from stacks.engine.pulumi.retention import retained_names
from stacks.graph import parse_graph

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from planner.plan.types import Plan
    from stacks.engine.protocol import ProgressEvent

RETAIN_VARIABLE: Final = "PULUMI_DIY_BACKEND_RETAIN_CHECKPOINTS"
CHECKPOINT: Final = "state/.pulumi/stacks/tonnage/chat.json"
WORLD: Final = "world.json"
NOTES: Final = "stacks/chat.json"
LOCKS: Final = "state/.pulumi/locks"
POLL_S: Final = 0.0002
VERBS: Final = ("apply", "update", "move", "destroy")
# Answers the question of an outage, and keeps what holds data.
ASKED: Final = RunControl(allow=frozenset({"outage"}))


class Moment(Struct, frozen=True):
    """The files that a run leaves that dies there: a path in the folder, and its content."""

    files: dict[str, Path]


class Recording(Struct, frozen=True):
    """A run: the folder of its engine before it, and the moments that it passed, in order."""

    folder: Path
    moments: tuple[Moment, ...]


def engine_in(folder: Path) -> PulumiEngine:
    """Return an engine on simulated clouds, both in a folder."""
    return PulumiEngine(
        folder,
        backend=None,
        world_source="default",
        environment=dict(os.environ),
    )


def record(
    folder: Path, work: Callable[[PulumiEngine], object], place: Path
) -> Recording:
    """Do something with the stack in a folder, and keep what it passes in another place."""
    begun = place / "begun"
    shutil.copytree(folder, begun, symlinks=True)
    with _kept_versions(folder, place / "versions"):
        work(engine_in(folder))
    versions = [
        (int(path.name), str(path.parent.relative_to(place / "versions")), path)
        for path in (place / "versions").rglob("[0-9]*")
    ]
    # Pulumi keeps its checkpoints beside the newest one, with their times in nanoseconds.
    versions += [
        (int(path.suffix[1:]), CHECKPOINT, path)
        for path in folder.glob(f"{CHECKPOINT}.[0-9]*")
        if path.suffix[1:].isdigit()
    ]
    return Recording(begun, tuple(_moments(sorted(versions))))


@contextmanager
def _kept_versions(folder: Path, place: Path) -> Iterator[None]:
    """Keep every version of the files that are replaced as a whole, by the time of its content."""
    is_done = threading.Event()

    def keep_versions() -> None:
        last_files: dict[str, int] = {}
        while not is_done.wait(POLL_S):
            for name in (WORLD, NOTES):
                with suppress(FileNotFoundError):
                    status = (folder / name).stat()
                    if status.st_ino == last_files.get(name):
                        continue
                    last_files[name] = status.st_ino
                    version = place / name / str(status.st_mtime_ns)
                    version.parent.mkdir(parents=True, exist_ok=True)
                    version.hardlink_to(folder / name)

    watcher = threading.Thread(target=keep_versions)
    os.environ[RETAIN_VARIABLE] = "true"
    watcher.start()
    try:
        yield
    finally:
        is_done.set()
        watcher.join()
        del os.environ[RETAIN_VARIABLE]


def _moments(versions: list[tuple[int, str, Path]]) -> Iterator[Moment]:
    """Yield what stands after each write; a write of the world that nobody saw is left out."""
    files: dict[str, Path] = {}
    for _, name, path in versions:
        files[name] = path
        if WORLD in files and CHECKPOINT in files and _is_possible(files):
            yield Moment(dict(files))


def _is_possible(files: dict[str, Path]) -> bool:
    """Tell whether every object that the checkpoint has made is in the world, or going."""
    deployment = json.loads(files[CHECKPOINT].read_bytes())["checkpoint"][
        "latest"
    ]
    going_urns = {
        operation["resource"]["urn"]
        for operation in deployment.get("pending_operations") or ()
    }
    objects = load_memory(files[WORLD]).objects
    return all(
        resource["id"] in objects
        for resource in deployment.get("resources") or ()
        if resource.get("custom")
        and resource.get("id")
        and not resource["type"].startswith("pulumi:")
        and resource["urn"] not in going_urns
    )


def record_verb(verb: str, home: Plan, goal: Plan, place: Path) -> Recording:
    """Record a run of one verb on the stack of one plan, which brings about another."""
    folder = place / "run"
    engine = engine_in(folder)
    if verb == "apply":
        # The stack is there, with nothing in it.
        engine.preview(home)
    else:
        engine.apply(home, _hear_nothing, ASKED)

    def work(again: PulumiEngine) -> object:
        if verb == "destroy":
            return again.destroy(home.stack.name, _hear_nothing, ASKED)
        return again.apply(goal, _hear_nothing, ASKED)

    return record(folder, work, place / verb)


def problem_after(
    recording: Recording, moment: Moment, home: Plan, goal: Plan, place: Path
) -> str | None:
    """Let a run have died at a moment, and say what is wrong after the next apply of a plan.

    What `home` has left for its data may be there too.
    """
    try:
        return _problem_after(recording, moment, home, goal, place)
    finally:
        shutil.rmtree(place)


def _problem_after(
    recording: Recording, moment: Moment, home: Plan, goal: Plan, place: Path
) -> str | None:
    shutil.copytree(recording.folder, place, symlinks=True)
    shutil.rmtree(place / LOCKS, ignore_errors=True)
    (place / NOTES).unlink(missing_ok=True)
    for name, version in moment.files.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(version, place / name)
    engine = engine_in(place)
    try:
        refusals = engine.preflight(goal)
        if refusals:
            return f"preflight: {refusals[0]}"
        engine.apply(goal, _hear_nothing, ASKED)
    except TonnageError as error:
        return f"{type(error).__name__}: {error}"
    wanted = Counter(resource.name for resource in goal.graph.resources)
    found = Counter(
        stored["name"] for stored in load_memory(place / WORLD).objects.values()
    )
    lost, more = wanted - found, found - wanted
    if goal.graph.provider != home.graph.provider:
        more -= Counter(retained_names(parse_graph(home.graph)))
    return f"lost {lost}, forgotten {more}" if lost or more else None


def _hear_nothing(_event: ProgressEvent) -> None:
    """Listen to nothing."""

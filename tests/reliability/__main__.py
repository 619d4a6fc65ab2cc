"""Measures what tonnage promises: `make reliability`; with --write into docs/reliability.md.

Every figure is counted here. Without a Pulumi program on PATH the real engine is left out.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from typing import Any

from msgspec import Struct

from planner import api
from planner.errors import TonnageError
from planner.plan.types import Plan
from providers.catalog.load import load_catalog
from providers.simulated import world
from tests.conftest import ROOT, chat, find, only
from tests.reliability import (
    core,
    crash,
    engine,
    faults,
    graphs,
    hostile,
    recorded,
    secrets,
    tampering,
)
from tests.reliability.model import run_model
from tests.stacks.engine.test_simulated import TEXT, plan_of
from tests.stacks.test_build_combinations import GIVEN

MOVES = {"aws": "gcp", "gcp": "azure", "azure": "aws"}
PAGE = ROOT / "docs" / "reliability.md"
FIGURES_START, FIGURES_END = "<!-- figures -->\n", "<!-- end -->\n"
FLIPS, FORGERIES = 800, 200
STOPS = range(1, 90, 2)
MODEL_STEPS, MODEL_SEEDS = 2_000, 4
HOSTILE_FILES = 320
# A place of the networks that stand, on each cloud.
PLACES = {"aws": "us-east-1a", "gcp": "us-central1", "azure": "eastus"}
MISTAKES = "nonsense in a graph"
MISTAKES_OF_EACH_CLOUD = 250
# A cloud takes some texts that no person would write.
MISTAKES_REFUSED = 0.98


class Figure(Struct, frozen=True):
    """How often something was as promised, of how many times it was tried."""

    name: str
    right: int
    tried: int
    failures: tuple[str, ...] = ()

    @property
    def share(self) -> str:
        return f"{self.right / self.tried:.1%}" if self.tried else "-"


@cache
def text_of(cloud: str) -> str:
    return TEXT.replace("CLOUD", cloud)


@cache
def plan_on(cloud: str) -> Plan:
    return plan_of(load_catalog(), text_of(cloud))


def busier_plan(text: str) -> Plan:
    """A plan of the same stack with more machines, and another template for them."""
    catalog = load_catalog()
    kinds = {p.instance.instance_type for p in find(catalog, text).pools}
    return plan_of(
        only(catalog, lambda o: o.instance.instance_type in kinds),
        text.replace("peak_rps: 2", "peak_rps: 40").replace(
            "idle: 30m", "idle: 40m"
        ),
    )


@cache
def crash_cases(cloud: str) -> tuple[crash.CrashCase, ...]:
    return crash.crash_cases(
        plan_on(cloud), busier_plan(text_of(cloud)), plan_on(MOVES[cloud])
    )


def core_text(cloud: str) -> str:
    """A spec of the same service in a network that stands."""
    network, subnet = GIVEN[cloud]
    return (
        f"{text_of(cloud)}network: {{id: {network}, range: 10.9.0.0/16, "
        f"subnets: ['{subnet}@{PLACES[cloud]}']}}\n"
    )


def recorded_plans(
    verb: str, cloud: str, *, is_whole: bool
) -> tuple[Plan, Plan]:
    """The plan that stands before a run, and the one that it brings about."""
    text = text_of if is_whole else core_text
    home = plan_of(load_catalog(), text(cloud))
    goal = home
    if verb == "update":
        goal = busier_plan(text(cloud))
    if verb == "move":
        goal = plan_of(load_catalog(), text(MOVES[cloud]))
    if is_whole:
        return home, goal
    return core.core_of(home), core.core_of(goal)


@contextmanager
def folder() -> Iterator[Path]:
    """An empty folder, in memory where the system has such a place."""
    shared_memory = Path("/dev/shm")
    parent = shared_memory if shared_memory.is_dir() else None
    path = Path(tempfile.mkdtemp(dir=parent))
    try:
        yield path / "world"
    finally:
        shutil.rmtree(path, ignore_errors=True)


def crashes(cloud: str, number: int) -> Figure:
    case = crash_cases(cloud)[number]
    failures = []
    with folder() as place:
        moments = crash.crash_moments(case, place)
        for cut in range(moments):
            try:
                found = crash.differences_after(case, place, cut)
            except TonnageError as error:
                found = [str(error)]
            failures += [f"{cloud} {case.name} {cut}: {found}"] if found else []
    return Figure(
        f"crash, {case.name}",
        moments - len(failures),
        moments,
        tuple(failures),
    )


def tally(name: str, problems: Iterator[tuple[str, str | None]]) -> Figure:
    found = list(problems)
    failures = tuple(f"{what}: {why}" for what, why in found if why)
    return Figure(name, len(found) - len(failures), len(found), failures)


def stops(cloud: str) -> Figure:
    def problems() -> Iterator[tuple[str, str | None]]:
        for stop_after in STOPS:
            with folder() as place:
                yield (
                    f"{cloud} after {stop_after} events",
                    faults.told(
                        partial(
                            faults.stop_problem,
                            plan_on(cloud),
                            stop_after,
                            place,
                        )
                    ),
                )

    return tally("asked to end", problems())


def refusals(cloud: str, code: str) -> Figure:
    def problems() -> Iterator[tuple[str, str | None]]:
        for resource in plan_on(cloud).graph.resources:
            with folder() as place:
                yield (
                    f"{cloud} {code} of {resource.name}",
                    faults.told(
                        partial(
                            faults.fault_problem,
                            plan_on(cloud),
                            resource.name,
                            code,
                            place,
                        )
                    ),
                )

    return tally("a cloud refuses once", problems())


# What is tried with each resource of a plan, by what the page calls it.
TRIED_WITH_EACH: dict[str, Callable[[Plan, str, Path], str | None]] = {
    "a cloud is busy for ever": faults.endless_fault_problem,
    "deleted behind its back": faults.drift_problem,
    "changed behind its back": faults.change_problem,
}


def tried_with_each(name: str, cloud: str) -> Figure:
    plan = plan_on(cloud)

    def problems() -> Iterator[tuple[str, str | None]]:
        for resource in plan.graph.resources:
            with folder() as place:
                problem = faults.told(
                    partial(TRIED_WITH_EACH[name], plan, resource.name, place)
                )
                yield f"{cloud} {resource.name}", problem

    return tally(name, problems())


def nonsense(cloud: str) -> Figure:
    # Half of them, so that the whole takes a quarter of an hour; drawn with a
    # seed, since every second one would leave out the same kinds of mistakes.
    drawn = random.Random(cloud).sample(
        list(graphs.mistakes(plan_on(cloud))), MISTAKES_OF_EACH_CLOUD
    )

    def problems() -> Iterator[tuple[str, str | None]]:
        for mistake in drawn:
            with folder() as place:
                refusal = graphs.refusal_of(
                    mistake, plan_on(cloud), world.default_world(), place
                )
                yield (
                    f"{cloud} {mistake.resource.name} {mistake.kind}",
                    None if refusal else "it was taken",
                )

    return tally(MISTAKES, problems())


def flips(cloud: str) -> Figure:
    return tally(
        "a bit of a plan flipped",
        (
            (
                f"{cloud} {seed}",
                None
                if tampering.flipped_is_refused(plan_on(cloud), seed)
                else "it was taken",
            )
            for seed in range(FLIPS // len(MOVES) + 1)
        ),
    )


def forgeries(cloud: str) -> Figure:
    catalog = load_catalog()
    return tally(
        "a plan forged, with a right digest",
        (
            (
                f"{cloud} {seed}",
                None
                if tampering.forged_is_refused(
                    plan_on(cloud), text_of(cloud), catalog, seed
                )
                else "it was taken",
            )
            for seed in range(FORGERIES // len(MOVES) + 1)
        ),
    )


def stale_plans(cloud: str) -> Figure:
    return tally(
        "an input changed after the plan",
        (
            (f"{cloud} {name}", None if is_refused else "it was taken")
            for name, is_refused in tampering.stale_cases(plan_on(cloud))
        ),
    )


def failovers(first: str) -> Figure:
    """Take away every number of the fleets that a plan lists, in their order."""
    second = MOVES[first]
    spec = chat(
        extra=f"buy: {{fallback: 100%}}\nwhere: {{clouds: [{first}, {second}]}}"
    )
    plan = api.plan(spec.encode(), catalog=load_catalog(), alternatives=0)
    fleets = list(dict.fromkeys(faults.fleet_keys(plan)))

    def problems() -> Iterator[tuple[str, str | None]]:
        for count in range(len(fleets) + 1):
            with folder() as place:
                yield (
                    f"{first} or {second}, {count} of {len(fleets)} missing",
                    faults.told(
                        partial(
                            faults.failover_problem,
                            plan,
                            tuple(fleets[:count]),
                            place,
                        )
                    ),
                )

    return tally("a cloud has no machines", problems())


def hostile_files(reader: str) -> Figure:
    text, read = hostile.readers(plan_on("aws"))[reader]
    return tally(
        "a hostile file",
        (
            (f"{reader} {number}", hostile.hostile_problem(content, read))
            for number, content in enumerate(
                hostile.hostile_files(text, HOSTILE_FILES, seed=7)
            )
        ),
    )


def planted_secrets() -> Figure:
    def problems() -> Iterator[tuple[str, str | None]]:
        for plant in secrets.PLANTS:
            with folder() as place:
                place.mkdir()
                yield from secrets.leaks(plant, place)

    return tally("a secret that was planted", problems())


def killed_runs(verb: str, way: str, cloud: str) -> Figure:
    problem = engine.kill_problem(verb, way, cloud, MOVES[cloud])
    return tally(
        f"Pulumi is killed, {verb}", iter([(f"{cloud} {way}", problem)])
    )


def recorded_runs(verb: str, cloud: str, *, is_whole: bool) -> Figure:
    home, goal = recorded_plans(verb, cloud, is_whole=is_whole)
    with folder() as place:
        recording = recorded.record_verb(verb, home, goal, place)
        return tally(
            f"Pulumi dies at an event, {verb}",
            (
                (
                    f"{cloud} {number} of {len(recording.moments)}",
                    recorded.problem_after(
                        recording, moment, home, goal, place / "try"
                    ),
                )
                for number, moment in enumerate(recording.moments)
            ),
        )


def steps_of_the_model(seed: int) -> Figure:
    steps = MODEL_STEPS // MODEL_SEEDS
    failure = ""
    try:
        run_model(steps, seed)
    except Exception as error:  # noqa: BLE001 - whatever comes is what is looked for
        failure = f"seed {seed}: {type(error).__name__}: {error}"
    return Figure(
        "steps of a stack in any order",
        0 if failure else steps,
        steps,
        (failure,) if failure else (),
    )


def tasks(
    *, every_kill: bool
) -> list[tuple[Callable[..., Figure], tuple[Any, ...]]]:
    codes = faults.fault_codes()
    case_count = len(crash_cases("aws"))
    found: list[tuple[Callable[..., Figure], tuple[Any, ...]]] = []
    for cloud in MOVES:
        found += [(crashes, (cloud, number)) for number in range(case_count)]
        found += [(refusals, (cloud, code)) for code in codes]
        found += [(tried_with_each, (name, cloud)) for name in TRIED_WITH_EACH]
        found += [
            (measure, (cloud,))
            for measure in (
                stops,
                stale_plans,
                nonsense,
                flips,
                forgeries,
                failovers,
            )
        ]
    found += [(steps_of_the_model, (seed,)) for seed in range(MODEL_SEEDS)]
    found += [
        (hostile_files, (reader,)) for reader in hostile.readers(plan_on("aws"))
    ]
    found.append((planted_secrets, ()))
    if engine.is_there():
        runs = [
            (verb, way, cloud)
            for number, verb in enumerate(engine.VERBS)
            for way_number, way in enumerate(engine.WAYS)
            for cloud_number, cloud in enumerate(MOVES)
            # In turn, unless there is time for all.
            if every_kill or (number + way_number + cloud_number) % 3 == 0
        ]
        found += [(killed_runs, run) for run in runs]
        found += [
            (partial(recorded_runs, is_whole=every_kill), (verb, cloud))
            for verb in recorded.VERBS
            for cloud in MOVES
        ]
    return found


def is_of_engine(work: Callable[..., Figure]) -> bool:
    """Whether a work is one of the real engine."""
    name = work.func if isinstance(work, partial) else work
    return name in (killed_runs, recorded_runs)


def summed(figures: list[Figure]) -> list[Figure]:
    names = list(dict.fromkeys(figure.name for figure in figures))
    return [
        Figure(
            name,
            sum(f.right for f in figures if f.name == name),
            sum(f.tried for f in figures if f.name == name),
            tuple(
                failure
                for f in figures
                if f.name == name
                for failure in f.failures
            ),
        )
        for name in names
    ]


def table_of(figures: list[Figure]) -> str:
    rows = "".join(
        f"| {figure.name} | {figure.right:,} | {figure.tried:,} | {figure.share} |\n"
        for figure in figures
    )
    return f"| what is tried | as promised | tried | share |\n|---|--:|--:|--:|\n{rows}"


def write_page(table: str) -> None:
    page = PAGE.read_text()
    start = page.index(FIGURES_START) + len(FIGURES_START)
    PAGE.write_text(page[:start] + table + page[page.index(FIGURES_END) :])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="write the page")
    parser.add_argument(
        "--every-kill",
        action="store_true",
        help="kill Pulumi in each way on each cloud, and at each event of whole stacks; "
        "takes hours",
    )
    options = parser.parse_args()
    # Runs of Pulumi are short: its collector would take a seventh of their time.
    os.environ.setdefault("GOGC", "off")
    started = time.monotonic()
    with ProcessPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        works = list(tasks(every_kill=options.every_kill))
        # Runs of the real engine take longest, so they begin first.
        running = {
            number: pool.submit(work, *inputs)
            for number, (work, inputs) in sorted(
                enumerate(works),
                key=lambda entry: is_of_engine(entry[1][0]),
                reverse=True,
            )
        }
        figures = summed(
            [running[number].result() for number in range(len(works))]
        )
    table = table_of(figures)
    sys.stdout.write(table)
    for figure in figures:
        for failure in figure.failures[:10]:
            sys.stdout.write(f"! {figure.name}: {failure}\n")
    sys.stdout.write(f"{time.monotonic() - started:.0f} s\n")
    if options.write:
        write_page(table)
    if any(
        figure.right
        < (MISTAKES_REFUSED if figure.name == MISTAKES else 1) * figure.tried
        for figure in figures
    ):
        sys.exit(1)


if __name__ == "__main__":
    main()

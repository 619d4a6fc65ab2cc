"""The composition root: joins specs, catalog, solver, stacks and engines for the commands."""

from __future__ import annotations

import hashlib
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from planner.errors import MissingError, Place, Problem, UsageError

if TYPE_CHECKING:
    from planner.perf.serve import Trust
    from planner.solve.offer import Catalog
    from planner.solve.solution import Solution
    from planner.spec.model import Spec
    from providers.simulated.world import World
    from stacks.engine.protocol import Engine

FOLDER: Final = Path(".tonnage")
SIMULATED: Final = "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A spec file: its path as given, its bytes and what it says."""

    path: str
    file_bytes: bytes
    spec: Spec

    @property
    def sha256(self) -> str:
        """SHA-256 of the file."""
        return hashlib.sha256(self.file_bytes).hexdigest()


def read_file(path: str) -> bytes:
    """Read a file that was named on the command line; `-` is standard input."""
    if path == "-":
        return sys.stdin.buffer.read()
    try:
        return Path(path).read_bytes()
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError) as error:
        next_step = "check the path, or write a spec with: tonnage init"
        problem = Problem(
            code="file",
            message="no such file",
            place=Place(path),
            next_step=next_step,
        )
        raise MissingError(problem) from error


def read_spec(path: str) -> Source:
    """Read and check a spec."""
    from planner.spec.load import load

    file_bytes = read_file(path)
    return Source(path=path, file_bytes=file_bytes, spec=load(file_bytes, path))


def beside(path: str) -> Any:
    """Return a function that reads files beside a spec, and none elsewhere."""
    spec_folder = (Path(path).parent if path != "-" else Path()).resolve()

    def read_beside(file_name: str) -> bytes:
        file_path = (spec_folder / file_name).resolve()
        if spec_folder not in file_path.parents:
            problem = Problem(
                code="file",
                message=f"{file_name} lies outside the folder of the spec",
                place=Place(path),
                next_step="put the file beside the spec",
            )
            raise UsageError(problem)
        return read_file(str(file_path))

    return read_beside


def open_catalog(path: str | None, world: World | None) -> Catalog:
    """Open the embedded catalog or another one, with the prices of a simulated world."""
    from providers.catalog.load import load

    catalog = load(Path(path) if path else None)
    if world is None:
        return catalog
    from providers.simulated.world import priced

    return priced(world, catalog)


def open_world(simulate: str | None) -> World | None:
    """Read a world file, or take the default world; None when nothing is simulated."""
    if simulate is None:
        return None
    from providers.simulated import world

    if simulate == SIMULATED:
        return world.default()
    return world.read(read_file(simulate), simulate)


def solve(spec_file: Source, catalog: Catalog, options: Options) -> Solution:
    """Solve a spec against a catalog, with the stacks that can be built."""
    from planner.solve.answer import Solver
    from stacks.site import unsupported

    solver = Solver(
        catalog=catalog,
        unbuilt_reason=unsupported,
        read_file=beside(spec_file.path),
        alternative_count=options.alternatives,
        confidence=trust(options),
    )
    return solver.solve(spec_file.spec)


def trust(options: Options) -> Trust:
    """Return the wished confidence, and what a calibration taught."""
    from planner.estimate.calibrate import parse
    from planner.perf.serve import Trust

    calibration_path = options.calibration
    return Trust(
        options.confidence / 100,
        parse(read_file(calibration_path), calibration_path)
        if calibration_path
        else None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the planning commands share."""

    catalog: str | None = None
    simulate: str | None = None
    stack: str | None = None
    alternatives: int = 3
    confidence: int = 90
    calibration: str | None = None
    engine: str | None = None
    backend: str | None = None

    @property
    def uses_stack_state(self) -> bool:
        """Whether the plan is made on the state of a stack."""
        return self.simulate is not None or self.stack is not None


def make_plan(
    spec_file: Source, catalog: Catalog, options: Options
) -> dict[str, Any]:
    """Make the plan document of a spec; an infeasible one has no pools and no graph."""
    from planner.plan.document import assemble
    from stacks.build import build

    solution = solve(spec_file, catalog, options)
    graph_document: dict[str, Any] = {
        "provider": "",
        "region": "",
        "resources": [],
        "outputs": {},
    }
    backstop, launch_document = "", None
    stack_name = options.stack or spec_file.spec.name
    if solution.pools:
        resource_graph, backstop, launch_document = build(
            spec_file.spec, solution, stack_name
        )
        graph_document = resource_graph.to_document()
    stack_status = (
        open_engine(options).stack_status(stack_name) if options.uses_stack_state else None
    )
    stack_document = {
        "graph": graph_document,
        "backstop": backstop or None,
        "name": stack_name,
        "state_sha256": stack_status.state_sha256 if stack_status else None,
        "launch": launch_document,
    }
    return assemble(
        spec_file.spec,
        (spec_file.path, spec_file.sha256),
        catalog,
        solution,
        stack_document,
    )


def open_engine(options: Options) -> Engine:
    """Return the engine that the options ask for.

    Without --simulate it is Pulumi on real clouds; with it, the in-process engine on the
    simulated clouds, or Pulumi on them when --engine says so.
    """
    world = open_world(options.simulate)
    engine_name = options.engine or ("simulated" if world else "pulumi")
    if engine_name == "simulated":
        if world is None:
            problem = Problem(
                code="engine",
                message="the simulated engine works on simulated clouds only",
                next_step="add --simulate",
            )
            raise UsageError(problem)
        from stacks.engine.simulated import SimulatedEngine

        return SimulatedEngine(world, FOLDER / "simulated")
    from stacks.engine.pulumi import PulumiEngine

    return PulumiEngine(
        FOLDER / ("pulumi-simulated" if world else "pulumi"),
        backend=options.backend,
        world_source=options.simulate,
        environment=dict(os.environ),
    )

"""The plan of a benchmark: the machine that a spec is measured on, and the limits of its run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from planner import figures
from planner.cli.compose import SpecFile, own_catalog, solve_settings
from planner.cli.planning import find_plan, plan_inputs
from planner.errors import (
    CatalogError,
    InfeasibleError,
    PolicyError,
    Problem,
    UsageError,
)
from planner.spec.model import Batch, Inference

if TYPE_CHECKING:
    from decimal import Decimal

    from planner.cli.compose import PlanningOptions
    from planner.estimate.benchmark_run import RunCost, RunTime
    from planner.estimate.benchmark_sweep import BenchmarkSweep
    from planner.market.offer import Catalog
    from planner.plan.types import Plan
    from planner.solve.settings import SolveSettings
    from planner.solve.solution import SizedPool, Solution

# Until it is known what an hour costs.
DRAFT_TTL_S: Final = 86_400


class MeasuredFleet(Struct, frozen=True, kw_only=True):
    """What a benchmark measures: a spec with lengths, the sweep, and the pool of its plan."""

    spec: Inference | Batch
    sweep: BenchmarkSweep
    pool: SizedPool


class PlannedBench(Struct, frozen=True, kw_only=True):
    """A benchmark that can be carried out.

    spec, solution  of its stack, with what they were solved with
    digests         SHA-256 of the files that the spec names
    allowed_s       seconds that it may take, which cost `most_usd` at most
    """

    spec_file: SpecFile
    spec: Batch
    solution: Solution
    settings: SolveSettings
    digests: dict[str, str]
    sweep: BenchmarkSweep
    time: RunTime
    cost: RunCost
    allowed_s: float
    most_usd: Decimal

    @property
    def pool(self) -> SizedPool:
        """The machine; several where a replica takes several."""
        return self.solution.pools[0]


def plan_bench(
    spec_file: SpecFile,
    catalog: Catalog,
    options: PlanningOptions,
    most_usd: Decimal | None,
) -> PlannedBench:
    """Return the benchmark of the fleet that a spec leads to, within a limit of cost.

    Raises UsageError for what cannot be measured, InfeasibleError where nothing serves the model
    or nobody sells its machine on demand, CatalogError where a price is missing that the limit
    needs, and PolicyError where the limit is below what is expected.
    """
    from planner.estimate.benchmark_run import (
        benchmark_fleet,
        benchmark_spec,
        run_cost,
        run_time,
        time_to_live_s,
    )

    fleet = _measured_fleet(spec_file, catalog, options)
    labels = _own_labels(fleet.spec.labels)
    draft = benchmark_spec(fleet.spec, fleet.sweep, labels, DRAFT_TTL_S)
    digests: dict[str, str] = {}
    settings = solve_settings(
        replace(spec_file, spec=draft),
        own_catalog(catalog, options.prices),
        options,
        digests=digests,
    )
    solution = benchmark_fleet(draft, settings, fleet.pool)
    if solution is None:
        raise _unsold_error(spec_file.path, fleet.sweep)
    cost = run_cost(_draft_plan(spec_file, draft, solution, settings), solution)
    if cost is None:
        raise _unpriced_error(solution)
    time = run_time(fleet.sweep, solution)
    allowed_s = _allowed_s(time, cost, most_usd)
    return PlannedBench(
        spec_file=spec_file,
        spec=benchmark_spec(
            fleet.spec, fleet.sweep, labels, time_to_live_s(allowed_s)
        ),
        solution=solution,
        settings=settings,
        digests=digests,
        sweep=fleet.sweep,
        time=time,
        cost=cost,
        allowed_s=allowed_s,
        most_usd=cost.most_usd(allowed_s),
    )


def stack_plan(
    bench: PlannedBench, options: PlanningOptions, own_range: str
) -> Plan:
    """Return the plan of the stack of a benchmark, with the other zones that it may be in.

    `own_range` has the addresses of its network. Raises SpecError when it cannot be built.
    """
    from planner.plan.document import PlannedStack, SpecSource, assemble
    from planner.spec.network import with_range
    from stacks.build import planned_stack, with_planned_fallbacks

    placed_spec = with_range(bench.spec, own_range)
    stack = planned_stack(
        placed_spec,
        bench.solution,
        PlannedStack(name=bench.spec.name),
        bench.sweep,
    )
    plan = assemble(
        bench.spec,
        bench.solution,
        bench.settings.catalog,
        source=SpecSource(bench.spec_file.path, bench.spec_file.sha256),
        stack=stack,
        inputs=replace(
            plan_inputs(stack.graph.provider, options, bench.digests, ()),
            network_range=own_range,
        ),
    )
    return with_planned_fallbacks(
        plan, placed_spec, bench.settings, bench.solution, bench.sweep
    )


def _measured_fleet(
    spec_file: SpecFile, catalog: Catalog, options: PlanningOptions
) -> MeasuredFleet:
    """Return what is measured of the fleet that a spec leads to. Raises as `plan_bench` does."""
    from planner.estimate.benchmark_sweep import plan_sweep

    spec = spec_file.spec
    if not isinstance(spec, Inference | Batch) or spec.model.name is None:
        raise UsageError(
            Problem(
                code="bench",
                message=f"{spec_file.path} serves no model that has a name",
                cause="a calibration is of a named model that answers requests",
                next_step="measure an Inference or a Batch with model.name",
            )
        )
    if spec.serving.beside:
        raise UsageError(
            Problem(
                code="bench",
                message=f"{spec_file.path} shares its accelerators with other services",
                cause="a calibration is of an engine that has whole accelerators",
                next_step="measure a spec without serving.beside",
            )
        )
    found = find_plan(spec_file, catalog, options)
    pools = [pool for pool in found.solution.pools if pool.layout is not None]
    spec = _with_lengths(spec, spec_file)
    sweep = plan_sweep(found.plan, spec)
    if not pools or sweep is None:
        raise InfeasibleError(
            Problem(
                code="infeasible",
                message=f"{spec_file.path} has no fleet that serves a model",
                next_step=f"run: tonnage plan {spec_file.path}",
            )
        )
    return MeasuredFleet(spec=spec, sweep=sweep, pool=pools[0])


def _with_lengths(
    spec: Inference | Batch, spec_file: SpecFile
) -> Inference | Batch:
    """Return a spec that says its lengths, also where a recording has them."""
    from planner.cli.compose import spec_folder_reader
    from planner.solve.serving.traffic_trace import observed_traffic, read_trace

    if spec.traffic.trace is None:
        return spec
    trace = read_trace(spec.traffic.trace, spec_folder_reader(spec_file.path))
    return replace(spec, traffic=observed_traffic(spec.traffic, trace))


def _own_labels(labels: dict[str, str]) -> dict[str, str]:
    """Return labels without those of production: nobody depends on a benchmark."""
    from stacks.engine.guard import production_label

    return {
        name: value
        for name, value in labels.items()
        if not production_label({name: value})
    }


def _draft_plan(
    spec_file: SpecFile,
    draft: Batch,
    solution: Solution,
    settings: SolveSettings,
) -> Plan:
    """Return a plan that has the bill of a benchmark, and nothing that is created."""
    from planner.plan.document import PlannedStack, SpecSource, assemble

    return assemble(
        draft,
        solution,
        settings.catalog,
        source=SpecSource(spec_file.path, spec_file.sha256),
        stack=PlannedStack(name=draft.name),
    )


def _allowed_s(time: RunTime, cost: RunCost, most_usd: Decimal | None) -> float:
    """Return for how long a benchmark may run. Raises PolicyError when that is too short."""
    if most_usd is None:
        return time.usual_s
    allowed_s = min(time.usual_s, cost.seconds_for(most_usd))
    if allowed_s >= time.expected_s:
        return allowed_s
    least_usd = figures.dollars(cost.most_usd(time.expected_s), cents=True)
    raise PolicyError(
        Problem(
            code="max-cost",
            message=f"the benchmark takes {figures.about(time.expected_s)}, which costs "
            f"{least_usd} at most, and --max-cost is {most_usd:g}",
            next_step="allow more, or measure with shorter lengths",
        )
    )


def _unsold_error(path: str, sweep: BenchmarkSweep) -> InfeasibleError:
    return InfeasibleError(
        Problem(
            code="infeasible",
            message=f"nobody sells {sweep.accelerator} on demand where {path} allows it, for "
            f"TP{sweep.layout.tp} in {sweep.layout.precision}",
            next_step="allow more in where.clouds and where.regions",
        )
    )


def _unpriced_error(solution: Solution) -> CatalogError:
    [pool] = solution.pools
    return CatalogError(
        Problem(
            code="no-price",
            message=f"some of what {pool.instance.instance_type} in {pool.region} takes has no "
            "price",
            cause="so nobody knows what the benchmark costs at most",
            next_step="allow another region, or give the price: --prices FILE",
        )
    )

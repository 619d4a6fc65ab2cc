"""What a benchmark of the planned fleet would be worth: the margin that it removes. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from planner.estimate.benchmark_sweep import measured_alike, plan_sweep
from planner.perf.serving.engine import find_engine
from planner.perf.serving.margin import has_own_errors, rate_errors
from planner.solve.serving.requirement import serving_requirement
from planner.spec.model import Inference
from planner.workload.solver import find

if TYPE_CHECKING:
    from decimal import Decimal

    from planner.estimate.benchmark_sweep import BenchmarkSweep
    from planner.plan.types import Plan
    from planner.solve.settings import SolveSettings
    from planner.solve.solution import FleetSummary
    from planner.spec.model import Spec


class CalibrationWorth(Struct, frozen=True, kw_only=True):
    """A benchmark of a plan's fleet, and the plan once it has measured what is expected.

    usd  cost of that plan in the period of the bill, USD
    """

    sweep: BenchmarkSweep
    fleet: FleetSummary
    usd: Decimal


def calibration_worth(
    plan: Plan, spec: Spec, settings: SolveSettings
) -> CalibrationWorth | None:
    """Return what a calibration of the planned fleet would change.

    It measures what is expected: the mean error of published measurements that the fit had not
    seen. Nothing for a plan that has a calibration, where nobody waits for an answer, and where
    services share accelerators: a calibration is of whole ones.
    """
    if (
        not isinstance(spec, Inference)
        or spec.serving.beside
        or settings.confidence.correction is not None
    ):
        return None
    spec = replace(spec, buy=replace(spec.buy, budget=None))
    sweep = plan_sweep(plan, spec)
    planned = find(spec, settings)
    if sweep is None or planned.llm is None:
        return None
    pool = planned.pools[0]
    assert pool.layout is not None  # noqa: S101 - it serves a model
    load = serving_requirement(spec, settings.read_file).load
    engine_kind = find_engine(load.engine).kind
    error_of = rate_errors(
        planned.llm,
        pool.layout,
        pool.instance.chip,
        load,
        engine_kind=engine_kind,
        is_borrowed=not has_own_errors(engine_kind),
    )
    correction = measured_alike(
        sweep, error_of("decode").mean, error_of("prefill").mean
    )
    solution = find(
        spec,
        replace(
            settings,
            confidence=replace(settings.confidence, correction=correction),
        ),
    )
    if solution.bill is None:
        return None
    return CalibrationWorth(
        sweep=sweep,
        fleet=solution.summary,
        usd=solution.bill.total,
    )

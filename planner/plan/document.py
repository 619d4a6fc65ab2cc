"""Assembly of the plan document from a spec, its solution and its resource graph."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct, field
from msgspec.structs import replace

from planner.cost.bill_line import CENT
from planner.plan import types
from planner.plan.bill import cost_entry
from planner.plan.canonical import seal
from planner.plan.number import optional_money, plain_money, rounded
from planner.plan.pool_entry import fleet_reference, pool_entry
from planner.plan.prediction_entry import (
    limit_entry,
    prediction,
    verification,
)
from planner.plan.run_entry import run_entry
from planner.sentence import describe
from planner.solve.warning import unused_prices
from planner.spec.model import Batch, Inference, Training
from planner.spec.plain import plain_values
from planner.units import (
    MS_PER_S,
    SECONDS_PER_DAY,
)
from planner.version import VERSION
from planner.workload.period import planned_period
from planner.workload.registry import workload_of

if TYPE_CHECKING:
    from collections.abc import Iterable
    from decimal import Decimal

    from planner.cost.energy import Energy
    from planner.facts.llm import Llm
    from planner.market.offer import Catalog
    from planner.perf.serving.correction import Correction
    from planner.plan.quota_shortfall import QuotaShortfall
    from planner.plan.types import Properties
    from planner.solve.cause import Cause
    from planner.solve.rival import RivalFleet
    from planner.solve.solution import (
        BindingLimit,
        ConfidenceCost,
        FleetSummary,
        PlanWarning,
        Solution,
    )
    from planner.spec.model import Spec
    from planner.workload.fallback import FallbackFleet
    from planner.workload.standing import Staying


class SpecSource(Struct, frozen=True):
    """Origin of a spec.

    path    file as named on the command line
    sha256  SHA-256 of the file's bytes
    """

    path: str
    sha256: str


class PlannedStack(Struct, frozen=True, kw_only=True):
    """Stack that a plan creates or changes.

    state_sha256  SHA-256 of the state that the plan starts from; None when no stack exists
    graph         resources to create
    backstop      service outside the program that enforces the shutdown
    launch        how a training job is started
    """

    name: str
    state_sha256: str | None = None
    graph: types.PlannedGraph = field(default_factory=types.PlannedGraph)
    backstop: str | None = None
    launch: types.Launch | None = None


def assemble(
    spec: Spec,
    solution: Solution,
    catalog: Catalog,
    *,
    source: SpecSource,
    stack: PlannedStack,
    inputs: types.PlanInputs | None = None,
    staying: Staying | None = None,
    quota_shortfalls: tuple[QuotaShortfall, ...] = (),
) -> types.Plan:
    """Return the plan document of a solution, with its digest.

    `inputs` is what was read beside the spec and the catalog, `staying` a cheaper fleet that what
    stands is not moved to, and `quota_shortfalls` keep the account from a cheaper one.
    """
    llm = solution.llm
    workload = workload_of(spec)
    plan = types.Plan(
        tool_version=VERSION,
        catalog=types.CatalogRef(sha256=catalog.sha256, as_of=catalog.as_of),
        spec=types.SpecRef(
            path=source.path,
            sha256=source.sha256,
            normalized=normalized_spec(spec),
        ),
        inputs=inputs or types.PlanInputs(),
        workload=types.WorkloadRef(
            kind=workload.name,
            name=spec.name,
            model=_model(llm) if llm is not None else None,
            weights=(
                spec.model.weights
                if isinstance(spec, Inference | Batch)
                else None
            ),
        ),
        solution=replace(
            _outcome(solution, _metric_limits(spec)), stays=_stay(staying)
        ),
        alternatives=tuple(map(_alternative, solution.alternatives)),
        cost=cost_entry(
            solution,
            planned_period(spec),
            workload.name,
            catalog,
            spec.shutdown,
        ),
        graph=stack.graph,
        launch=stack.launch,
        stack=types.StackRef(name=stack.name, state_sha256=stack.state_sha256),
        shutdown=types.Shutdown(
            idle=optional_money(spec.shutdown.idle),
            ttl=optional_money(spec.shutdown.ttl),
            schedule=spec.shutdown.schedule,
            backstop=stack.backstop,
        ),
        warnings=tuple(
            _notice(warning)
            for warning in (*solution.warnings, *unused_prices(catalog))
        ),
        quota_shortfalls=quota_shortfalls,
    )
    # The digest covers every field, so it comes last.
    return seal(plan)


def with_fallbacks(
    plan: types.Plan,
    spec: Spec,
    catalog: Catalog,
    fleets: Iterable[tuple[FallbackFleet, PlannedStack]],
    plugins: dict[str, str],
) -> types.Plan:
    """Return a plan with what may be bought instead, each fleet with the stack of it.

    `plugins` are versions of the providers that these need.
    """
    period, workload = planned_period(spec), workload_of(spec).name
    fallbacks = tuple(
        types.Fallback(
            kind=fleet.kind,
            zone=(
                fleet.solution.pools[0].zones[0]
                if fleet.kind == "zone"
                else None
            ),
            chance=fleet.chance,
            pools=tuple(
                pool_entry(pool, pool.week or fleet.solution.week)
                for pool in fleet.solution.pools
            ),
            predicted={
                metric: prediction(estimate)
                for metric, estimate in fleet.solution.predictions.items()
            },
            verified=verification(fleet.solution.simulation_check),
            cost=cost_entry(
                fleet.solution, period, workload, catalog, spec.shutdown
            ),
            graph=stack.graph,
        )
        for fleet, stack in fleets
    )
    if not fallbacks:
        return plan
    inputs = replace(plan.inputs, plugins={**plan.inputs.plugins, **plugins})
    return seal(replace(plan, fallbacks=fallbacks, inputs=inputs))


def with_changes(plan: types.Plan, changes: types.Changes) -> types.Plan:
    """Return a plan with what it does to the stack that stands."""
    return seal(replace(plan, changes=changes))


def with_reasons(plan: types.Plan, solution: Solution) -> types.Plan:
    """Return a plan with what each wish of the spec costs, as its solution has it now."""
    notices = map(_notice, solution.warnings)
    return seal(
        replace(
            plan,
            solution=replace(
                plan.solution,
                binding=tuple(map(_binding, solution.bindings)),
                safety=_safety(solution.confidence_cost),
            ),
            alternatives=tuple(map(_alternative, solution.alternatives)),
            warnings=(
                *plan.warnings,
                *(notice for notice in notices if notice not in plan.warnings),
            ),
        )
    )


def normalized_spec(spec: Spec) -> Properties:
    """Return a spec with its defaults filled in, as a plan has it: comments make no difference."""
    return {
        "apiVersion": "tonnage/v1",
        "kind": type(spec).__name__,
        **plain_values(spec),
    }


def _stay(staying: Staying | None) -> types.Stay | None:
    if staying is None:
        return None
    return types.Stay(
        fleet=fleet_reference(staying.fleet),
        saves_usd_month=plain_money(staying.saved_usd),
        moving_usd=plain_money(staying.moving_usd.quantize(CENT)),
    )


def _model(llm: Llm) -> types.ModelRef:
    return types.ModelRef(
        name=llm.model,
        family=llm.family,
        params=rounded(llm.params),
        active_params=rounded(llm.active_params),
        source=llm.source,
    )


def _outcome(
    solution: Solution, metric_limits: dict[str, float]
) -> types.Outcome:
    return types.Outcome(
        status=solution.status,
        # Without one the simulation is undecided, unless the plan is proved.
        gap=str(solution.gap)
        if solution.gap or solution.status == "optimal"
        else None,
        considered=solution.offers_considered,
        funnel=tuple(
            types.FunnelStep(rule=rule_name, offers=remaining_offers)
            for rule_name, remaining_offers in solution.funnel
        ),
        pools=tuple(
            pool_entry(sized_pool, sized_pool.week or solution.week)
            for sized_pool in solution.pools
        ),
        predicted={
            metric: prediction(estimate)
            for metric, estimate in solution.predictions.items()
        },
        limits={
            metric: limit_entry(solution.predictions[metric], limit)
            for metric, limit in metric_limits.items()
            if metric in solution.predictions
        },
        binding=tuple(map(_binding, solution.bindings)),
        safety=_safety(solution.confidence_cost),
        verified=verification(solution.simulation_check),
        calibration=_calibration(solution.calibration),
        run=run_entry(solution.training_run),
        energy=_energy(solution.energy),
    )


def _metric_limits(spec: Spec) -> dict[str, float]:
    """Return the limits of a spec by the metric that they are for, in its unit.

    The machines of a batch are given back at the time to live, so that its run ends before.
    """
    if isinstance(spec, Inference) and spec.sla is not None:
        return {
            f"{limit.metric}_p{limit.percentile}_ms": float(limit.seconds)
            * MS_PER_S
            for limit in spec.sla.limits
        }
    run_limits_s: tuple[Decimal | None, ...] = ()
    if isinstance(spec, Batch):
        run_limits_s = (spec.deadline, spec.shutdown.ttl)
    elif isinstance(spec, Training):
        run_limits_s = (spec.train.deadline,)
    known_limits_s = [
        limit_s for limit_s in run_limits_s if limit_s is not None
    ]
    if not known_limits_s:
        return {}
    return {"duration_days": float(min(known_limits_s)) / SECONDS_PER_DAY}


def _safety(confidence_cost: ConfidenceCost | None) -> types.Safety | None:
    if confidence_cost is None:
        return None
    return types.Safety(
        confidence=rounded(confidence_cost.confidence),
        usd_month=optional_money(confidence_cost.extra_usd_month),
        # The fleet that meets the limits with 50 % confidence.
        fleet=_fleet(confidence_cost.even_odds_fleet),
        unpriced=confidence_cost.unpriced,
    )


def _calibration(correction: Correction | None) -> types.Calibration | None:
    if correction is None:
        return None
    return types.Calibration(
        sha256=correction.sha256,
        accelerator=correction.accelerator,
        points=correction.points,
    )


def _energy(energy: Energy | None) -> types.EnergyUse | None:
    if energy is None:
        return None
    return types.EnergyUse(
        kw=rounded(energy.kw),
        kwh=rounded(energy.kwh),
        kg_co2e=None if energy.kg_co2e is None else rounded(energy.kg_co2e),
    )


def _fleet(fleet: FleetSummary | None) -> types.FleetRef | None:
    return None if fleet is None else fleet_reference(fleet)


def _binding(limit: BindingLimit) -> types.Binding:
    return types.Binding(
        constraint=limit.constraint,
        slack=None if limit.slack is None else rounded(limit.slack),
        relax_to=describe(limit.relax_to),
        saves_usd_month=optional_money(limit.saves_usd),
        usd_month=optional_money(limit.usd),
        fleet=_fleet(limit.fleet),
        unpriced=limit.unpriced,
    )


def _alternative(rival_fleet: RivalFleet) -> types.Alternative:
    offer = rival_fleet.offer
    rival_pool = types.RivalPool(
        provider=offer.provider,
        region=offer.region,
        instance_type=offer.instance.instance_type,
        accelerator=offer.instance.accelerator,
        nodes=rival_fleet.nodes,
        purchase=offer.purchase,
        usd_per_hour=plain_money(offer.usd_hour),
    )
    return types.Alternative(
        pools=(rival_pool,),
        usd_month=plain_money(rival_fleet.usd),
        unpriced=rival_fleet.unpriced,
        is_bound=rival_fleet.is_bound,
        rejected_by=describe(rival_fleet.rejected_by),
        reason=_reason(rival_fleet.rejected_by),
    )


def _reason(cause: Cause) -> types.Reason:
    return types.Reason(
        code=cause.code,
        key=cause.key or None,
        values={
            name: value if isinstance(value, str) else rounded(float(value))
            for name, value in cause.values.items()
        },
    )


def _notice(warning: PlanWarning) -> types.Notice:
    place = warning.place
    return types.Notice(
        code=warning.code,
        message=describe(warning.reason),
        reason=_reason(warning.reason),
        path=place.path if place else None,
        line=place.line if place else None,
        column=place.column if place else None,
    )

"""Assembly of the plan document from a spec, its solution and its resource graph."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct, field
from msgspec.structs import replace

from planner.cost.bill_line import CENT
from planner.perf.training.enumeration import recomputed_layers
from planner.plan import types
from planner.plan.bill import cost_entry
from planner.plan.canonical import seal
from planner.plan.number import optional_money, plain_money, rounded
from planner.plan.pool_entry import pool_entry
from planner.sentence import describe
from planner.solve.warning import unused_prices
from planner.spec.model import Batch, Inference, Training
from planner.spec.plain import plain_values
from planner.units import (
    BYTES_PER_GB,
    BYTES_PER_MB,
    MS_PER_S,
    SECONDS_PER_DAY,
    SECONDS_PER_HOUR,
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
    from planner.perf.training.layout_search import TimedLayout
    from planner.plan.quota_shortfall import QuotaShortfall
    from planner.plan.types import Properties
    from planner.solve.cause import Cause
    from planner.solve.solution import (
        BandedPrediction,
        BindingLimit,
        ConfidenceCost,
        FleetSummary,
        JobLoader,
        JobStorage,
        KeptCheckpoints,
        MachineLife,
        PlanWarning,
        RivalFleet,
        SimulationCheck,
        Solution,
        TradeOff,
        TrainingRun,
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
                pool_entry(pool, fleet.solution.week)
                for pool in fleet.solution.pools
            ),
            predicted={
                metric: prediction(estimate)
                for metric, estimate in fleet.solution.predictions.items()
            },
            verified=_verification(fleet.solution.simulation_check),
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
        # The search is exact: an optimal plan is proved to have no gap.
        gap="0" if solution.status == "optimal" else None,
        considered=solution.offers_considered,
        funnel=tuple(
            types.FunnelStep(rule=rule_name, offers=remaining_offers)
            for rule_name, remaining_offers in solution.funnel
        ),
        pools=tuple(
            pool_entry(sized_pool, solution.week)
            for sized_pool in solution.pools
        ),
        predicted={
            metric: prediction(estimate)
            for metric, estimate in solution.predictions.items()
        },
        limits={
            metric: _limit(solution.predictions[metric], limit)
            for metric, limit in metric_limits.items()
            if metric in solution.predictions
        },
        binding=tuple(map(_binding, solution.bindings)),
        safety=_safety(solution.confidence_cost),
        verified=_verification(solution.simulation_check),
        calibration=_calibration(solution.calibration),
        run=_run(solution.training_run),
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


def prediction(estimate: BandedPrediction) -> types.Prediction:
    """Return a prediction with its band and basis, rounded to six digits."""
    return types.Prediction(
        value=rounded(estimate.value),
        low=rounded(estimate.low),
        high=rounded(estimate.high),
        basis=estimate.basis,
    )


def _limit(estimate: BandedPrediction, limit: float) -> types.MetricLimit:
    """Return a limit with what the predicted value leaves of it.

    headroom = 1 - value / limit
    """
    return types.MetricLimit(
        limit=rounded(limit), headroom=rounded(1 - estimate.value / limit)
    )


def _safety(confidence_cost: ConfidenceCost | None) -> types.Safety | None:
    if confidence_cost is None:
        return None
    return types.Safety(
        confidence=rounded(confidence_cost.confidence),
        usd_month=optional_money(confidence_cost.extra_usd_month),
        # The fleet that meets the limits with 50 % confidence.
        fleet=_fleet(confidence_cost.even_odds_fleet),
    )


def _verification(
    simulation_check: SimulationCheck | None,
) -> types.Verification | None:
    if simulation_check is None:
        return None
    return types.Verification(
        verdict=simulation_check.verdict,
        requests=simulation_check.request_count,
        requests_of=simulation_check.request_source,
        routing=simulation_check.routing,
        batches=simulation_check.batch_count,
        decode_factor=rounded(simulation_check.decode_factor),
        prefill_factor=rounded(simulation_check.prefill_factor),
        added_groups=simulation_check.added_groups,
        found={
            metric: types.PercentileBand(
                value=rounded(value),
                # A time is never below 0, whatever the spread of the batches.
                low=rounded(max(0.0, low)),
                high=rounded(high),
            )
            for metric, (
                value,
                low,
                high,
            ) in simulation_check.percentile_bands.items()
        },
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


def _run(training_run: TrainingRun | None) -> types.Run | None:
    if training_run is None:
        return None
    # Median and 90th percentile of the simulated runs.
    hours_p50, hours_p90 = training_run.hours_p50_p90
    usd_p50, usd_p90 = training_run.usd_p50_p90
    return types.Run(
        method=training_run.method,
        tokens=rounded(training_run.total_tokens),
        steps=training_run.optimizer_steps,
        sequence=training_run.sequence_tokens,
        global_batch=training_run.global_batch,
        checkpoint_interval_s=rounded(training_run.checkpoint_interval_s),
        checkpoint_blocks_s=rounded(training_run.checkpoint_stall_s),
        checkpoint_gb=rounded(training_run.checkpoint_bytes / BYTES_PER_GB),
        checkpoints=_checkpoint_rule(training_run.checkpoints_kept),
        billed_hours=_billed_time(training_run.machine_life),
        stops=rounded(training_run.interruptions),
        spares=training_run.spare_nodes,
        hours_p50=rounded(hours_p50),
        hours_p90=rounded(hours_p90),
        usd_p50=plain_money(usd_p50),
        usd_p90=plain_money(usd_p90),
        storage=_storage(training_run.storage),
        loader=_loader(training_run.loader),
        layouts=tuple(
            training_layout(timed_layout)
            for timed_layout in training_run.layouts
        ),
        ways=tuple(
            types.RunScenario(
                way=scenario.name,
                usd=optional_money(scenario.usd),
                hours_p90=None
                if scenario.duration_hours is None
                else rounded(scenario.duration_hours),
                remark=describe(scenario.remark) if scenario.remark else "",
            )
            for scenario in training_run.scenarios
        ),
        curve=tuple(_curve_point(point) for point in training_run.curve),
    )


def _checkpoint_rule(kept: KeptCheckpoints) -> types.CheckpointRule:
    return types.CheckpointRule(
        last=kept.keep_last,
        every_s=rounded(kept.keep_every_s),
        left=kept.left,
        left_gb=rounded(kept.left_bytes / BYTES_PER_GB),
        left_usd_month=None
        if kept.left_usd_month is None
        else plain_money(kept.left_usd_month.quantize(CENT)),
    )


def _billed_time(life: MachineLife) -> types.BilledTime:
    return types.BilledTime(
        start=rounded(life.start_s / SECONDS_PER_HOUR),
        steps=rounded(life.steps_s / SECONDS_PER_HOUR),
        lost=rounded(life.lost_s / SECONDS_PER_HOUR),
        closing=rounded(life.closing_s / SECONDS_PER_HOUR),
        release=rounded(life.release_s / SECONDS_PER_HOUR),
        total=rounded(life.billed_s / SECONDS_PER_HOUR),
    )


def _curve_point(point: TradeOff) -> types.CurvePoint:
    return types.CurvePoint(
        fleet=fleet_reference(point.fleet),
        purchase=point.purchase,
        accelerators=point.accelerators,
        hours=rounded(point.duration_hours),
        usd=plain_money(point.usd),
        mfu=rounded(point.mfu),
        chosen=point.is_chosen,
        knee=point.is_knee,
        violates=point.violates or None,
    )


def _storage(storage: JobStorage) -> types.StorageSpeed:
    file_system = storage.file_system
    return types.StorageSpeed(
        # Without a file system the job reads and writes object storage.
        kind="object" if file_system is None else "parallel",
        gib=file_system.capacity_gib if file_system else None,
        mb_s_tib=file_system.mb_s_per_tib if file_system else None,
        wanted_mb_s=rounded(storage.required_bytes_per_s / BYTES_PER_MB),
        given_mb_s=rounded(storage.supplied_bytes_per_s / BYTES_PER_MB),
        checkpoint_write_s=rounded(storage.checkpoint_write_s),
        checkpoint_load_s=rounded(storage.checkpoint_load_s),
    )


def _loader(loader: JobLoader | None) -> types.LoaderSpeed | None:
    if loader is None:
        return None
    return types.LoaderSpeed(
        form=loader.form,
        cores=rounded(loader.cores),
        workers=loader.workers,
        wanted_s=rounded(loader.wanted_s),
        given_s=rounded(loader.given_s),
    )


def training_layout(timed_layout: TimedLayout) -> types.TrainingLayout:
    """Return a training layout with step time (s) and peak memory (GiB), rounded."""
    layout = timed_layout.job.layout
    return types.TrainingLayout(
        tp=layout.tp,
        pp=layout.pp,
        vpp=layout.vpp,
        cp=layout.cp,
        ep=layout.ep,
        dp=layout.dp,
        sharding=layout.sharding,
        shard=layout.shard_size,
        micro_batch=rounded(layout.micro),
        recompute=layout.recompute,
        recomputed_layers=recomputed_layers(
            layout, timed_layout.job.llm.layers
        ),
        precision=timed_layout.job.software.precision,
        step_time_s=rounded(timed_layout.step_time.total),
        peak_gib=rounded(timed_layout.peak_gib),
        limit=timed_layout.bottleneck,
    )


def _fleet(fleet: FleetSummary | None) -> types.FleetRef | None:
    return None if fleet is None else fleet_reference(fleet)


def fleet_reference(fleet: FleetSummary) -> types.FleetRef:
    """Return a fleet that is named and not bought, as the document has it."""
    return types.FleetRef(
        provider=fleet.provider,
        region=fleet.region,
        instance_type=fleet.instance_type,
        nodes=fleet.nodes,
    )


def _binding(limit: BindingLimit) -> types.Binding:
    return types.Binding(
        constraint=limit.constraint,
        slack=None if limit.slack is None else rounded(limit.slack),
        relax_to=describe(limit.relax_to),
        saves_usd_month=optional_money(limit.saves_usd),
        usd_month=optional_money(limit.usd),
        fleet=_fleet(limit.fleet),
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

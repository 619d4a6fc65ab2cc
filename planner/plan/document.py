"""Assembly of the plan document from a spec, its solution and its resource graph."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import TYPE_CHECKING, Final

from msgspec import Struct, field

from planner.plan import types
from planner.plan.canonical import seal
from planner.sentence import describe
from planner.spec.load import plain_values
from planner.units import BYTES_PER_GB, BYTES_PER_MB
from planner.version import VERSION
from planner.workload.registry import workload_of

if TYPE_CHECKING:
    from planner.cost.bill import Bill
    from planner.cost.bill_line import BillLine
    from planner.cost.energy import Energy
    from planner.facts.llm import Llm
    from planner.market.offer import Catalog
    from planner.perf.serving.correction import Correction
    from planner.perf.training.layout_search import TimedLayout
    from planner.plan.types import Properties
    from planner.solve.cause import Cause
    from planner.solve.solution import (
        BandedPrediction,
        BindingLimit,
        ConfidenceCost,
        FleetSummary,
        JobStorage,
        PlanWarning,
        PoolPurchase,
        RivalFleet,
        SimulationCheck,
        SizedPool,
        Solution,
        TrainingRun,
    )
    from planner.spec.model import Spec

EXCLUDED_COSTS: Final = (
    "tax",
    "support plans",
    "private discounts",
    "data transfer between regions",
)
# More digits would be noise, and would differ from machine to machine.
SIGNIFICANT_DIGITS: Final = 6


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
) -> types.Plan:
    """Return the plan document of a solution, with its digest."""
    llm = solution.llm
    workload = workload_of(spec)
    plan = types.Plan(
        tool_version=VERSION,
        catalog=types.CatalogRef(sha256=catalog.sha256, as_of=catalog.as_of),
        spec=types.SpecRef(
            path=source.path,
            sha256=source.sha256,
            normalized=_normalized_spec(spec),
        ),
        workload=types.WorkloadRef(
            kind=workload.name,
            name=spec.name,
            model=_model(llm) if llm is not None else None,
        ),
        solution=_outcome(solution),
        alternatives=tuple(
            _alternative(rival_fleet) for rival_fleet in solution.alternatives
        ),
        cost=_cost(solution.bill, workload.period),
        graph=stack.graph,
        launch=stack.launch,
        stack=types.StackRef(name=stack.name, state_sha256=stack.state_sha256),
        shutdown=types.Shutdown(
            idle=_optional_money(spec.shutdown.idle),
            ttl=_optional_money(spec.shutdown.ttl),
            schedule=spec.shutdown.schedule,
            backstop=stack.backstop,
        ),
        warnings=tuple(_notice(warning) for warning in solution.warnings),
    )
    # The digest covers every field, so it comes last.
    return seal(plan)


def _normalized_spec(spec: Spec) -> Properties:
    return {
        "apiVersion": "tonnage/v1",
        "kind": type(spec).__name__,
        **plain_values(spec),
    }


def _model(llm: Llm) -> types.ModelRef:
    return types.ModelRef(
        name=llm.model,
        family=llm.family,
        params=rounded(llm.params),
        active_params=rounded(llm.active_params),
        source=llm.source,
    )


def _outcome(solution: Solution) -> types.Outcome:
    return types.Outcome(
        status=solution.status,
        # The search is exact: an optimal plan is proved to have no gap.
        gap="0" if solution.status == "optimal" else None,
        considered=solution.offers_considered,
        funnel=tuple(
            types.FunnelStep(rule=rule_name, offers=remaining_offers)
            for rule_name, remaining_offers in solution.funnel
        ),
        pools=tuple(_pool(sized_pool) for sized_pool in solution.pools),
        predicted={
            metric: prediction(estimate)
            for metric, estimate in solution.predictions.items()
        },
        binding=tuple(_binding(limit) for limit in solution.bindings),
        safety=_safety(solution.confidence_cost),
        verified=_verification(solution.simulation_check),
        calibration=_calibration(solution.calibration),
        run=_run(solution.training_run),
        energy=_energy(solution.energy),
    )


def _pool(pool: SizedPool) -> types.Pool:
    instance = pool.instance
    layout = pool.layout
    purchase_names = {part.purchase for part in pool.purchases}
    return types.Pool(
        name=pool.name,
        provider=instance.provider,
        region=pool.region,
        zones=tuple(sorted(pool.zones)),
        instance_type=instance.instance_type,
        accelerator=instance.accelerator,
        accelerators_per_node=instance.accelerators,
        nodes=pool.nodes,
        min_nodes=pool.min_nodes,
        purchase=purchase_names.pop() if len(purchase_names) == 1 else "mixed",
        purchases=tuple(_purchase(part) for part in pool.purchases),
        role=pool.role,
        replicas=pool.replicas,
        layout=None
        if layout is None
        else types.Layout(
            precision=layout.precision,
            kv_precision=layout.kv_precision,
            tp=layout.tp,
            pp=layout.pp,
            ep=layout.ep,
            dp=layout.dp,
            cp=layout.cp,
            max_batch=pool.max_batch,
        ),
        usd_per_hour=plain_money(pool.usd_hour),
    )


def _purchase(part: PoolPurchase) -> types.Purchase:
    # reserved_1y has the term 1y; other purchases have no term.
    _, _, term = part.purchase.partition("reserved_")
    return types.Purchase(
        purchase=part.purchase,
        nodes=part.nodes,
        usd_per_hour=plain_money(part.usd_hour),
        term=term or None,
    )


def prediction(estimate: BandedPrediction) -> types.Prediction:
    """Return a prediction with its band and basis, rounded to six digits."""
    return types.Prediction(
        value=rounded(estimate.value),
        low=rounded(estimate.low),
        high=rounded(estimate.high),
        basis=estimate.basis,
    )


def _safety(confidence_cost: ConfidenceCost | None) -> types.Safety | None:
    if confidence_cost is None:
        return None
    return types.Safety(
        confidence=rounded(confidence_cost.confidence),
        usd_month=plain_money(confidence_cost.extra_usd_month),
        # The fleet that meets the limits with 50 % confidence.
        fleet=_fleet(confidence_cost.even_odds_fleet),
    )


def _verification(
    simulation_check: SimulationCheck | None,
) -> types.Verification | None:
    if simulation_check is None:
        return None
    return types.Verification(
        passed=simulation_check.passed,
        requests=simulation_check.request_count,
        requests_of=simulation_check.request_source,
        routing=simulation_check.routing,
        seeds=simulation_check.seed_count,
        added_groups=simulation_check.added_groups,
        found={
            metric: types.PercentileBand(
                value=rounded(value), low=rounded(low), high=rounded(high)
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
        stops=rounded(training_run.interruptions),
        spares=training_run.spare_nodes,
        hours_p50=rounded(hours_p50),
        hours_p90=rounded(hours_p90),
        usd_p50=plain_money(usd_p50),
        usd_p90=plain_money(usd_p90),
        storage=_storage(training_run.storage),
        layouts=tuple(
            training_layout(timed_layout)
            for timed_layout in training_run.layouts
        ),
        ways=tuple(
            types.RunScenario(
                way=scenario.name,
                usd=_optional_money(scenario.usd),
                hours_p90=None
                if scenario.duration_hours is None
                else rounded(scenario.duration_hours),
                remark=describe(scenario.remark) if scenario.remark else "",
            )
            for scenario in training_run.scenarios
        ),
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
        precision=timed_layout.job.software.precision,
        step_time_s=rounded(timed_layout.step_time.total),
        peak_gib=rounded(timed_layout.peak_gib),
        limit=timed_layout.bottleneck,
    )


def _fleet(fleet: FleetSummary | None) -> types.FleetRef | None:
    if fleet is None:
        return None
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
        saves_usd_month=_optional_money(limit.saves_usd),
        usd_month=_optional_money(limit.usd),
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


def _cost(bill: Bill | None, period: types.Period) -> types.Cost:
    """Return the cost part; without a bill (infeasible plan) all costs are 0."""
    if bill is None:
        return types.Cost(
            period=period,
            total=Decimal(0),
            usd_hour=Decimal(0),
            # A training job has a cost for its run, none for a month.
            usd_month=Decimal(0) if period == "month" else None,
            lines=(),
            excludes=tuple(sorted(EXCLUDED_COSTS)),
        )
    total = plain_money(bill.total)
    return types.Cost(
        period=bill.period,
        total=total,
        usd_hour=plain_money(bill.usd_hour),
        usd_month=total if bill.period == "month" else None,
        lines=tuple(_cost_line(bill_line) for bill_line in bill.lines),
        # The total has no line whose price is unknown.
        excludes=tuple(sorted([*EXCLUDED_COSTS, *bill.unpriced_lines])),
    )


def _cost_line(bill_line: BillLine) -> types.CostLine:
    return types.CostLine(
        name=bill_line.name,
        kind=bill_line.kind,
        unit=bill_line.unit,
        quantity=plain_money(bill_line.quantity),
        unit_price=_optional_money(bill_line.unit_price),
        usd=_optional_money(bill_line.usd),
        pool=bill_line.pool or None,
        price_source=bill_line.source or None,
        price_as_of=bill_line.as_of or None,
        price_found=bill_line.is_priced,
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


def plain_money(amount: Decimal) -> Decimal:
    """Return an equal decimal whose text has no exponent."""
    return Decimal(format(amount, "f"))


def _optional_money(amount: Decimal | None) -> Decimal | None:
    # None is an unknown amount, which differs from 0.
    return None if amount is None else plain_money(amount)


def rounded(number: float) -> types.Number:
    """Return the number with six significant digits, as an integer when it is whole."""
    # JSON has no infinity and no NaN.
    if number == 0 or not math.isfinite(number):
        return 0
    # Decimal places; negative for numbers of more than six digits.
    digits = SIGNIFICANT_DIGITS - 1 - math.floor(math.log10(abs(number)))
    short_number = round(number, digits)
    if short_number == int(short_number):
        return int(short_number)
    return short_number

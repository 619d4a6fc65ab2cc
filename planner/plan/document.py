"""Assembles the plan document from a spec, its solution and its graph."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

from planner.cost.energy import PoweredMachine, machine_energy
from planner.plan.canonical import SCHEMA, with_digest
from planner.spec.load import plain_values
from planner.spec.model import Batch, Inference, Training, Workspace
from planner.version import VERSION

if TYPE_CHECKING:
    from decimal import Decimal

    from planner.cost.bill_line import BillLine
    from planner.market.offer import Catalog
    from planner.perf.serving.correction import Correction
    from planner.perf.training.layout_search import TimedLayout
    from planner.solve.solution import (
        RivalFleet,
        BindingLimit,
        ConfidenceCost,
        PlanWarning,
        SizedPool,
        BandedPrediction,
        RunStorage,
        SimulationCheck,
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
SIGNIFICANT_DIGITS: Final = 6


def assemble(
    spec: Spec,
    source: tuple[str, str],
    catalog: Catalog,
    solution: Solution,
    stack: dict[str, Any],
) -> dict[str, Any]:
    """Return the sealed document.

    `source` is the path and SHA-256 of the spec. `stack` holds graph, backstop, name, the digest
    of the state that the plan was made on (None: the stack does not exist) and, of a training
    job, how it is launched.
    """
    return with_digest(
        {
            "schema": SCHEMA,
            "tool_version": VERSION,
            "catalog": {"sha256": catalog.sha256, "as_of": catalog.as_of},
            "spec": {
                "path": source[0],
                "sha256": source[1],
                "normalized": _normalized_spec(spec),
            },
            "workload": _workload(spec, solution),
            "solution": {
                "status": solution.status,
                "gap": "0" if solution.status == "optimal" else None,
                "solve_ms": None,
                "considered": solution.offers_considered,
                "funnel": [
                    {"rule": rule_name, "offers": remaining_offers}
                    for rule_name, remaining_offers in solution.funnel
                ],
                "pools": [_pool(element) for element in solution.pools],
                "predicted": {
                    metric: predicted_data(element)
                    for metric, element in solution.predictions.items()
                },
                "binding": [
                    _binding(constraint) for constraint in solution.bindings
                ],
                "safety": _safety(solution.confidence_cost),
                "verified": _verified(solution.simulation_check),
                "calibration": _calibration(solution.calibration),
                "run": _run(solution.training_run),
                "energy": _energy(solution),
            },
            "alternatives": [
                _alternative(alternative)
                for alternative in solution.alternatives
            ],
            "cost": _cost(solution),
            "graph": stack["graph"],
            "launch": stack["launch"],
            "stack": {
                "name": stack["name"],
                "state_sha256": stack["state_sha256"],
            },
            "shutdown": {**_shutdown(spec), "backstop": stack["backstop"]},
            "warnings": [_warning(warning) for warning in solution.warnings],
        }
    )


def _normalized_spec(spec: Spec) -> dict[str, Any]:
    normalized: dict[str, Any] = plain_values(spec)
    return {
        "apiVersion": "tonnage/v1",
        "kind": type(spec).__name__,
        **normalized,
    }


def _workload(spec: Spec, solution: Solution) -> dict[str, Any]:
    kind_names = {
        Inference: "inference",
        Batch: "batch",
        Training: "training",
        Workspace: "workspace",
    }
    workload: dict[str, Any] = {
        "kind": kind_names[type(spec)],
        "name": spec.name,
    }
    if solution.llm is not None:
        language_model = solution.llm
        workload["model"] = {
            "name": language_model.model,
            "family": language_model.family,
            "params": _rounded(language_model.params),
            "active_params": _rounded(language_model.active_params),
            "source": language_model.source,
        }
    return workload


def _pool(pool: SizedPool) -> dict[str, Any]:
    offer = pool.offer
    layout = pool.layout
    return {
        "provider": offer.provider,
        "region": offer.region,
        "zones": sorted(offer.zones),
        "instance_type": offer.instance.instance_type,
        "accelerator": offer.instance.accelerator,
        "accelerators_per_node": offer.instance.accelerators,
        "nodes": pool.nodes,
        "nodes_least": pool.min_nodes,
        "purchase": offer.purchase,
        "role": pool.role,
        "replicas": pool.replicas,
        "layout": None
        if layout is None
        else {
            "precision": layout.precision,
            "kv_precision": layout.kv_precision,
            "tp": layout.tp,
            "pp": layout.pp,
            "ep": layout.ep,
            "dp": layout.dp,
            "cp": layout.cp,
            "max_batch": pool.max_batch,
        },
        "usd_per_hour": decimal_text(offer.usd_hour),
    }


def predicted_data(estimate: BandedPrediction) -> dict[str, Any]:
    """Return a predicted number, its band and what it rests on as data."""
    return {
        "value": _rounded(estimate.value),
        "low": _rounded(estimate.low),
        "high": _rounded(estimate.high),
        "basis": estimate.basis,
    }


def _safety(safety: ConfidenceCost | None) -> dict[str, Any] | None:
    if safety is None:
        return None
    return {
        "confidence": _rounded(safety.confidence),
        "usd_month": _optional_decimal(safety.extra_usd_month),
        "fleet": safety.even_odds_fleet,
    }


def _verified(verification: SimulationCheck | None) -> dict[str, Any] | None:
    if verification is None:
        return None
    return {
        "by": "simulation",
        "passed": verification.passed,
        "requests": verification.request_count,
        "requests_of": verification.request_source,
        "routing": verification.routing,
        "seeds": verification.seed_count,
        "added_groups": verification.added_groups,
        "found": {
            metric: dict(
                zip(
                    ("value", "low", "high"),
                    map(_rounded, estimate_band),
                    strict=True,
                )
            )
            for metric, estimate_band in verification.percentile_bands.items()
        },
    }


def _energy(solution: Solution) -> dict[str, Any] | None:
    """Energy of the hours that the first line of the bill pays."""
    if not solution.pools or solution.bill is None:
        return None
    first_pool = solution.pools[0]
    instance = solution.pools[0].offer.instance
    energy_machine = PoweredMachine(
        provider=instance.provider,
        region=first_pool.offer.region,
        chip=instance.chip,
        board_count=instance.accelerators * instance.fraction,
        role=first_pool.role,
    )
    consumption = machine_energy(
        energy_machine, first_pool.nodes, solution.bill.lines[0].quantity
    )
    if consumption is None:
        return None
    carbon_kg = (
        None if consumption.kg_co2e is None else _rounded(consumption.kg_co2e)
    )
    return {
        "kw": _rounded(consumption.kw),
        "kwh": _rounded(consumption.kwh),
        "kg_co2e": carbon_kg,
    }


def _run(training_run: TrainingRun | None) -> dict[str, Any] | None:
    if training_run is None:
        return None
    return {
        "method": training_run.method,
        "tokens": _rounded(training_run.total_tokens),
        "steps": training_run.optimizer_steps,
        "sequence": training_run.sequence_tokens,
        "global_batch": training_run.global_batch,
        "checkpoint_interval_s": _rounded(training_run.checkpoint_interval_s),
        "checkpoint_blocks_s": _rounded(training_run.checkpoint_stall_s),
        "checkpoint_gb": _rounded(training_run.checkpoint_bytes / 1e9),
        "stops": _rounded(training_run.interruptions),
        "spares": training_run.spare_nodes,
        "hours_p50": _rounded(training_run.hours_p50_p90[0]),
        "hours_p90": _rounded(training_run.hours_p50_p90[1]),
        "usd_p50": _optional_decimal(training_run.usd_p50_p90[0]),
        "usd_p90": _optional_decimal(training_run.usd_p50_p90[1]),
        "storage": _storage(training_run.storage),
        "layouts": [
            layout_data(timed_layout) for timed_layout in training_run.layouts
        ],
        "ways": [
            {
                "way": scenario.name,
                "usd": None
                if scenario.usd is None
                else _optional_decimal(scenario.usd),
                "hours_p90": None
                if scenario.duration_hours is None
                else _rounded(scenario.duration_hours),
                "remark": scenario.remark,
            }
            for scenario in training_run.scenarios
        ],
    }


def _storage(storage: RunStorage) -> dict[str, Any]:
    """Where data and checkpoints lie; MB/s that the job reads and that storage gives."""
    storage_kind = (
        {"kind": "object"}
        if storage.file_system is None
        else {
            "kind": "parallel",
            "gib": storage.file_system.capacity_gib,
            "mb_s_tib": storage.file_system.mb_s_per_tib,
        }
    )
    return {
        **storage_kind,
        "wanted_mb_s": _rounded(storage.required_bytes_per_s / 1e6),
        "given_mb_s": _rounded(storage.supplied_bytes_per_s / 1e6),
        "checkpoint_write_s": _rounded(storage.checkpoint_write_s),
    }


def layout_data(timed_layout: TimedLayout) -> dict[str, Any]:
    """Return a layout of a training job as data."""
    parallel_layout = timed_layout.job.layout
    software = timed_layout.job.software
    return {
        "tp": parallel_layout.tp,
        "pp": parallel_layout.pp,
        "vpp": parallel_layout.vpp,
        "cp": parallel_layout.cp,
        "ep": parallel_layout.ep,
        "dp": parallel_layout.dp,
        "sharding": parallel_layout.sharding,
        "shard": parallel_layout.shard_size,
        "micro_batch": _rounded(parallel_layout.micro),
        "recompute": parallel_layout.recompute,
        "precision": software.precision,
        "step_time_s": _rounded(timed_layout.step_time.total),
        "peak_gib": _rounded(timed_layout.peak_gib),
        "limit": timed_layout.bottleneck,
    }


def _calibration(correction: Correction | None) -> dict[str, Any] | None:
    if correction is None:
        return None
    return {
        "sha256": correction.sha256,
        "accelerator": correction.accelerator,
        "points": correction.points,
    }


def _binding(constraint: BindingLimit) -> dict[str, Any]:
    return {
        "constraint": constraint.constraint,
        "slack": None
        if constraint.slack is None
        else _rounded(constraint.slack),
        "relax_to": constraint.relax_to,
        "saves_usd_month": _optional_decimal(constraint.saves_usd),
        "usd_month": _optional_decimal(constraint.usd),
        "fleet": constraint.fleet,
    }


def _alternative(alternative: RivalFleet) -> dict[str, Any]:
    offer = alternative.offer
    pool_data = {
        "provider": offer.provider,
        "region": offer.region,
        "instance_type": offer.instance.instance_type,
        "accelerator": offer.instance.accelerator,
        "nodes": alternative.nodes,
        "purchase": offer.purchase,
        "usd_per_hour": decimal_text(offer.usd_hour),
    }
    return {
        "pools": [pool_data],
        "usd_month": decimal_text(alternative.usd),
        "rejected_by": alternative.rejected_by,
    }


def _cost(solution: Solution) -> dict[str, Any]:
    monthly_bill = solution.bill
    return {
        "currency": "USD",
        "usd_hour": decimal_text(monthly_bill.usd_hour)
        if monthly_bill
        else "0",
        "usd_month": decimal_text(monthly_bill.total)
        if monthly_bill
        else "0",
        "lines": [_cost_line(cost_line) for cost_line in monthly_bill.lines]
        if monthly_bill
        else [],
        "excludes": sorted(
            [
                *EXCLUDED_COSTS,
                *(monthly_bill.unpriced_lines if monthly_bill else ()),
            ]
        ),
    }


def _cost_line(cost_line: BillLine) -> dict[str, Any]:
    return {
        "name": cost_line.name,
        "kind": cost_line.kind,
        "unit": cost_line.unit,
        "quantity": decimal_text(cost_line.quantity),
        "unit_price": _optional_decimal(cost_line.unit_price),
        "usd_month": _optional_decimal(cost_line.usd),
        "price_source": cost_line.source or None,
        "price_as_of": cost_line.as_of or None,
        "price_found": cost_line.is_priced,
    }


def _shutdown(spec: Spec) -> dict[str, Any]:
    shutdown = spec.shutdown
    return {
        "idle": None if shutdown.idle is None else decimal_text(shutdown.idle),
        "ttl": None if shutdown.ttl is None else decimal_text(shutdown.ttl),
        "schedule": shutdown.schedule,
    }


def _warning(warning: PlanWarning) -> dict[str, Any]:
    position = warning.place
    return {
        "code": warning.code,
        "message": warning.message,
        "path": position.path if position else None,
        "line": position.line if position else None,
        "column": position.column if position else None,
    }


def decimal_text(amount: Decimal) -> str:
    """A decimal as text, without an exponent."""
    return format(amount, "f")


def _optional_decimal(amount: Decimal | None) -> str | None:
    return None if amount is None else decimal_text(amount)


def _rounded(number: float) -> float | int:
    """A float with six significant digits: more would be noise, and differ by machine."""
    if number == 0 or not math.isfinite(number):
        return 0
    rounded = round(
        number, SIGNIFICANT_DIGITS - 1 - math.floor(math.log10(abs(number)))
    )
    return int(rounded) if rounded == int(rounded) else rounded

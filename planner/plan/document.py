"""Assembles the plan document from a spec, its solution and its graph."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

from planner.cost.energy import Machine, energy
from planner.plan.canonical import SCHEMA, sealed
from planner.spec.load import normal
from planner.spec.model import Batch, Inference, Training, Workspace
from planner.version import VERSION

if TYPE_CHECKING:
    from decimal import Decimal

    from planner.cost.line import Line
    from planner.perf.correction import Correction
    from planner.perf.train.search import Laid
    from planner.solve.offer import Catalog
    from planner.solve.solution import (
        Alternative,
        Binding,
        Pool,
        Predicted,
        Run,
        Safety,
        Solution,
        Storage,
        Verified,
        Warn,
    )
    from planner.spec.model import Spec

EXCLUDES: Final = (
    "tax",
    "support plans",
    "private discounts",
    "data transfer between regions",
)
DIGITS: Final = 6


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
    return sealed(
        {
            "schema": SCHEMA,
            "tool_version": VERSION,
            "catalog": {"sha256": catalog.sha256, "as_of": catalog.as_of},
            "spec": {
                "path": source[0],
                "sha256": source[1],
                "normalized": _normal(spec),
            },
            "workload": _workload(spec, solution),
            "solution": {
                "status": solution.status,
                "gap": "0" if solution.status == "optimal" else None,
                "solve_ms": None,
                "considered": solution.considered,
                "funnel": [
                    {"rule": rule, "offers": left}
                    for rule, left in solution.funnel
                ],
                "pools": [_pool(p) for p in solution.pools],
                "predicted": {
                    key: predicted(p) for key, p in solution.predicted.items()
                },
                "binding": [_binding(b) for b in solution.binding],
                "safety": _safety(solution.safety),
                "verified": _verified(solution.verified),
                "calibration": _learned(solution.learned),
                "run": _run(solution.run),
                "energy": _energy(solution),
            },
            "alternatives": [_alternative(a) for a in solution.alternatives],
            "cost": _cost(solution),
            "graph": stack["graph"],
            "launch": stack["launch"],
            "stack": {
                "name": stack["name"],
                "state_sha256": stack["state_sha256"],
            },
            "shutdown": {**_shutdown(spec), "backstop": stack["backstop"]},
            "warnings": [_warning(w) for w in solution.warnings],
        }
    )


def _normal(spec: Spec) -> dict[str, Any]:
    result: dict[str, Any] = normal(spec)
    return {"apiVersion": "tonnage/v1", "kind": type(spec).__name__, **result}


def _workload(spec: Spec, solution: Solution) -> dict[str, Any]:
    names = {
        Inference: "inference",
        Batch: "batch",
        Training: "training",
        Workspace: "workspace",
    }
    result: dict[str, Any] = {"kind": names[type(spec)], "name": spec.name}
    if solution.llm is not None:
        llm = solution.llm
        result["model"] = {
            "name": llm.model,
            "family": llm.family,
            "params": _number(llm.params),
            "active_params": _number(llm.active),
            "source": llm.source,
        }
    return result


def _pool(pool: Pool) -> dict[str, Any]:
    offer, layout = pool.offer, pool.layout
    return {
        "provider": offer.provider,
        "region": offer.region,
        "zones": sorted(offer.zones),
        "instance_type": offer.instance.instance_type,
        "accelerator": offer.instance.accelerator,
        "accelerators_per_node": offer.instance.accelerators,
        "nodes": pool.nodes,
        "nodes_least": pool.least,
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
        "usd_per_hour": money(offer.usd_hour),
    }


def predicted(found: Predicted) -> dict[str, Any]:
    """Return a predicted number, its band and what it rests on as data."""
    return {
        "value": _number(found.value),
        "low": _number(found.low),
        "high": _number(found.high),
        "basis": found.basis,
    }


def _safety(found: Safety | None) -> dict[str, Any] | None:
    if found is None:
        return None
    return {
        "confidence": _number(found.confidence),
        "usd_month": _amount(found.usd_month),
        "fleet": found.fleet,
    }


def _verified(found: Verified | None) -> dict[str, Any] | None:
    if found is None:
        return None
    return {
        "by": "simulation",
        "passed": found.passed,
        "requests": found.requests,
        "requests_of": found.requests_of,
        "routing": found.routing,
        "seeds": found.seeds,
        "added_groups": found.added,
        "found": {
            key: dict(
                zip(("value", "low", "high"), map(_number, parts), strict=True)
            )
            for key, parts in found.found.items()
        },
    }


def _energy(solution: Solution) -> dict[str, Any] | None:
    """Energy of the hours that the first line of the bill pays."""
    if not solution.pools or solution.bill is None:
        return None
    pool, kind = solution.pools[0], solution.pools[0].offer.instance
    machine = Machine(
        provider=kind.provider,
        region=pool.offer.region,
        chip=kind.chip,
        boards=kind.accelerators * kind.fraction,
        role=pool.role,
    )
    found = energy(machine, pool.nodes, solution.bill.lines[0].quantity)
    if found is None:
        return None
    carbon = None if found.kg_co2e is None else _number(found.kg_co2e)
    return {
        "kw": _number(found.kw),
        "kwh": _number(found.kwh),
        "kg_co2e": carbon,
    }


def _run(found: Run | None) -> dict[str, Any] | None:
    if found is None:
        return None
    return {
        "method": found.method,
        "tokens": _number(found.tokens),
        "steps": found.steps,
        "sequence": found.sequence,
        "global_batch": found.batch,
        "checkpoint_interval_s": _number(found.interval),
        "checkpoint_blocks_s": _number(found.save),
        "checkpoint_gb": _number(found.checkpoint / 1e9),
        "stops": _number(found.stops),
        "spares": found.spares,
        "hours_p50": _number(found.hours[0]),
        "hours_p90": _number(found.hours[1]),
        "usd_p50": _amount(found.usd[0]),
        "usd_p90": _amount(found.usd[1]),
        "storage": _stored(found.storage),
        "layouts": [laid(x) for x in found.layouts],
        "ways": [
            {
                "way": w.name,
                "usd": None if w.usd is None else _amount(w.usd),
                "hours_p90": None if w.hours is None else _number(w.hours),
                "remark": w.remark,
            }
            for w in found.ways
        ],
    }


def _stored(found: Storage) -> dict[str, Any]:
    """Where data and checkpoints lie; MB/s that the job reads and that storage gives."""
    kind = (
        {"kind": "object"}
        if found.files is None
        else {
            "kind": "parallel",
            "gib": found.files.gib,
            "mb_s_tib": found.files.mb_s_tib,
        }
    )
    return {
        **kind,
        "wanted_mb_s": _number(found.wanted / 1e6),
        "given_mb_s": _number(found.given / 1e6),
        "checkpoint_write_s": _number(found.written),
    }


def laid(found: Laid) -> dict[str, Any]:
    """Return a layout of a training job as data."""
    s, soft = found.job.spread, found.job.software
    return {
        "tp": s.tp,
        "pp": s.pp,
        "vpp": s.vpp,
        "cp": s.cp,
        "ep": s.ep,
        "dp": s.dp,
        "sharding": s.sharding,
        "shard": s.shard,
        "micro_batch": _number(s.micro),
        "recompute": s.recompute,
        "precision": soft.precision,
        "step_time_s": _number(found.step.total),
        "peak_gib": _number(found.peak_gib),
        "limit": found.limit,
    }


def _learned(found: Correction | None) -> dict[str, Any] | None:
    if found is None:
        return None
    return {
        "sha256": found.sha256,
        "accelerator": found.accelerator,
        "points": found.points,
    }


def _binding(found: Binding) -> dict[str, Any]:
    return {
        "constraint": found.constraint,
        "slack": None if found.slack is None else _number(found.slack),
        "relax_to": found.relax_to,
        "saves_usd_month": _amount(found.saves_usd_month),
        "usd_month": _amount(found.usd_month),
        "fleet": found.fleet,
    }


def _alternative(found: Alternative) -> dict[str, Any]:
    offer = found.offer
    pool = {
        "provider": offer.provider,
        "region": offer.region,
        "instance_type": offer.instance.instance_type,
        "accelerator": offer.instance.accelerator,
        "nodes": found.nodes,
        "purchase": offer.purchase,
        "usd_per_hour": money(offer.usd_hour),
    }
    return {
        "pools": [pool],
        "usd_month": money(found.usd_month),
        "rejected_by": found.rejected_by,
    }


def _cost(solution: Solution) -> dict[str, Any]:
    bill = solution.bill
    return {
        "currency": "USD",
        "usd_hour": money(bill.usd_hour) if bill else "0",
        "usd_month": money(bill.usd_month) if bill else "0",
        "lines": [_line(x) for x in bill.lines] if bill else [],
        "excludes": sorted([*EXCLUDES, *(bill.unknown if bill else ())]),
    }


def _line(line: Line) -> dict[str, Any]:
    return {
        "name": line.name,
        "kind": line.kind,
        "unit": line.unit,
        "quantity": money(line.quantity),
        "unit_price": _amount(line.unit_price),
        "usd_month": _amount(line.usd_month),
        "price_source": line.source or None,
        "price_as_of": line.as_of or None,
        "price_found": line.found,
    }


def _shutdown(spec: Spec) -> dict[str, Any]:
    wish = spec.shutdown
    return {
        "idle": None if wish.idle is None else money(wish.idle),
        "ttl": None if wish.ttl is None else money(wish.ttl),
        "schedule": wish.schedule,
    }


def _warning(found: Warn) -> dict[str, Any]:
    place = found.place
    return {
        "code": found.code,
        "message": found.message,
        "path": place.path if place else None,
        "line": place.line if place else None,
        "column": place.column if place else None,
    }


def money(value: Decimal) -> str:
    """A decimal as text, without an exponent."""
    return format(value, "f")


def _amount(value: Decimal | None) -> str | None:
    return None if value is None else money(value)


def _number(value: float) -> float | int:
    """A float with six significant digits: more would be noise, and differ by machine."""
    if value == 0 or not math.isfinite(value):
        return 0
    rounded = round(value, DIGITS - 1 - math.floor(math.log10(abs(value))))
    return int(rounded) if rounded == int(rounded) else rounded

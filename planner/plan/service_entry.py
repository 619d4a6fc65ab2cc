"""Entries of services that share the accelerators of a pool, in the document of a plan."""

from __future__ import annotations

from typing import TYPE_CHECKING

from planner.plan.layout import Layout
from planner.plan.number import rounded
from planner.plan.prediction_entry import (
    limit_entry,
    prediction,
    verification,
)
from planner.plan.shared_service import SharedService
from planner.units import MS_PER_S

if TYPE_CHECKING:
    from planner.perf.common.layout import ReplicaLayout
    from planner.solve.solution import SizedService


def layout_entry(layout: ReplicaLayout, max_batch: int) -> Layout:
    """Return how a replica is spread over accelerators, as the document has it."""
    return Layout(
        precision=layout.precision,
        kv_precision=layout.kv_precision,
        tp=layout.tp,
        pp=layout.pp,
        ep=layout.ep,
        dp=layout.dp,
        cp=layout.cp,
        max_batch=max_batch,
    )


def service_entry(service: SizedService) -> SharedService:
    """Return a service that shares accelerators, as the document has it."""
    part = service.part
    limits = {
        f"{limit.metric}_p{limit.percentile}_ms": float(limit.seconds)
        * MS_PER_S
        for limit in service.limits
    }
    return SharedService(
        name=service.name,
        path=service.path,
        model=service.llm.model,
        weights=service.model.weights,
        device_layout=part.device_layout,
        profile=part.profile or None,
        memory_gib=rounded(part.memory_gib),
        memory_share=rounded(service.memory_share),
        speed_share=rounded(part.speed_share),
        layout=layout_entry(service.layout, service.max_batch),
        predicted={
            metric: prediction(estimate)
            for metric, estimate in service.predictions.items()
        },
        limits={
            metric: limit_entry(service.predictions[metric], limit)
            for metric, limit in limits.items()
        },
        verified=verification(service.simulation_check),
    )

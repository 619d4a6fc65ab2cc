"""The selected fleet with one group fewer, and the limit that it misses."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

from planner.solve.cause import because
from planner.solve.serving.sizing import predict_service
from planner.solve.solution import RivalFleet

if TYPE_CHECKING:
    from planner.perf.serving.service import Service
    from planner.solve.cause import Cause
    from planner.solve.serving.requirement import ServingRequirement
    from planner.solve.serving.search import ServingCandidate
    from planner.solve.serving.sizing import FleetSizing
    from planner.spec.model import LatencyLimit


def smaller_fleet(
    requirement: ServingRequirement, selection: ServingCandidate
) -> RivalFleet:
    """Return the selected fleet with one group fewer, and the limit that it misses.

    Its cost is taken in proportion to the groups.
    """
    sizing = selection.sizing
    remaining_groups = sizing.total_groups - 1
    usd_month = selection.bill.total * remaining_groups / sizing.total_groups
    return RivalFleet(
        offer=selection.offer,
        nodes=remaining_groups * sizing.nodes_per_group,
        usd=usd_month.quantize(Decimal("0.01")),
        rejected_by=_failure_reason(requirement, sizing, remaining_groups),
    )


def _failure_reason(
    requirement: ServingRequirement, sizing: FleetSizing, remaining_groups: int
) -> Cause:
    if requirement.mode == "batch":
        return because("late", "deadline")
    # With spare groups one group fewer still carries the peak.
    if sizing.total_groups > sizing.peak_groups:
        return because("spare-node", "sla.availability")
    service = predict_service(
        requirement,
        sizing.replica,
        sizing.replicas_per_group * remaining_groups,
    )
    if service is not None:
        for limit in requirement.limits:
            if not service.meets(
                limit.metric, limit.percentile, float(limit.seconds)
            ):
                return _missed_limit(service, limit)
    # No service: the load exceeds the completion rate or the slots.
    return because("overload", "traffic")


def _missed_limit(service: Service, limit: LatencyLimit) -> Cause:
    return because(
        "peak-time",
        limit.key,
        reached_s=service.assured_quantile(limit.metric, limit.percentile),
        limit_s=float(limit.seconds),
    )

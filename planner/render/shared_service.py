"""The services that share the accelerators of a pool: what each has of them, and reaches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from planner import figures
from planner.render.metric import metric_text, metric_title
from planner.render.page import LINE_WIDTH, Block, PageTable

if TYPE_CHECKING:
    from planner.plan.shared_service import SharedService
    from planner.plan.types import Plan

TITLES: Final = ("model", "part of each accelerator", "tightest limit", ">used")


def shared_service_blocks(plan: Plan) -> list[Block]:
    """Return a table of the services that share accelerators; nothing without any."""
    services = [
        service
        for pool in plan.solution.pools
        for service in pool.shared_services
    ]
    if not services:
        return []
    return [
        PageTable(
            ("requests to", *TITLES),
            tuple(map(_row, services)),
            width=LINE_WIDTH,
        )
    ]


def _row(service: SharedService) -> tuple[str, ...]:
    return (
        f"{service.path} ({service.name})",
        service.model,
        part_text(service),
        *_tightest(service),
    )


def part_text(service: SharedService) -> str:
    """Return what a service has of each accelerator: a slice, or a share of time and memory."""
    memory = f"{service.memory_gib:.1f} GiB"
    if service.profile is not None:
        return f"MIG {service.profile}, {memory}"
    return f"{figures.percentage(service.speed_share)} of the time, {memory}"


def _tightest(service: SharedService) -> tuple[str, str]:
    """Return the limit with the least headroom, what is reached, and how much is used."""
    if not service.limits:
        return "none", ""
    key = min(service.limits, key=lambda name: service.limits[name].headroom)
    limit = service.limits[key]
    reached = metric_text(key, service.predicted[key].value)
    return (
        f"{metric_title(key)} {reached} of {metric_text(key, limit.limit)}",
        figures.percentage(1 - limit.headroom),
    )

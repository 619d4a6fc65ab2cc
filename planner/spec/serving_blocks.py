"""Blocks of services and batches: what is promised, and how requests arrive."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Final, Literal

from planner.spec import model
from planner.spec.field import Block
from planner.spec.field_table import block_fields
from planner.spec.field_types import LengthsType

if TYPE_CHECKING:
    from planner.errors import Place

PERCENTILES: Final = (50, 90, 95, 99)
METRICS: Final[tuple[model.Metric, ...]] = ("ttft", "tpot", "e2e")


def _build_sla(
    place: Place,
    availability: Decimal | None,
    survives: Literal["node", "zone"] | None,
    **limits: Decimal | None,
) -> model.ServiceLevels:
    latency_limits = tuple(
        model.LatencyLimit(
            metric=metric, percentile=percentile, seconds=limit_s
        )
        for metric in METRICS
        for percentile in PERCENTILES
        if (limit_s := limits.get(f"{metric}_p{percentile}")) is not None
    )
    return model.ServiceLevels(
        place=place,
        limits=latency_limits,
        availability=availability,
        survives=survives,
    )


def _build_lengths(
    place: Place,  # noqa: ARG001 - every block is built with its place
    mean: Decimal,
    p95: Decimal | None,
) -> model.TokenLengths:
    # Without a stated p95 the lengths are taken as exponential: p95 = mean * ln 20.
    return model.TokenLengths(
        mean=mean, p95=p95 if p95 is not None else mean * Decimal("2.9957")
    )


LENGTHS: Final = LengthsType(
    Block("tokens", _build_lengths, block_fields("inference", "lengths"))
)
ENDPOINT: Final = Block(
    "endpoint",
    model.EndpointRule,
    block_fields("inference", "endpoint"),
)
ELASTIC: Final = Block(
    "elastic",
    model.ElasticRule,
    block_fields("inference", "elastic"),
)
SLA: Final = Block(
    "sla",
    _build_sla,
    block_fields("inference", "sla"),
)
TRAFFIC: Final = Block(
    "traffic",
    model.Traffic,
    block_fields("inference", "traffic", {"lengths": LENGTHS}),
    exclusive_groups=(
        ("peak_rps", "requests_per_day", "concurrency", "trace"),
    ),
)
SERVING: Final = Block(
    "serving",
    model.EngineSettings,
    block_fields("shared", "serving"),
)
BATCH_TRAFFIC: Final = Block(
    "traffic",
    model.Traffic,
    block_fields("batch", "traffic", {"lengths": LENGTHS}),
    exclusive_groups=(("requests_per_day", "total_requests"),),
)

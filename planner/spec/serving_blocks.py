"""Blocks of services and batches: what is promised, and how requests arrive."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Final

from planner.spec import model, unit
from planner.spec.field import Block, Choice, Field, Quantity
from planner.spec.field_types import LengthsType, ProfileType
from planner.spec.shared_blocks import FILE_TEXT

if TYPE_CHECKING:
    from planner.errors import Place

PERCENTILES: Final = (50, 90, 95, 99)
METRICS: Final[dict[model.Metric, str]] = {
    "ttft": "time to first token",
    "tpot": "time per output token",
    "e2e": "time of a whole request",
}


def _build_sla(
    place: Place, availability: Decimal | None, **limits: Decimal | None
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
        place=place, limits=latency_limits, availability=availability
    )


SLA: Final = Block(
    "sla",
    _build_sla,
    (
        *(
            Field(
                f"{latency_metric}_p{percentile}",
                Quantity(
                    unit.parse_seconds,
                    "800ms",
                    minimum=Decimal("0.0001"),
                    maximum=Decimal(86400),
                ),
                f"{metric_meaning}, {percentile}th percentile, at peak",
            )
            for latency_metric, metric_meaning in METRICS.items()
            for percentile in PERCENTILES
        ),
        Field(
            "availability",
            Quantity(
                unit.parse_percent,
                "99.9%",
                minimum=Decimal("0.5"),
                maximum=Decimal("0.99999"),
            ),
            "share of time with enough replicas for the peak; also survives the loss of one node",
        ),
    ),
    doc="what is promised; the percentile is part of the name",
)

_TRAFFIC_FIELDS: Final = (
    Field(
        "requests_per_day",
        Quantity(unit.parse_count, "1M", minimum=1, maximum=10**12),
        "requests of a day, spread by `profile`",
    ),
    Field(
        "input_tokens",
        LengthsType(),
        "length of a prompt: one number, or {mean, p95}",
    ),
    Field(
        "output_tokens",
        LengthsType(),
        "length of an answer: one number, or {mean, p95}",
    ),
    Field(
        "prefix_hit",
        Quantity(unit.parse_percent, "30%", maximum=Decimal("0.99")),
        "share of prompt tokens found in the prefix cache",
        default=Decimal(0),
    ),
)
TRAFFIC: Final = Block(
    "traffic",
    model.Traffic,
    (
        Field(
            "peak_rps",
            Quantity(
                unit.parse_number,
                "12",
                minimum=Decimal("0.0001"),
                maximum=10**7,
            ),
            "requests a second in the busiest minutes",
        ),
        Field(
            "concurrency",
            Quantity(unit.parse_count, "64", minimum=1, maximum=10**7),
            "requests in flight at once, each followed by the next (closed loop)",
        ),
        Field(
            "trace",
            FILE_TEXT,
            "a CSV beside the spec with timestamp, input_tokens, output_tokens",
        ),
        *_TRAFFIC_FIELDS,
        Field(
            "burstiness",
            Quantity(unit.parse_number, "1.5", maximum=20),
            "coefficient of variation of the times between arrivals; 1 is Poisson",
            default=Decimal(1),
        ),
        Field(
            "routing",
            Choice(("random", "round-robin", "least-loaded")),
            (
                "how your router spreads requests over replicas; the load balancer that is "
                "created spreads them at random"
            ),
            default="random",
        ),
        Field(
            "profile",
            ProfileType(),
            "shape of a week: flat, business-hours, diurnal, or 24 or 168 hourly weights",
            default="flat",
        ),
    ),
    doc="how requests arrive",
    exclusive_groups=(
        ("peak_rps", "requests_per_day", "concurrency", "trace"),
    ),
)
BATCH_TRAFFIC: Final = Block(
    "traffic",
    model.Traffic,
    (
        Field(
            "total_requests",
            Quantity(unit.parse_count, "2M", minimum=1, maximum=10**12),
            "requests of the whole run",
        ),
        *_TRAFFIC_FIELDS,
    ),
    doc="how much there is to do",
    exclusive_groups=(("requests_per_day", "total_requests"),),
)

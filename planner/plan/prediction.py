"""What a fleet is predicted to do, and the simulation that confirms it."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from planner.plan.part import Basis, DocumentPart, Number


class Prediction(DocumentPart, frozen=True, kw_only=True):
    """A predicted number with its 90 % band and what it rests on."""

    value: Annotated[
        Number,
        Meta(description="the predicted number, in the unit of its name"),
    ]
    low: Annotated[Number, Meta(description="lower end of the 90 % band")]
    high: Annotated[Number, Meta(description="upper end of the 90 % band")]
    basis: Annotated[Basis, Meta(description="what it rests on")]


class MetricLimit(DocumentPart, frozen=True, kw_only=True):
    """A limit of the spec on a predicted number, in its unit."""

    limit: Annotated[Number, Meta(description="the predicted number at most")]
    headroom: Annotated[
        Number,
        Meta(description="share of the limit that the predicted number leaves"),
    ]


class PercentileBand(DocumentPart, frozen=True, kw_only=True):
    """A percentile of the simulation with its 95 % Monte Carlo interval."""

    value: Annotated[Number, Meta(description="ms")]
    low: Annotated[
        Number,
        Meta(
            description="lower end of the 95 % Monte Carlo interval, 0 at least"
        ),
    ]
    high: Annotated[Number, Meta(description="upper end")]


class Verification(DocumentPart, frozen=True, kw_only=True):
    """A simulation of the chosen fleet, request by request."""

    by: Annotated[
        Literal["simulation"], Meta(description="always simulation")
    ] = "simulation"
    verdict: Annotated[
        Literal["holds", "undecided"],
        Meta(
            description="holds, or undecided when other requests may not confirm it"
        ),
    ]
    requests: Annotated[int, Meta(description="requests counted")]
    requests_of: Annotated[
        Literal["trace", "drawn"], Meta(description="where requests are from")
    ]
    routing: Annotated[
        str, Meta(description="how requests are spread over replicas")
    ]
    batches: Annotated[
        int, Meta(description="batches of requests that were compared")
    ]
    decode_factor: Annotated[
        Number,
        Meta(
            description="times as slow as predicted that answers were simulated"
        ),
    ]
    prefill_factor: Annotated[
        Number,
        Meta(
            description="times as slow as predicted that prompts were simulated"
        ),
    ]
    added_groups: Annotated[
        int, Meta(description="more than the formulas asked for")
    ]
    found: Annotated[
        dict[str, PercentileBand],
        Meta(description="p50, p90, p95 and p99 of TTFT, TPOT and E2E in ms"),
    ]

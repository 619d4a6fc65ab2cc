"""The services that share the accelerators of a pool, in the document of a plan."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from planner.plan.layout import (
    Layout,  # noqa: TC001 - msgspec reads the annotations
)
from planner.plan.part import DocumentPart, Number
from planner.plan.prediction import (  # noqa: TC001 - msgspec reads the annotations
    MetricLimit,
    Prediction,
    Verification,
)


class SharedService(DocumentPart, frozen=True, kw_only=True):
    """A service with an engine on each accelerator of a pool."""

    name: Annotated[str, Meta(description="of its spec")]
    path: Annotated[str, Meta(description="where its requests go")]
    model: Annotated[str, Meta(description="what it serves")]
    weights: Annotated[
        str,
        Meta(description="where machines get it: bucket, or hf with its name"),
    ]
    device_layout: Annotated[
        Literal["time", "mig"],
        Meta(
            description="time: engines take turns, and share the memory; mig: slices of the "
            "accelerator"
        ),
    ]
    profile: Annotated[
        str | None, Meta(description="MIG profile of its slices")
    ] = None
    memory_gib: Annotated[
        Number, Meta(description="memory of an accelerator that it has, GiB")
    ]
    memory_share: Annotated[
        Number,
        Meta(
            description="share of the accelerator, or of its slice, that its engine fills"
        ),
    ]
    speed_share: Annotated[
        Number,
        Meta(
            description="share of compute and bandwidth that it has when all others are busy"
        ),
    ]
    layout: Annotated[
        Layout, Meta(description="how one replica is served on its part")
    ]
    predicted: Annotated[
        dict[str, Prediction], Meta(description="at its peak, by metric")
    ]
    limits: Annotated[
        dict[str, MetricLimit],
        Meta(description="those of its spec, by metric"),
    ]
    verified: Annotated[
        Verification | None,
        Meta(description="its own simulation; none without limits"),
    ] = None

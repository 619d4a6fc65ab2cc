"""What apply may buy where a cloud refuses the first choice, as it was reviewed."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from planner.plan.cost import Cost  # noqa: TC001 - msgspec reads the annotations
from planner.plan.graph import (
    PlannedGraph,  # noqa: TC001 - msgspec reads the annotations
)
from planner.plan.part import DocumentPart, Number
from planner.plan.pool import (
    Pool,  # noqa: TC001 - msgspec reads the annotations
)
from planner.plan.prediction import (  # noqa: TC001 - msgspec reads the annotations
    Prediction,
    Verification,
)
from planner.solve.solution import (
    FallbackKind,  # noqa: TC001 - msgspec reads the annotations
)


class Fallback(DocumentPart, frozen=True, kw_only=True):
    """A fleet that meets the spec too, with its cost and its resources."""

    kind: Annotated[
        FallbackKind, Meta(description="what is other than in the plan")
    ]
    zone: Annotated[
        str | None,
        Meta(description="where its machines are; none when that is open"),
    ]
    chance: Annotated[
        Number | None,
        Meta(
            description="how likely its machines on spot were to be had, from 0 to 1; none where "
            "nobody was asked, or says"
        ),
    ] = None
    pools: Annotated[tuple[Pool, ...], Meta(description="its machines")]
    predicted: Annotated[
        dict[str, Prediction],
        Meta(description="predicted numbers by name, as those of the plan"),
    ]
    verified: Annotated[
        Verification | None, Meta(description="none without latency limits")
    ]
    cost: Annotated[Cost, Meta(description="its bill")]
    graph: Annotated[PlannedGraph, Meta(description="what apply then creates")]

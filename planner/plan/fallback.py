"""What apply may buy where a cloud refuses the first choice, as it was reviewed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from msgspec import Meta
from msgspec.structs import replace

from planner.plan.cost import Cost  # noqa: TC001 - msgspec reads the annotations
from planner.plan.graph import (
    PlannedGraph,  # noqa: TC001 - msgspec reads the annotations
)
from planner.plan.part import DocumentPart
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

if TYPE_CHECKING:
    from planner.plan.types import Plan


class Fallback(DocumentPart, frozen=True, kw_only=True):
    """A fleet that meets the spec too, with its cost and its resources."""

    kind: Annotated[
        FallbackKind, Meta(description="what is other than in the plan")
    ]
    zone: Annotated[
        str | None,
        Meta(description="where its machines are; none when that is open"),
    ]
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


def with_fallback(plan: Plan, rung: int) -> Plan:
    """Return a plan as apply carries it out on a rung: 0 is the plan itself, 1 its first fallback.

    The digest stays that of the reviewed document.
    """
    if rung == 0:
        return plan
    fallback = plan.fallbacks[rung - 1]
    return replace(
        plan,
        solution=replace(
            plan.solution,
            pools=fallback.pools,
            predicted=fallback.predicted,
            verified=fallback.verified,
        ),
        cost=fallback.cost,
        graph=fallback.graph,
    )

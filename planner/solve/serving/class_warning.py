"""What to know of requests that are divided by length, and of those that are not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from planner.solve.cause import because
from planner.solve.serving.length_class import BORDER_SHARES
from planner.solve.solution import PlanWarning

if TYPE_CHECKING:
    from collections.abc import Iterator

    from planner.solve.serving.mixed_fleet import MixedFleet
    from planner.spec.model import Batch, Inference


def class_warnings(
    spec: Inference | Batch, fleet: MixedFleet | None
) -> Iterator[PlanWarning]:
    """Yield the rule of the router, or that no division costs less; `fleet` has two pools."""
    if spec.serving.classes == "none":
        return
    if fleet is None or not fleet.classes:
        reason = because("one-class", borders=len(BORDER_SHARES))
    else:
        border = fleet.classes[0]
        short, _ = fleet.pools
        reason = because(
            "classes",
            body=border.body_bytes,
            borders=len(BORDER_SHARES),
            sure=border.sure_tokens,
            most=border.most_tokens,
            context=short.requirement.load.max_context_tokens,
        )
    yield PlanWarning(code="classes", reason=reason, place=spec.serving.place)

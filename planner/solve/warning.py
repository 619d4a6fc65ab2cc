"""Warnings that every kind of workload shares."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from planner.solve.cause import because
from planner.solve.solution import PlanWarning

if TYPE_CHECKING:
    from planner.facts.llm import Llm
    from planner.market.offer import Offer
    from planner.solve.cause import Cause

LOW_CONFIDENCE: Final = "low"


def assumed_architecture(llm: Llm) -> tuple[Cause, ...]:
    """Say what was assumed of a model that is given by its size alone."""
    if not llm.is_assumed:
        return ()
    return (
        because("assumed-architecture", layers=llm.layers, width=llm.hidden),
    )


def price_warnings(
    offer: Offer, unpriced_lines: tuple[str, ...]
) -> tuple[PlanWarning, ...]:
    """Warn of a price that is derived or unsure, and of lines without a price."""
    warnings = []
    if offer.confidence == LOW_CONFIDENCE or offer.basis != "observed":
        reason = because(
            "unsure-price",
            purchase=offer.purchase,
            machine=offer.instance.instance_type,
            region=offer.region,
            basis=offer.basis,
            as_of=offer.as_of,
            confidence=offer.confidence,
        )
        warnings.append(PlanWarning(code="price", reason=reason))
    if unpriced_lines:
        reason = because("no-price", lines=", ".join(unpriced_lines))
        warnings.append(PlanWarning(code="price-unknown", reason=reason))
    return tuple(warnings)

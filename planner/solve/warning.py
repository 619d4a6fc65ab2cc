"""Warnings that every kind of workload shares."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from planner.solve.solution import PlanWarning

if TYPE_CHECKING:
    from planner.market.offer import Offer

LOW_CONFIDENCE: Final = "low"


def price_warnings(
    offer: Offer, unpriced_lines: tuple[str, ...]
) -> tuple[PlanWarning, ...]:
    """Warn of a price that is old, derived or unsure, and of lines without a price."""
    warnings = []
    if offer.confidence == LOW_CONFIDENCE or offer.basis != "observed":
        message = (
            f"the {offer.purchase} price of {offer.instance.instance_type} in {offer.region} is "
            f"{offer.basis}, of {offer.as_of}, with {offer.confidence} confidence"
        )
        warnings.append(PlanWarning(code="price", message=message))
    if unpriced_lines:
        message = (
            "no price is known of "
            + ", ".join(unpriced_lines)
            + ": not in the total"
        )
        warnings.append(PlanWarning(code="price-unknown", message=message))
    return tuple(warnings)

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
    """Warn of a price that is derived, unsure or old, and of lines without a price."""
    warnings = [*offer_warnings(offer)]
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


def offer_warnings(offer: Offer) -> tuple[PlanWarning, ...]:
    """Warn of an old price and of one that moves, and say how often spot is taken back."""
    warnings = []
    if offer.old_price is not None:
        warnings.append(PlanWarning(code="old-price", reason=old_price(offer)))
    if offer.price_range is not None:
        seen_range = because(
            "price-range",
            purchase=offer.purchase,
            machine=offer.instance.instance_type,
            region=offer.region,
            low_usd=offer.price_range.low_usd,
            high_usd=offer.price_range.high_usd,
        )
        warnings.append(PlanWarning(code="price-range", reason=seen_range))
    band = offer.reclaim_band
    if band is not None:
        reclaims = because(
            "reclaim-band",
            low_share=band.low_share,
            high_share=band.high_share,
            machine=offer.instance.instance_type,
            region=offer.region,
            as_of=band.as_of,
        )
        warnings.append(PlanWarning(code="reclaims", reason=reclaims))
    return tuple(warnings)


def old_price(offer: Offer) -> Cause:
    """Say of what date an old price is, and what it would be at the freshest known ratio.

    Raises ValueError for an offer whose price is not old.
    """
    found = offer.old_price
    if found is None:
        raise ValueError(offer.key)
    if found.fresh_usd_hour is None:
        return because(
            "old-price",
            purchase=offer.purchase,
            machine=offer.instance.instance_type,
            region=offer.region,
            as_of=offer.as_of,
            old_usd=found.usd_hour,
        )
    return because(
        "old-spot-price",
        purchase=offer.purchase,
        machine=offer.instance.instance_type,
        region=offer.region,
        as_of=offer.as_of,
        old_usd=found.usd_hour,
        fresh_usd=found.fresh_usd_hour,
        ratio_as_of=found.ratio_as_of,
        planned_usd=offer.usd_hour,
    )

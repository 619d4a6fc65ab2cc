"""Warnings that every kind of workload shares."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Final

from planner.facts.small_cloud import small_clouds
from planner.facts.software import missing_software
from planner.market.mix import mix_of
from planner.solve.cause import because
from planner.solve.solution import PlanWarning
from planner.units import HOURS_PER_MONTH

if TYPE_CHECKING:
    from collections.abc import Iterator

    from planner.cost.bill import Bill
    from planner.cost.weekly_load import Week
    from planner.errors import Place
    from planner.facts.llm import Llm
    from planner.market.offer import Catalog, Offer
    from planner.solve.cause import Cause

LOW_CONFIDENCE: Final = "low"
# What a network of the stack's own costs, whether a machine runs or not.
NETWORK_KINDS: Final = frozenset({"bastion", "nat", "public_ip"})
# Share of a bill from which hours without a machine are worth a word.
WORTH_SAYING: Final = Decimal("0.05")


def assumed_architecture(llm: Llm) -> tuple[Cause, ...]:
    """Say what was assumed of a model that is given by its size alone."""
    if not llm.is_assumed:
        return ()
    return (
        because("assumed-architecture", layers=llm.layers, width=llm.hidden),
    )


def idle_network_warnings(
    bill: Bill, week: Week, addressed_bill: Bill | None
) -> Iterator[PlanWarning]:
    """Yield what the network costs in hours without a machine, where that is much of the bill.

    idle USD = network USD of a month * (730 - hours in which anything runs) / 730
    `addressed_bill` is that of the same machines with public addresses instead of a NAT, None
    where they have these already, or may not.
    """
    if bill.period != "month":
        return
    network_usd = sum(
        (
            line.usd
            for line in bill.lines
            if line.kind in NETWORK_KINDS and line.usd is not None
        ),
        Decimal(0),
    )
    idle_usd = network_usd * (1 - week.running_hours / HOURS_PER_MONTH)
    if idle_usd <= bill.total * WORTH_SAYING:
        return
    reason = because(
        "idle-network",
        "network",
        running=int(week.running_hours),
        standing=int(HOURS_PER_MONTH),
        idle_usd=idle_usd,
    )
    if addressed_bill is not None and addressed_bill.total < bill.total:
        reason = because(
            "idle-network-addresses",
            "network",
            running=int(week.running_hours),
            standing=int(HOURS_PER_MONTH),
            idle_usd=idle_usd,
            saved_usd=bill.total - addressed_bill.total,
        )
    yield PlanWarning(code="idle-network", reason=reason)


def unused_prices(catalog: Catalog) -> Iterator[PlanWarning]:
    """Yield which rows of prices of one's own are of no machine: often a name is misspelt."""
    rows = catalog.price_book.surcharges.unused_rows
    if rows:
        reason = because("unused-prices", rows=", ".join(rows))
        yield PlanWarning(code="own-prices", reason=reason)


def price_warnings(
    offer: Offer, unpriced_lines: tuple[str, ...], budget_usd: Decimal | None
) -> tuple[PlanWarning, ...]:
    """Warn of a price that is derived, unsure or old, and of lines without a price.

    With `budget_usd` of the spec, such lines may exceed it.
    """
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
    return (*warnings, *unpriced_warnings(unpriced_lines, budget_usd))


def unpriced_warnings(
    unpriced_lines: tuple[str, ...], budget_usd: Decimal | None
) -> Iterator[PlanWarning]:
    """Yield which lines of a bill have no price, and that they may exceed the spec's budget."""
    if not unpriced_lines:
        return
    lines = ", ".join(unpriced_lines)
    reason = because("no-price", lines=lines)
    if budget_usd is not None:
        reason = because("no-price-budget", lines=lines)
    yield PlanWarning(code="price-unknown", reason=reason)


def offer_warnings(offer: Offer) -> tuple[PlanWarning, ...]:
    """Warn of an old price and of one that moves, and say how often spot is taken back."""
    warnings = []
    if offer.provider in small_clouds():
        unbuilt = because("unbuilt-cloud", cloud=small_clouds()[offer.provider])
        warnings.append(PlanWarning(code="unbuilt-cloud", reason=unbuilt))
    missing = missing_software(offer.provider, offer.instance.accelerator)
    if missing is not None:
        lacking = because(
            "unbuilt-accelerator",
            accelerator=offer.instance.accelerator,
            lacks=missing.reason,
        )
        warnings.append(PlanWarning(code="unbuilt-accelerator", reason=lacking))
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


def moved_price_warnings(
    offer: Offer, place: Place | None = None
) -> Iterator[PlanWarning]:
    """Yield what spot was found at, where it is planned at the upper end of what it may be today.

    `place` is where a spec says how to buy.
    """
    for tier in mix_of(offer).tiers:
        if tier.found_usd_hour is not None:
            moved = because(
                "moved-spot-price",
                machine=offer.instance.instance_type,
                as_of=tier.as_of,
                found_usd=tier.found_usd_hour,
                planned_usd=tier.usd_hour,
            )
            yield PlanWarning(code="moved-price", reason=moved, place=place)


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

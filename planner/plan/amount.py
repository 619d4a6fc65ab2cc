"""Amounts of USD of which a part may be unknown, and what the difference of two of them says."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

from msgspec import Meta

from planner.plan.part import DocumentPart

if TYPE_CHECKING:
    from collections.abc import Iterable

# What a difference says when a price is unknown on one of its sides.
Bound: TypeAlias = Literal["exact", "at_least", "at_most", "unknown"]


class CostAmount(DocumentPart, frozen=True, kw_only=True):
    """USD of which a part may be unknown: an unknown price is never counted as 0."""

    usd: Annotated[
        Decimal | None,
        Meta(description="what is known of it; none when nothing is"),
    ]
    is_complete: Annotated[
        bool,
        Meta(description="whether every price is known; else usd is the least"),
    ] = True

    @property
    def known_usd(self) -> Decimal:
        """What is known of it, USD; 0 when nothing is."""
        return self.usd or Decimal(0)


NOTHING = CostAmount(usd=Decimal(0))


class CostDelta(DocumentPart, frozen=True, kw_only=True):
    """By how much a cost grows, as far as that is known."""

    usd: Annotated[
        Decimal | None,
        Meta(description="negative for a saving; none when nothing is known"),
    ]
    bound: Annotated[
        Bound,
        Meta(
            description="exact; at_least and at_most where a price of one side is unknown"
        ),
    ] = "exact"
    percent: Annotated[
        Decimal | None,
        Meta(description="of the cost before; none when that is 0 or unknown"),
    ] = None


def sum_amounts(parts: Iterable[Decimal | None]) -> CostAmount:
    """Return the sum of amounts in USD, of which None is unknown."""
    usd_parts = list(parts)
    known = [usd for usd in usd_parts if usd is not None]
    is_complete = len(known) == len(usd_parts)
    return CostAmount(
        usd=sum(known, Decimal(0)) if known or is_complete else None,
        is_complete=is_complete,
    )


def add_amounts(amounts: Iterable[CostAmount]) -> CostAmount:
    """Return the sum of amounts; it is complete when all of them are."""
    addends = list(amounts)
    is_complete = all(amount.is_complete for amount in addends)
    known = [amount.usd for amount in addends if amount.usd is not None]
    return CostAmount(
        usd=sum(known, Decimal(0)) if known or is_complete else None,
        is_complete=is_complete,
    )


def cost_delta(
    before: CostAmount, after: CostAmount, *, cancels: bool = False
) -> CostDelta:
    """Return the difference of two amounts, after - before.

    The unknown part is at least 0: on the side of `after` it makes the difference larger, on that
    of `before` smaller. With `cancels` it is the same on both sides, and makes no difference.
    """
    usd = after.known_usd - before.known_usd
    bound = _bound(before, after)
    if cancels:
        bound = "exact"
    if bound == "unknown":
        return CostDelta(usd=None, bound=bound)
    return CostDelta(usd=usd, bound=bound, percent=percent_of(usd, before))


def add_deltas(deltas: Iterable[CostDelta], before: CostAmount) -> CostDelta:
    """Return the sum of differences; `before` is what their percentage is of."""
    addends = list(deltas)
    bounds = {delta.bound for delta in addends} - {"exact"}
    if len(bounds) > 1 or "unknown" in bounds:
        return CostDelta(usd=None, bound="unknown")
    usd = sum((delta.usd or Decimal(0) for delta in addends), Decimal(0))
    return CostDelta(
        usd=usd,
        bound=bounds.pop() if bounds else "exact",
        percent=percent_of(usd, before),
    )


def percent_of(usd: Decimal, before: CostAmount) -> Decimal | None:
    """Return USD in percent of an amount; None when that is 0, or not wholly known."""
    if not before.is_complete or not before.usd:
        return None
    return (usd / before.usd * 100).quantize(Decimal("0.1"))


def _bound(before: CostAmount, after: CostAmount) -> Bound:
    if before.is_complete and after.is_complete:
        return "exact"
    if before.is_complete:
        return "at_least"
    return "at_most" if after.is_complete else "unknown"

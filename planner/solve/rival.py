"""Fleets that were not chosen: what each costs, as far as that is known, and what stops it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Iterable
    from decimal import Decimal

    from planner.cost.bill import Bill
    from planner.market.offer import Offer
    from planner.solve.cause import Cause


class RivalFleet(Struct, frozen=True, kw_only=True):
    """Another fleet, and what stopped it from being chosen.

    `usd`  its cost in the period of the bill
    `unpriced`  lines of its bill without a known price, which `usd` leaves out
    `is_bound`  whether it was ruled out before it had a bill: `usd` is a lower bound of its cost
    """

    offer: Offer
    nodes: int
    usd: Decimal
    rejected_by: Cause
    unpriced: tuple[str, ...] = ()
    is_bound: bool = False


def billed_rival(
    offer: Offer, nodes: int, bill: Bill, rejected_by: Cause
) -> RivalFleet:
    """Return a fleet that has a bill and was not chosen."""
    return RivalFleet(
        offer=offer,
        nodes=nodes,
        usd=bill.total,
        rejected_by=rejected_by,
        unpriced=bill.unpriced_lines,
    )


def ranked_rivals(rival_fleets: Iterable[RivalFleet]) -> tuple[RivalFleet, ...]:
    """Return rival fleets in the order of cost."""
    return tuple(
        sorted(
            rival_fleets,
            key=lambda rival_fleet: (rival_fleet.usd, rival_fleet.offer.key),
        )
    )

"""How many groups a batch that runs once takes: those that cost least."""

from __future__ import annotations

from decimal import Decimal
from itertools import count
from typing import TYPE_CHECKING, Final

from planner.solve.serving.cloud_limit import obtainable
from planner.solve.serving.sizing import FleetSizing, sized_fleet

if TYPE_CHECKING:
    from collections.abc import Callable

    from planner.cost.bill import Bill
    from planner.market.offer import Offer
    from planner.solve.serving.requirement import ServingRequirement

LINE_ROUNDING_USD: Final = Decimal("0.01")


def cheapest_run(
    requirement: ServingRequirement,
    offer: Offer,
    fewest: FleetSizing,
    bill_of: Callable[[FleetSizing], Bill],
) -> FleetSizing:
    """Return the groups of a run that cost least.

    `fewest` are the groups that meet the deadline. More of them end sooner, which saves what is
    paid by the hour of the whole run:
    cost of n groups = n * start-up and release + work + hourly services * work / n
    It falls to the best n and then rises, but for the rounding of the lines.
    """
    best, best_bill = fewest, bill_of(fewest)
    rounding_usd = LINE_ROUNDING_USD * len(best_bill.lines)
    for groups in count(fewest.peak_groups + 1):
        fleet = sized_fleet(requirement, fewest.replica, fewest.group, groups)
        if obtainable(requirement, offer, fleet) is not fleet:
            break
        bill = bill_of(fleet)
        if bill.total > best_bill.total + rounding_usd:
            break
        if bill.total < best_bill.total:
            best, best_bill = fleet, bill
    return best

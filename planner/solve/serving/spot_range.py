"""A promise with machines on spot, at the lowest and at the highest published rate of reclaims."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from planner.solve.cause import because
from planner.solve.serving.bill import bought_bill, settled_fleet
from planner.solve.serving.sizing import sized_fleet
from planner.solve.serving.spot_promise import SpotPromise, base_groups

if TYPE_CHECKING:
    from planner.cost.service_price import PriceBook
    from planner.solve.cause import Cause
    from planner.solve.serving.candidate import ServingCandidate
    from planner.solve.serving.requirement import ServingRequirement


def promise_at_both_ends(
    requirement: ServingRequirement,
    selection: ServingCandidate,
    price_book: PriceBook,
) -> Cause:
    """Return in which share of the time enough machines are up, and what fewer reclaims save.

    The fleet is made for the highest rate. Where its base is for the planner to say, another one
    may cost less at the lowest: the same number of groups for the load, with as many spares and
    as large a base as that rate needs.
    """
    sizing, bought = selection.sizing, selection.bought
    base = base_groups(bought, sizing)
    high, low = (
        SpotPromise(requirement, sizing, bought, end).share(sizing.spares, base)
        for end in ("high", "low")
    )
    calm_sizing, calm_offer = settled_fleet(
        requirement,
        replace(
            sized_fleet(
                requirement, sizing.replica, sizing.group, sizing.peak_groups
            ),
            part=sizing.part,
            beside=sizing.beside,
        ),
        selection.offer,
        price_book,
        "low",
    )
    calm_bill = bought_bill(requirement, calm_sizing, calm_offer, price_book)
    is_less = calm_bill.total < selection.bill.total
    if not (is_less and selection.offer.is_above_promise):
        return because(
            "spot-promise",
            "sla.availability",
            high_rate_share=high,
            low_rate_share=low,
        )
    return because(
        "spot-promise-less",
        "sla.availability",
        high_rate_share=high,
        low_rate_share=low,
        calm_base=base_groups(calm_offer, calm_sizing)
        * calm_sizing.nodes_per_group,
        calm_nodes=calm_sizing.nodes,
        calm_usd=calm_bill.total,
    )

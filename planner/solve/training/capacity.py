"""What a gang does where a cloud is not known to have as many machines: ask before it is planned.

Spot beyond its limit is no candidate of the search. On demand beyond its limit stays one, since
quotas are raised on request, with the next step and its price.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct

from planner.cost import capacity_block
from planner.cost.bill_line import CENT
from planner.market.capacity import known_limit
from planner.market.purchase import COMMITTED_PURCHASES
from planner.solve.cause import because
from planner.solve.solution import BindingLimit, FleetSummary, PlanWarning
from planner.solve.training.search import TrainSearch
from planner.units import HOURS_PER_DAY

if TYPE_CHECKING:
    from decimal import Decimal

    from planner.market.offer import Catalog, Offer
    from planner.market.offer_filter import OfferFilter
    from planner.solve.cause import Cause
    from planner.solve.training.cluster import Cluster
    from planner.solve.training.ranking import FeasibleCluster
    from planner.solve.training.requirement import TrainingRequirement

BLOCK_PURCHASES: Final = ("capacity_block", "dws_calendar")


class BlockQuote(Struct, frozen=True):
    """A capacity block that covers a run: its offer, whole days, and USD of its machines."""

    offer: Offer
    days: int
    usd: Decimal


def newest_block_price(catalog: Catalog, offer: Offer) -> Offer | None:
    """Return the newest price of a block of a machine type, the lowest of its date."""
    return max(
        (
            candidate
            for candidate in catalog.unlisted
            if candidate.purchase in BLOCK_PURCHASES
            and candidate.key[:2] == offer.key[:2]
        ),
        key=lambda candidate: (
            candidate.as_of,
            # Among quotes of the same date the lowest price.
            -candidate.usd_hour,
            candidate.region,
        ),
        default=None,
    )


def quoted_block(
    catalog: Catalog, offer: Offer, nodes: int, duration_s: float
) -> BlockQuote | None:
    """Return the shortest block of `nodes` machines that covers a duration, None without one.

    USD = USD an hour * nodes * days * 24: a block is paid in whole days, also after the run.
    """
    block_offer = newest_block_price(catalog, offer)
    if block_offer is None:
        return None
    days = capacity_block.block_days(
        block_offer.purchase, block_offer.provider, nodes, duration_s
    )
    if days is None:
        return None
    machine_usd = block_offer.usd_hour * nodes * days * HOURS_PER_DAY
    return BlockQuote(block_offer, days, machine_usd.quantize(CENT))


def capacity_warnings(
    cluster: Cluster, catalog: Catalog
) -> tuple[PlanWarning, ...]:
    """Warn of more machines on demand than are known to be had, with what to ask for instead."""
    limit = known_limit(cluster.offer)
    nodes = cluster.nodes + cluster.spares
    if (
        limit is None
        or cluster.offer.purchase != "on_demand"
        or nodes <= limit.machines
    ):
        return ()
    beyond = because(
        "beyond-quota",
        nodes=nodes,
        machine=cluster.offer.instance.instance_type,
        machines=limit.machines,
        strength=limit.strength,
        as_of=limit.as_of,
    )
    return (
        PlanWarning(code="capacity", reason=beyond),
        PlanWarning(
            code="capacity-price",
            reason=_reservation_price(cluster, catalog, nodes),
        ),
    )


def _reservation_price(cluster: Cluster, catalog: Catalog, nodes: int) -> Cause:
    """Return what a block for the run costs, else a machine-hour of a block or of a commitment."""
    quote = quoted_block(catalog, cluster.offer, nodes, cluster.estimated_end_s)
    if quote is not None:
        return because(
            "ask-block",
            days=quote.days,
            block_usd=quote.usd,
            as_of=quote.offer.as_of,
        )
    block_offer = newest_block_price(catalog, cluster.offer)
    if block_offer is not None:
        return because(
            "ask-hourly",
            purchase=block_offer.purchase.replace("_", " "),
            hour_usd=block_offer.usd_hour,
            as_of=block_offer.as_of,
        )
    committed_offers = (
        offer
        for offer in catalog.offers
        if offer.key[:3] == cluster.offer.key[:3]
        and offer.purchase in COMMITTED_PURCHASES
    )
    # The shorter term comes first in the order of names.
    committed_offer = min(
        committed_offers, key=lambda offer: offer.purchase, default=None
    )
    if committed_offer is None:
        return because("ask-reservation")
    return because(
        "ask-commitment",
        purchase=committed_offer.purchase.replace("_", " "),
        hour_usd=committed_offer.usd_hour,
        as_of=committed_offer.as_of,
    )


def off_spot(
    requirement: TrainingRequirement, market: OfferFilter, catalog: Catalog
) -> tuple[BindingLimit, ...]:
    """Return the cheapest cluster on demand where a spec asks for spot that is not to be had."""
    if not requirement.spot_by_name:
        return ()
    offers = [
        offer
        # Offers that only the purchase rule of the spec excludes.
        for offer in market.cheapest("buy")
        if offer.purchase == "on_demand"
    ]
    feasible = (
        TrainSearch(requirement, catalog.price_book).solve(offers, 1).feasible
    )
    return tuple(
        _relaxed_purchase(candidate, catalog) for candidate in feasible
    )[:1]


def _relaxed_purchase(
    candidate: FeasibleCluster, catalog: Catalog
) -> BindingLimit:
    cluster = candidate.cluster
    offer = cluster.offer
    quote = quoted_block(catalog, offer, cluster.nodes, cluster.estimated_end_s)
    return BindingLimit(
        constraint="buy.spot",
        slack=None,
        relax_to=because("reserve")
        if quote is None
        else because("reserve-block", days=quote.days, block_usd=quote.usd),
        saves_usd=None,
        usd=candidate.bill.total,
        fleet=FleetSummary(
            offer.provider,
            offer.region,
            offer.instance.instance_type,
            cluster.nodes,
        ),
        unpriced=candidate.bill.unpriced_lines,
    )

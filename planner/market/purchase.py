"""Purchase options of machines, and the bill line of bought machines."""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Decimal
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from planner.cost.bill_line import (
    CENT,
    MACHINE_KIND,
    QUANTITY_STEP,
    BillLine,
)
from planner.facts.small_cloud import SMALL_CLOUD_FILE, small_clouds
from planner.market.offer import RESERVED_PURCHASE
from planner.market.term import TERM_PURCHASES

if TYPE_CHECKING:
    from planner.market.offer import Offer, PurchaseTier
    from planner.spec.block import CapacityBlock

# These are paid for in every hour, whether the machine runs or not.
COMMITTED_PURCHASES: Final = (*TERM_PURCHASES, RESERVED_PURCHASE)


def machine_line(
    offer: Offer, nodes: int, node_hours: Decimal, *, pool: str
) -> BillLine:
    """Return the bill line of the machines of a pool.

    USD = node-hours (rounded to four decimals) * USD an hour of one machine, to the cent
    A capacity block is paid for as a whole.
    """
    instance = offer.instance
    if offer.block is not None:
        return _block_line(offer, offer.block, pool)
    # The rounded quantity is priced: quantity * price gives the amount.
    quantity = node_hours.quantize(QUANTITY_STEP, ROUND_HALF_UP)
    return BillLine(
        name=f"{nodes} x {instance.instance_type} {offer.purchase}",
        kind=MACHINE_KIND,
        pool=pool,
        purchase=offer.purchase,
        unit="node-hour",
        quantity=quantity,
        unit_price=offer.usd_hour,
        usd=(quantity * offer.usd_hour).quantize(CENT, ROUND_HALF_UP),
        source=offer.source,
        as_of=offer.as_of,
        row=price_row(offer),
    )


def price_row(offer: Offer) -> str:
    """Return which row of the catalog has the price of an offer.

    Machines in a reservation that the stack makes cost what they do on demand, and a slice what
    its machines do.
    """
    machine = offer.instance.host_type or offer.instance.instance_type
    if offer.provider in small_clouds():
        return f"{SMALL_CLOUD_FILE}: {small_clouds()[offer.provider]} {machine}"
    purchase = (
        "on_demand" if offer.purchase == RESERVED_PURCHASE else offer.purchase
    )
    return f"prices.csv: {offer.provider} {machine} {offer.region} {purchase}"


def tier_offer(offer: Offer, tier: PurchaseTier) -> Offer:
    """Return an offer of machines that are bought in one way of a mix alone."""
    return replace(
        offer,
        purchase=tier.purchase,
        usd_hour=tier.usd_hour,
        source=tier.source,
        as_of=tier.as_of,
        form=tier.form,
        found_usd_hour=tier.found_usd_hour,
        mix=None,
    )


def _block_line(offer: Offer, block: CapacityBlock, pool: str) -> BillLine:
    """Return the line of all machines of a block, for all of its time."""
    return BillLine(
        name=f"{block.machines} x {block.type} capacity block",
        kind=MACHINE_KIND,
        pool=pool,
        purchase=offer.purchase,
        unit="block",
        quantity=Decimal(1),
        unit_price=block.usd,
        usd=block.usd,
        source=offer.source,
        as_of=offer.as_of,
    )

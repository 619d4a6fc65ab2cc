"""What a fit costs in a month on an offer: accelerators first, then every other line."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal
from typing import TYPE_CHECKING, Final

from planner.cost.bill_line import (
    CENT,
    QUANTITY_STEP,
    BillLine,
    Usage,
    service_lines,
    sum_lines,
    usage_value,
)
from planner.cost.weekly_load import HOURS_PER_MONTH
from planner.perf.common import memory

if TYPE_CHECKING:
    from planner.cost.service_price import PriceBook
    from planner.market.offer import Offer
    from planner.solve.serving.requirement import ServingRequirement
    from planner.solve.serving.sizing import FleetSizing

BYTES_PER_GB: Final = Decimal(10**9)
COMMITTED_PURCHASES: Final = ("reserved_1y", "reserved_3y")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bill:
    """The lines of a month, their sum, and the names of lines whose price is not known."""

    lines: tuple[BillLine, ...]
    total: Decimal
    usd_hour: Decimal
    unpriced_lines: tuple[str, ...]


def paid_node_hours(
    requirement: ServingRequirement, sizing: FleetSizing, purchase: str
) -> Decimal:
    """Node-hours of a month that are paid: a commitment is paid for whether it runs or not."""
    if purchase in COMMITTED_PURCHASES:
        return HOURS_PER_MONTH * sizing.nodes
    if requirement.mode == "batch":
        return (
            Decimal(sizing.duration_hours)
            * sizing.nodes
            * requirement.runs_per_month
        )
    return requirement.week.node_hours(
        sizing.peak_groups,
        sizing.nodes_per_group,
        sizing.total_groups - sizing.peak_groups,
    )


def machine_line(offer: Offer, nodes: int, node_hours: Decimal) -> BillLine:
    """The line of the machines themselves."""
    quantity = node_hours.quantize(QUANTITY_STEP, ROUND_HALF_UP)
    instance = offer.instance
    return BillLine(
        name=f"{nodes} x {instance.instance_type} {offer.purchase}",
        kind="accelerators",
        unit="node-hour",
        quantity=quantity,
        unit_price=offer.usd_hour,
        usd=(quantity * offer.usd_hour).quantize(CENT, ROUND_HALF_UP),
        source=offer.source,
        as_of=offer.as_of,
    )


def serving_bill(
    requirement: ServingRequirement,
    sizing: FleetSizing,
    offer: Offer,
    price_book: PriceBook,
) -> Bill:
    """Return the bill of a fit bought through an offer."""
    node_hours = paid_node_hours(requirement, sizing, offer.purchase)
    stored_gb = (
        Decimal(int(memory.checkpoint_bytes(requirement.llm, sizing.layout)))
        / BYTES_PER_GB
    )
    monthly_requests = requirement.requests_per_month
    if requirement.mode == "closed":
        monthly_requests = Decimal(
            sizing.service.rate_per_s
            * sizing.replicas_per_group
            * sizing.peak_groups
            * requirement.week.mean_load
        )
        monthly_requests *= 730 * 3600
    sent_gb = (
        monthly_requests
        * Decimal(requirement.load.answer_lengths.mean_tokens)
        * usage_value("stream_bytes_per_token")
        / BYTES_PER_GB
    )
    received_gb = (
        monthly_requests
        * Decimal(requirement.load.prompt_lengths.mean_tokens)
        * usage_value("prompt_bytes_per_token")
        / BYTES_PER_GB
    )
    serves_traffic = requirement.mode != "batch"
    monthly_usage = Usage(
        provider=offer.provider,
        peak_nodes=sizing.nodes,
        node_hours=node_hours,
        running_hours=requirement.week.running_hours,
        cache_gb=cache_gb(offer, stored_gb),
        weights_gb=stored_gb,
        sent_gb=sent_gb if serves_traffic else Decimal(0),
        received_gb=received_gb if serves_traffic else Decimal(0),
        serves_traffic=serves_traffic,
    )
    return sum_bill(
        [
            machine_line(offer, sizing.nodes, node_hours),
            *service_lines(monthly_usage, price_book),
        ],
        offer,
        sizing.nodes,
    )


def sum_bill(bill_lines: list[BillLine], offer: Offer, nodes: int) -> Bill:
    """Add the lines up; the hourly figure is that of all machines running."""
    known_usd_month, unpriced_lines = sum_lines(bill_lines)
    return Bill(
        lines=tuple(bill_lines),
        total=known_usd_month,
        usd_hour=offer.usd_hour * nodes,
        unpriced_lines=tuple(unpriced_lines),
    )


def cache_gb(offer: Offer, stored_gb: Decimal) -> Decimal:
    """Size of the disk for the weights: none when local NVMe holds them."""
    required_gb = stored_gb * usage_value("cache_headroom")
    if Decimal(offer.instance.nvme_gb) >= required_gb:
        return Decimal(0)
    return Decimal(int(required_gb) + 1)

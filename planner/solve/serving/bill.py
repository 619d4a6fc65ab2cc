"""What a fit costs in a month on an offer: accelerators first, then every other line."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Final

from planner.cost.bill import Bill, sum_bill
from planner.cost.bill_line import (
    Usage,
    cache_disk_gb,
    service_lines,
    usage_value,
)
from planner.cost.weekly_load import HOURS_PER_MONTH
from planner.market.purchase import COMMITTED_PURCHASES, machine_line
from planner.perf.common import memory

if TYPE_CHECKING:
    from planner.cost.service_price import PriceBook
    from planner.market.offer import Offer
    from planner.solve.serving.requirement import ServingRequirement
    from planner.solve.serving.sizing import FleetSizing

BYTES_PER_GB: Final = Decimal(10**9)


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
        cache_gb=cache_disk_gb(offer.instance.nvme_gb, stored_gb),
        weights_gb=stored_gb,
        sent_gb=sent_gb if serves_traffic else Decimal(0),
        received_gb=received_gb if serves_traffic else Decimal(0),
        serves_traffic=serves_traffic,
    )
    return sum_bill(
        [
            machine_line(
                offer,
                sizing.nodes,
                node_hours,
                pool="serve" if serves_traffic else "batch",
            ),
            *service_lines(monthly_usage, price_book),
        ],
        offer.usd_hour * sizing.nodes,
        "month",
    )

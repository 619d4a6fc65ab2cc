"""Monthly bill of a serving fleet: machines first, then all other lines."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

from planner.cost.bill import Bill, sum_bill
from planner.cost.bill_line import (
    Usage,
    cache_disk_gb,
    service_lines,
    usage_value,
)
from planner.market.purchase import COMMITTED_PURCHASES, machine_line
from planner.perf.common import memory
from planner.units import (
    BYTES_PER_BILLED_GB,
    HOURS_PER_MONTH,
    SECONDS_PER_MONTH,
)

if TYPE_CHECKING:
    from planner.cost.service_price import PriceBook
    from planner.market.offer import Offer
    from planner.solve.serving.requirement import ServingRequirement
    from planner.solve.serving.sizing import FleetSizing


def paid_node_hours(
    requirement: ServingRequirement, sizing: FleetSizing, purchase: str
) -> Decimal:
    """Return the node-hours of a month that are paid.

    commitment: 730 * nodes, whether they run or not
    batch:      duration * nodes * runs a month
    serving:    node-hours that follow the weekly load, spare groups included
    """
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
        # Spare groups run in every running hour, whatever the load.
        sizing.total_groups - sizing.peak_groups,
    )


def serving_bill(
    requirement: ServingRequirement,
    sizing: FleetSizing,
    offer: Offer,
    price_book: PriceBook,
) -> Bill:
    """Return the monthly bill of a fleet bought through an offer.

    sent GB     = requests a month * mean answer tokens * stream bytes per token / 10^9
    received GB = requests a month * mean prompt tokens * text bytes per token / 10^9
    A closed loop completes rate * replicas * mean load * 730 * 3600 requests a month.
    """
    node_hours = paid_node_hours(requirement, sizing, offer.purchase)
    # Size of the checkpoint in object storage, not of loaded weights.
    stored_gb = (
        Decimal(int(memory.checkpoint_bytes(requirement.llm, sizing.layout)))
        / BYTES_PER_BILLED_GB
    )
    monthly_requests = requirement.requests_per_month
    if requirement.mode == "closed":
        # A closed loop has no arrival rate: requests = completions.
        monthly_requests = Decimal(
            sizing.service.rate_per_s
            * sizing.replicas_per_group
            * sizing.peak_groups
            * requirement.week.mean_load
        )
        # Seconds in a billing month of 730 hours.
        monthly_requests *= SECONDS_PER_MONTH
    sent_gb = (
        monthly_requests
        * Decimal(requirement.load.answer_lengths.mean_tokens)
        # Answers leave as one server-sent event per token.
        * usage_value("stream_bytes_per_token")
        / BYTES_PER_BILLED_GB
    )
    received_gb = (
        monthly_requests
        * Decimal(requirement.load.prompt_lengths.mean_tokens)
        # Prompts arrive as UTF-8 text.
        * usage_value("prompt_bytes_per_token")
        / BYTES_PER_BILLED_GB
    )
    # A batch run has no load balancer and no internet traffic.
    serves_traffic = requirement.mode != "batch"
    usage = Usage(
        provider=offer.provider,
        node_hours=node_hours,
        cache_gb=cache_disk_gb(offer.instance.nvme_gb, stored_gb),
        stored_gb_months=stored_gb,
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
            *service_lines(usage, price_book),
        ],
        offer.usd_hour * sizing.nodes,
        "month",
    )

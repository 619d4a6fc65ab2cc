"""What a service stores, fetches, receives and sends in a month, whatever machines it has."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

from msgspec import Struct

from planner.perf.common import memory
from planner.solve.serving.sizing import expected_service
from planner.units import BYTES_PER_BILLED_GB, SECONDS_PER_MONTH

if TYPE_CHECKING:
    from planner.cost.service_price import PriceBook
    from planner.solve.serving.requirement import ServingRequirement
    from planner.solve.serving.sizing import FleetSizing, NeighborSizing


class BesideUsage(Struct, frozen=True, kw_only=True):
    """What the services beside another one add to its bill. GB; traffic is that of a month."""

    weights_gb: Decimal
    stored_gb: Decimal
    fetched_gb: Decimal
    sent_gb: Decimal
    received_gb: Decimal


def beside_usage(
    beside: tuple[NeighborSizing, ...], price_book: PriceBook
) -> BesideUsage:
    """Return the sums over the services that have an engine beside another one."""
    weights_gb = stored_gb = fetched_gb = Decimal(0)
    sent_gb = received_gb = Decimal(0)
    for each in beside:
        requirement = each.neighbor.requirement
        own_gb = checkpoint_gb(requirement, each.sizing)
        weights_gb += own_gb
        # Weights that wait in the bucket are stored, those of the hub fetched at each start.
        if requirement.weights == "bucket":
            stored_gb += own_gb
        else:
            fetched_gb += own_gb
        requests = monthly_requests(requirement, each.sizing)
        sent_gb += answers_gb(requirement, requests, price_book)
        received_gb += prompts_gb(requirement, requests, price_book)
    return BesideUsage(
        weights_gb=weights_gb,
        stored_gb=stored_gb,
        fetched_gb=fetched_gb,
        sent_gb=sent_gb,
        received_gb=received_gb,
    )


def checkpoint_gb(
    requirement: ServingRequirement, sizing: FleetSizing
) -> Decimal:
    """Return the size of the checkpoint, GB, which is not that of loaded weights."""
    return (
        Decimal(int(memory.checkpoint_bytes(requirement.llm, sizing.layout)))
        / BYTES_PER_BILLED_GB
    )


def monthly_requests(
    requirement: ServingRequirement, sizing: FleetSizing
) -> Decimal:
    """Return how many requests a fleet answers in a month.

    A closed loop completes rate * replicas * mean load * 730 * 3600 requests.
    """
    if requirement.mode != "closed":
        return requirement.requests_per_month
    # A closed loop has no arrival rate: requests = completions.
    mean_rate = Decimal(
        # What is expected: a slower replica completes less, and costs no less for it.
        expected_service(requirement, sizing).rate_per_s
        * sizing.replicas_per_group
        * sizing.peak_groups
        * requirement.traffic_week.mean_load
    )
    # Seconds in a billing month of 730 hours.
    return mean_rate * SECONDS_PER_MONTH


def answers_gb(
    requirement: ServingRequirement, requests: Decimal, price_book: PriceBook
) -> Decimal:
    """Return the GB of the answers to some requests.

    requests * mean answer tokens * stream bytes per token / 10^9
    """
    return (
        requests
        * Decimal(requirement.load.answer_lengths.mean_tokens)
        # Answers leave as one server-sent event per token.
        * price_book.used("stream_bytes_per_token")
        / BYTES_PER_BILLED_GB
    )


def prompts_gb(
    requirement: ServingRequirement, requests: Decimal, price_book: PriceBook
) -> Decimal:
    """Return the GB of the prompts of some requests.

    requests * mean prompt tokens * text bytes per token / 10^9
    """
    return (
        requests
        * Decimal(requirement.load.prompt_lengths.mean_tokens)
        # Prompts arrive as UTF-8 text.
        * price_book.used("prompt_bytes_per_token")
        / BYTES_PER_BILLED_GB
    )

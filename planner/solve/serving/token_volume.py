"""Tokens that a serving fleet reads and writes in the period of its bill."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

from planner.cost.lifetime import life_hours
from planner.solve.solution import TokenVolume
from planner.units import HOURS_PER_MONTH, SECONDS_PER_DAY, SECONDS_PER_MONTH

if TYPE_CHECKING:
    from collections.abc import Sequence

    from planner.cost.bill import Bill
    from planner.solve.serving.requirement import ServingRequirement
    from planner.solve.solution import BandedPrediction


def token_volume(
    requirement: ServingRequirement,
    predictions: dict[str, BandedPrediction],
    bill: Bill,
) -> TokenVolume:
    """Return the requests, and what they are times mean lengths."""
    request_count = _billed_requests(requirement, predictions, bill)
    load = requirement.load
    return TokenVolume(
        request_count,
        request_count * Decimal(load.prompt_lengths.mean_tokens),
        request_count * Decimal(load.answer_lengths.mean_tokens),
        Decimal(load.prefix_hit),
    )


def joint_volume(volumes: Sequence[TokenVolume]) -> TokenVolume:
    """Return the requests and tokens of services that one bill is for.

    cached share = cached prompt tokens of all / prompt tokens of all
    """
    first, *others = volumes
    if not others:
        return first
    prompt_tokens = sum(
        (volume.prompt_tokens for volume in volumes), Decimal(0)
    )
    cached_tokens = sum(
        (volume.prompt_tokens * volume.cached_share for volume in volumes),
        Decimal(0),
    )
    return TokenVolume(
        sum((volume.requests for volume in volumes), Decimal(0)),
        prompt_tokens,
        sum((volume.answer_tokens for volume in volumes), Decimal(0)),
        cached_tokens / prompt_tokens if prompt_tokens else Decimal(0),
    )


def _billed_requests(
    requirement: ServingRequirement,
    predictions: dict[str, BandedPrediction],
    bill: Bill,
) -> Decimal:
    """Return the requests that are served in the period of the bill.

    one batch:    its requests
    daily batch:  requests of a day * days of the period; a last day may be cut off
    serving:      requests a month * hours of the life / 730
    A closed loop serves predicted rate * mean load * 730 h in a month.
    """
    ttl_s = requirement.shutdown.ttl
    if requirement.mode == "batch":
        if not requirement.runs_daily:
            return requirement.request_count
        if ttl_s is None:
            return requirement.requests_per_month
        whole_days, rest_s = divmod(ttl_s, Decimal(SECONDS_PER_DAY))
        run_s = Decimal(predictions["duration_days"].value) * SECONDS_PER_DAY
        # The run of the last day does not end when the machines are given back before.
        return requirement.request_count * (
            whole_days + min(Decimal(1), rest_s / run_s)
        )
    monthly_requests = requirement.requests_per_month
    if requirement.mode == "closed":
        mean_rate = (
            predictions["requests_per_s"].value
            * requirement.traffic_week.mean_load
        )
        monthly_requests = Decimal(mean_rate) * SECONDS_PER_MONTH
    return monthly_requests * life_hours(bill.life) / HOURS_PER_MONTH

"""Entries of what a fleet is predicted to do, in the document of a plan."""

from __future__ import annotations

from typing import TYPE_CHECKING

from planner.plan.number import rounded
from planner.plan.prediction import (
    MetricLimit,
    PercentileBand,
    Prediction,
    Verification,
)

if TYPE_CHECKING:
    from planner.solve.solution import BandedPrediction, SimulationCheck


def prediction(estimate: BandedPrediction) -> Prediction:
    """Return a prediction with its band and basis, rounded to six digits."""
    return Prediction(
        value=rounded(estimate.value),
        low=rounded(estimate.low),
        high=rounded(estimate.high),
        basis=estimate.basis,
    )


def limit_entry(estimate: BandedPrediction, limit: float) -> MetricLimit:
    """Return a limit with what the predicted value leaves of it.

    headroom = 1 - value / limit
    """
    return MetricLimit(
        limit=rounded(limit), headroom=rounded(1 - estimate.value / limit)
    )


def verification(
    simulation_check: SimulationCheck | None,
) -> Verification | None:
    """Return how a fleet was simulated, None where it was not."""
    if simulation_check is None:
        return None
    return Verification(
        verdict=simulation_check.verdict,
        requests=simulation_check.request_count,
        requests_of=simulation_check.request_source,
        routing=simulation_check.routing,
        batches=simulation_check.batch_count,
        decode_factor=rounded(simulation_check.decode_factor),
        prefill_factor=rounded(simulation_check.prefill_factor),
        added_groups=simulation_check.added_groups,
        found={
            metric: PercentileBand(
                value=rounded(value),
                # A time is never below 0, whatever the spread of the batches.
                low=rounded(max(0.0, low)),
                high=rounded(high),
            )
            for metric, (
                value,
                low,
                high,
            ) in simulation_check.percentile_bands.items()
        },
    )

"""Entries of predicted numbers and of simulations, in the document of a plan."""

from __future__ import annotations

from typing import TYPE_CHECKING

from planner.plan import prediction as types
from planner.plan.number import rounded

if TYPE_CHECKING:
    from planner.solve.solution import BandedPrediction, SimulationCheck


def prediction(estimate: BandedPrediction) -> types.Prediction:
    """Return a prediction with its band and basis, rounded to six digits."""
    return types.Prediction(
        value=rounded(estimate.value),
        low=rounded(estimate.low),
        high=rounded(estimate.high),
        basis=estimate.basis,
    )


def verification(
    simulation_check: SimulationCheck | None,
) -> types.Verification | None:
    """Return how a simulation has judged a fleet; None where nothing was simulated."""
    if simulation_check is None:
        return None
    return types.Verification(
        verdict=simulation_check.verdict,
        requests=simulation_check.request_count,
        requests_of=simulation_check.request_source,
        routing=simulation_check.routing,
        batches=simulation_check.batch_count,
        decode_factor=rounded(simulation_check.decode_factor),
        prefill_factor=rounded(simulation_check.prefill_factor),
        added_groups=simulation_check.added_groups,
        found={
            metric: types.PercentileBand(
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

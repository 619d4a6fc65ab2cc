"""Predicted metrics of a service whose prompts and answers have pools of their own."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from planner.perf.serving.error_band import Band, assess_novelty, error_band
from planner.solve.serving.apart_judge import PARTS, ChainEnd
from planner.solve.serving.predict import (
    PERCENTILES,
    apply_band,
    predict_memory,
    wider_band,
)
from planner.solve.serving.verify import percentile_bands

if TYPE_CHECKING:
    from planner.solve.serving.apart_fleet import ApartFleet
    from planner.solve.serving.apart_judge import ApartJudge
    from planner.solve.serving.requirement import ServingRequirement
    from planner.solve.solution import BandedPrediction


def predict_apart(
    requirement: ServingRequirement, fleet: ApartFleet, judge: ApartJudge
) -> dict[str, BandedPrediction]:
    """Return the metrics of both pools together at the peak, with all peak groups up.

    Latency is that of a simulation of both, without the margins of the confidence: formulas know
    no chain. Of memory and of the share of what a pool could complete the fuller one counts.
    The names are those of `predict_serving`.
    """
    predictions = _memory(requirement, fleet, judge)
    load = requirement.load
    basis = predictions["memory_fraction"].basis
    exact = Band(1.0, 1.0, basis)
    predictions["busy_fraction"] = _busy_share(requirement, fleet, judge)
    predictions["output_tokens_per_s"] = apply_band(
        load.rate_per_s * load.answer_lengths.mean_tokens, exact
    )
    predictions["requests_per_s"] = apply_band(load.rate_per_s, exact)
    prompts, answers = (_expected(end) for end in fleet.ends)
    trial = judge.chain(requirement, prompts, answers)
    # Without a limit the run ends where a fleet may be accepted.
    told_ms = percentile_bands(trial, trial.decide(()).batch_count)
    replicas = [end.replica for end in fleet.ends]
    bands = {
        # Both pools have a part in the first token.
        "ttft": wider_band(*(replica.band("ttft") for replica in replicas)),
        "tpot": replicas[1].band("tpot"),
    }
    bands["e2e"] = wider_band(bands["ttft"], bands["tpot"])
    for metric, percentile in itertools.product(sorted(bands), PERCENTILES):
        key = f"{metric}_p{percentile}_ms"
        predictions[key] = apply_band(told_ms[key][0], bands[metric])
    return predictions


def _expected(end: ChainEnd) -> ChainEnd:
    """Return the same replicas without margins."""
    return ChainEnd(end.offer, end.replica.predicted, end.replica_count)


def _memory(
    requirement: ServingRequirement, fleet: ApartFleet, judge: ApartJudge
) -> dict[str, BandedPrediction]:
    """Return the memory of an accelerator of the fuller pool."""
    rate_rps = requirement.load.rate_per_s
    parts = []
    for part, pool, end in zip(PARTS, fleet.pools, fleet.ends, strict=True):
        novelties, _ = assess_novelty(
            requirement.llm,
            pool.sizing.layout,
            end.replica.node.accelerator,
            end.replica.engine.kind,
        )
        in_flight = judge.in_flight(
            part, end.replica.predicted, rate_rps / end.replica_count
        )
        parts.append(
            predict_memory(
                requirement,
                pool.sizing,
                in_flight,
                "physics" if "precision" in novelties else "calibrated",
            )
        )
    return max(parts, key=lambda part: part["memory_fraction"].value)


def _busy_share(
    requirement: ServingRequirement, fleet: ApartFleet, judge: ApartJudge
) -> BandedPrediction:
    """Return the requests that arrive of those that the busier pool could complete."""
    rate_rps = requirement.load.rate_per_s
    shares = [
        # Requests of a replica over those that it completes with nothing to spare.
        rate_rps
        / end.replica_count
        / judge.most_rps(part, end.replica.predicted)
        for part, end in zip(PARTS, fleet.ends, strict=True)
    ]
    busiest = fleet.ends[shares.index(max(shares))].replica
    novelties, basis = assess_novelty(
        requirement.llm,
        busiest.layout,
        busiest.node.accelerator,
        busiest.engine.kind,
        unstated_settings=requirement.has_draft,
    )
    band = error_band("throughput", "offline", novelties, basis)
    return apply_band(max(shares), Band(1 / band.high, 1 / band.low, basis))

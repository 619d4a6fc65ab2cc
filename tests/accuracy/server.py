"""MLPerf Server rows: the largest rate that keeps the stated 99th percentiles, by simulation."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from typing import Final

import numpy as np
from msgspec.structs import replace

from planner.numeric import Z_OF_90_PERCENT_BAND, nearest_rank
from planner.perf.serving import (
    load_shape,
    monte_carlo,
    replica_table,
    simulation,
)
from planner.perf.serving.deployment import Deployment
from planner.perf.serving.load import (
    LengthDistribution,
    ServingLoad,
)
from planner.perf.serving.replica_table import ReplicaTable
from tests.accuracy.sample import Batch, Sample

REQUESTS: Final = (1500, 8000)  # at least and at most
# Times that every slot is filled: fewer would not reach a steady state.
TURNS: Final = 6
WARM_UP: Final = 0.15  # share of a run before its times count
HALVINGS: Final = 7
WITHIN: Final = 0.25
LONGEST: Final = 2.2  # deviations at which a dataset's longest text lies
SLOTS: Final = 2048
MS: Final = 1000.0


def share(batch: Batch) -> tuple[float, int]:
    """Share of rows whose achieved rate is met within a quarter, and how many rows there are."""
    inside = [abs(ratio - 1) <= WITHIN for _, ratio in ratios(batch)]
    return float(np.mean(inside)), len(inside)


def ratios(batch: Batch) -> Iterator[tuple[Sample, float]]:
    """Yield the rows with the rate found over the rate achieved."""
    for sample in batch.samples:
        row = sample.row
        if (
            sample.group == "server"
            and row["quality"] == "A"
            and row["sla_ttft_p99_ms"]
        ):
            limits = (
                float(row[f"sla_{x}_p99_ms"]) / MS for x in ("ttft", "tpot")
            )
            achieved = (
                sample.setup.demand.rate_per_s / sample.setup.replica_count
            )
            yield sample, largest(_alike(sample.setup), *limits) / achieved


def _alike(setup: Deployment) -> Deployment:
    """The setup without its own rate: submissions of one kind of machine share the answer."""
    answer = float(f"{setup.demand.answer_tokens:.2g}")
    return replace(
        setup,
        replica_count=1,
        demand=replace(setup.demand, rate_per_s=1.0, answer_tokens=answer),
    )


@cache
def largest(setup: Deployment, ttft: float, tpot: float) -> float:
    """Requests a second of one replica, by halving up to its offline maximum."""
    server = setup.replica_rates()
    load = _load(setup)
    one = _machine(setup, server)
    count = max(REQUESTS[0], min(REQUESTS[1], TURNS * one.slot_count))
    low = 0.0
    high = (
        1.2 * load_shape.offline_throughput(server) / setup.demand.answer_tokens
    )
    for _ in range(HALVINGS):
        rate = (low + high) / 2
        requests = monte_carlo.draw_requests(load, count, 1, 1.0, rate)
        monte_carlo.route_requests(one, requests, 1, "random")
        run = simulation.request_times(one, requests[int(WARM_UP * count) :])
        fast = all(
            nearest_rank(sorted(run[metric]), 0.99) <= limit
            for metric, limit in (("ttft", ttft), ("tpot", tpot))
        )
        low, high = (rate, high) if fast else (low, rate)
    return low


def _machine(
    setup: Deployment, server: load_shape.ReplicaRates
) -> ReplicaTable:
    """The replica with the time that a tuned server takes."""
    held = setup.demand.prompt_tokens + setup.demand.answer_tokens
    slots = max(1, min(int(server.max_batch), SLOTS))
    c = server.coefficients
    one = replica_table.tabulate_times(
        server.step_times, c, slots, server.max_batch * held, held
    )
    return replace(
        one,
        base_steps_s=tuple(x * c.server_time for x in one.base_steps_s),
        step_growths_s=tuple(x * c.server_time for x in one.step_growths_s),
    )


def _load(setup: Deployment) -> ServingLoad:
    """Lognormal lengths whose upper end is the dataset's longest text."""
    demand = setup.demand
    most = _datasets()[setup.llm.model]
    return ServingLoad(
        prompt_lengths=_lengths(demand.prompt_tokens, most[0]),
        answer_lengths=_lengths(demand.answer_tokens, most[1]),
    )


def _lengths(mean: float, most: float) -> LengthDistribution:
    sigma = max(0.0, math.log(most / mean)) / LONGEST
    return LengthDistribution(
        mean_tokens=mean,
        p95_tokens=mean
        * math.exp(Z_OF_90_PERCENT_BAND * sigma - sigma * sigma / 2),
    )


@cache
def _datasets() -> dict[str, tuple[float, float]]:
    text = (
        files("planner.estimate")
        .joinpath("data", "datasets.csv")
        .read_text(encoding="utf-8")
    )
    rows = csv.DictReader(text.splitlines())
    return {
        r["model"]: (float(r["input_most"]), float(r["output_most"]))
        for r in rows
    }

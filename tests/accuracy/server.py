"""MLPerf Server rows: the largest rate that keeps the stated 99th percentiles, by simulation."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from importlib.resources import files
from typing import Final

import numpy as np

from planner.perf import play, shape, simulate
from planner.perf.load import Z95, Lengths, Load
from planner.perf.setup import Setup
from planner.perf.simulate import Machine
from tests.accuracy.sample import Batch, Sample

REQUESTS: Final = (1500, 8000)  # at least and at most
TURNS: Final = (
    6  # times that every slot is filled: fewer would not reach a steady state
)
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
            achieved = sample.setup.demand.rate / sample.setup.replicas
            yield sample, largest(_alike(sample.setup), *limits) / achieved


def _alike(setup: Setup) -> Setup:
    """The setup without its own rate: submissions of one kind of machine share the answer."""
    answer = float(f"{setup.demand.answer:.2g}")
    return replace(
        setup, replicas=1, demand=replace(setup.demand, rate=1.0, answer=answer)
    )


@cache
def largest(setup: Setup, ttft: float, tpot: float) -> float:
    """Requests a second of one replica, by halving up to its offline maximum."""
    server, load = setup.server(), _load(setup)
    one = _machine(setup, server)
    count = max(REQUESTS[0], min(REQUESTS[1], TURNS * one.slots))
    low, high = 0.0, 1.2 * shape.offline(server) / setup.demand.answer
    for _ in range(HALVINGS):
        rate = (low + high) / 2
        requests = play.arrivals(load, count, 1, 1.0, rate)
        run = play.times(one, play.deliver(one, requests, 1, "random"))
        found = play.summary([run], (("ttft", 99), ("tpot", 99))).found
        fast = (
            found["ttft", 99].value <= ttft and found["tpot", 99].value <= tpot
        )
        low, high = (rate, high) if fast else (low, rate)
    return low


def _machine(setup: Setup, server: shape.Server) -> Machine:
    """The replica with the time that a tuned server takes."""
    held = setup.demand.prompt + setup.demand.answer
    slots = max(1, min(int(server.room), SLOTS))
    c = server.coefficients
    one = simulate.machine(server.rates, c, slots, server.room * held, held)
    return replace(
        one,
        base=tuple(x * c.server_time for x in one.base),
        growth=tuple(x * c.server_time for x in one.growth),
    )


def _load(setup: Setup) -> Load:
    """Lognormal lengths whose upper end is the dataset's longest text."""
    demand, most = setup.demand, _datasets()[setup.llm.model]
    return Load(
        prompt=_lengths(demand.prompt, most[0]),
        answer=_lengths(demand.answer, most[1]),
    )


def _lengths(mean: float, most: float) -> Lengths:
    sigma = max(0.0, math.log(most / mean)) / LONGEST
    return Lengths(
        mean=mean, p95=mean * math.exp(Z95 * sigma - sigma * sigma / 2)
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

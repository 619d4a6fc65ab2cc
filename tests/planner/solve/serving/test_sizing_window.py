"""The window of a daily batch against runs that are played: long enough, and no longer.

How much slower than predicted a run is, is drawn from the errors of predictions without the source
of a measurement, read from planner/perf/data/margins.csv. Machines fail, and are taken back.
"""

from __future__ import annotations

import csv
import math
from typing import TYPE_CHECKING

import numpy as np
import pytest

from planner.perf.serving.replica import Confidence
from planner.solve.settings import SolveSettings
from planner.workload.solver import find as find_fleet
from tests.conftest import ROOT, only, spec_of
from tests.oracles.played_job import Machines, hazards, played_batch
from tests.oracles.played_service import NORMAL_999
from tests.oracles.stated import Reclaims, reclaims

if TYPE_CHECKING:
    from numpy.random import Generator
    from numpy.typing import NDArray

    from planner.market.offer import Catalog
    from planner.solve.solution import SizedPool, Solution

HOUR = 3600
DAY = 86_400
RUNS = 8000
# Without an idle limit: a time to live of months ends nothing in a day.
BATCH = """apiVersion: tonnage/v1
kind: Batch
name: batch
model: {name: llama-3.1-8b, precision: bf16}
traffic: {requests_per_day: 1500k, input_tokens: 1000, output_tokens: 200}
deadline: 20h
shutdown: {ttl: 90d}
"""
LEVELS = (0.5, 0.7, 0.8, 0.9, 0.95, 0.99)


@pytest.fixture(scope="module")
def hopper(catalog: Catalog) -> Catalog:
    """Machines whose errors have rows of their own."""
    return only(
        catalog,
        lambda offer: (
            offer.instance.accelerator == "h100-sxm"
            and offer.purchase in ("on_demand", "spot")
        ),
    )


def planned(
    catalog: Catalog, level: float, deadline: str = "20h", rule: str = ""
) -> tuple[Solution, SizedPool]:
    """Plan the batch with a confidence."""
    text = BATCH.replace("20h", deadline)
    if rule:
        text = text.replace("ttl: 90d", rule)
    settings = SolveSettings(
        catalog=catalog,
        unbuilt_reason=lambda _: None,
        read_file=lambda _: b"",
        confidence=Confidence(level),
    )
    solution = find_fleet(spec_of(text), settings)
    [pool] = solution.pools
    return solution, pool


def drawn_slowness(draw: Generator) -> NDArray[np.float64]:
    """How many times as long as predicted runs of a deployment take that nobody measured."""
    with (ROOT / "planner/perf/data/margins.csv").open(newline="") as file:
        [row] = [
            row
            for row in csv.DictReader(file)
            if row["target"] == "throughput"
            and row["architecture"] == "Hopper"
            and row["new"] == "source"
        ]
    cells = int(row["cells"])
    errors = draw.standard_t(cells - 1, size=RUNS) * math.sqrt(1 + 1 / cells)
    return np.exp(float(row["mean"]) + float(row["sigma"]) * errors)


def played_ends_s(
    solution: Solution, pool: SizedPool, rate: Reclaims | None
) -> NDArray[np.float64]:
    """When each of many played days has answered all of its requests, seconds."""
    draw = np.random.default_rng(7)
    run_h = float(solution.predictions["duration_days"].value) * DAY / HOUR
    boot_h = pool.startup_s / HOUR
    ends_h = [
        played_batch(
            draw,
            Machines(pool.nodes, pool.nodes),
            boot_h,
            (run_h - boot_h) * slowness,
            rate,
        )[0]
        for slowness in drawn_slowness(draw)
    ]
    return np.array(ends_h) * HOUR


@pytest.mark.parametrize("level", LEVELS)
def test_a_run_is_over_in_its_window_as_often_as_the_confidence_says(
    hopper, level: float
) -> None:
    """But for the days on which a machine goes: the confidence is that of predictions."""
    solution, pool = planned(hopper, level)
    [part] = pool.purchases
    assert part.purchase == "spot"
    rate = reclaims(
        pool.instance.provider, pool.instance.instance_type, "monthly"
    )
    window_h = pool.run_window_s / HOUR
    gone = 1 - math.exp(
        -hazards(Machines(pool.nodes, pool.nodes), rate).all * window_h
    )
    assert gone < 0.1
    half_width = NORMAL_999 * math.sqrt(level * (1 - level) / RUNS)
    ends_s = played_ends_s(solution, pool, rate)
    share = float(np.mean(ends_s <= pool.run_window_s))
    assert share >= level - gone - half_width
    # Nobody pays for more. A run is never planned to be faster than predicted, which is sure
    # enough for even odds.
    if level > 0.6:
        assert share <= level + half_width


def test_a_window_ends_by_the_deadline_and_grows_with_the_confidence(
    hopper,
) -> None:
    longest: dict[tuple[str, int], int] = {}
    for level in LEVELS:
        _, pool = planned(hopper, level)
        assert 0 < pool.run_window_s <= 20 * HOUR
        # More machines are done earlier: of as many the surer ones stay longer.
        fleet = (pool.instance.instance_type, pool.nodes)
        assert pool.run_window_s >= longest.get(fleet, 0)
        longest[fleet] = pool.run_window_s
    assert len(longest) < len(LEVELS)


def test_a_later_deadline_costs_nothing(hopper) -> None:
    costs = []
    for deadline in ("6h", "8h", "12h", "16h", "23h"):
        solution, pool = planned(hopper, 0.9, deadline)
        assert pool.run_window_s <= float(deadline.rstrip("h")) * HOUR
        assert solution.bill is not None
        costs.append(solution.bill.total)
    assert costs == sorted(costs, reverse=True)


def test_machines_that_leave_when_idle_have_until_the_deadline(hopper) -> None:
    """They cost nothing more by it, and a run that is slower than planned ends."""
    with_limit, waiting = planned(hopper, 0.9, rule="idle: 20m")
    without, leaving = planned(hopper, 0.9)
    assert waiting.run_window_s == 20 * HOUR > leaving.run_window_s
    told = {warning.code for warning in without.warnings}
    assert "window" in told - {warning.code for warning in with_limit.warnings}

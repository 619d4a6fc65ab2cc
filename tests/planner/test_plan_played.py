"""A plan against its own life, played many times: what it costs, and how often it falls short.

Demand, failures and reclaims are drawn, and prices are held. `tests/oracles/played_service.py` and
`played_job.py` play. The limits on single requests are judged by other requests in
`tests/planner/solve/serving/test_verify.py`.
"""

from __future__ import annotations

import math
import re
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import pytest

from tests.conftest import BLUEPRINTS, ROOT, only, present
from tests.oracles.played_job import Outcomes, played_batches, played_runs
from tests.oracles.played_service import (
    NORMAL_999,
    Life,
    Machines,
    Share,
    balancer_line,
    load_of,
    machines_of,
    played_life,
)
from tests.oracles.stated import Reclaims, reclaims
from tests.planner.solve.serving.test_spot_promise import fresh
from tests.stacks.engine.test_simulated import plan_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from planner.market.offer import Catalog
    from planner.plan.types import Plan

SEED = 7
BILLS = 400
JOBS = 1000
# Months in which a fleet falls short often enough to be counted.
MONTHS = 4000
COST_SHARE = 0.01
ERROR_SHARE = 0.003
# A quarter of what machines on spot would cost while they are away.
AWAY_SHARE = 0.003
# Runs of the plan itself, of which it tells the 90th percentile.
PLAN_RUNS = 1000
LATE_SHARE = 0.1
# A plan is written with six digits.
DIGITS = 2e-5


def of_kind(kind: str) -> list[str]:
    """Names of the blueprints of a kind."""
    return [
        path.stem for path in BLUEPRINTS if f"kind: {kind}" in path.read_text()
    ]


HALF = "commit: [none, 3y], on_demand_base: 50%"
SPOT = "spot: only"
# Of each serving blueprint: what stays and spot above it, and spot alone.
WAYS = [
    (name, way)
    for name in of_kind("Inference")
    # Machines that work together take long to plan with a commitment.
    for way in (["on_demand_base: 50%"] if "deepseek" in name else [HALF, SPOT])
]
# Blueprint, promise, cloud, how its machines are bought.
PROMISES = [
    ("code-assistant", "99.9%", "aws", "on_demand_base: auto"),
    ("chat-8b", "99.95%", "aws", "on_demand_base: auto"),
    ("rag-prefix-cache", "99.5%", "aws", "on_demand_base: auto"),
    ("rag-prefix-cache", "70%", "gcp", "on_demand_base: 50%"),
    ("moe-deepseek-r1", "99%", "aws", "on_demand_base: auto"),
    ("translate-small", "60%", "gcp", SPOT),
]
# Runs and batches of which machines on demand go on while others are taken back, and where.
BASES = [
    ("pretrain-7b", "gcp", "50%"),
    ("pretrain-7b", "aws", "30%"),
    ("research-spot", "gcp", "20%"),
    ("pretrain-moe", "gcp", "50%"),
    ("classify-backlog", "azure", "50%"),
    ("summarize-batch", "gcp", "40%"),
]
# Runs that are taken back more often than the blueprint on spot: where, and which.
SPOT_RUNS = [
    ("pretrain-7b", "gcp"),
    ("pretrain-7b", "azure"),
    ("pretrain-moe", "gcp"),
    ("research-spot", "azure"),
]


def text_of(name: str, buy: str = "", promise: str = "") -> str:
    """A blueprint, bought and promised in another way."""
    text = (ROOT / "blueprints" / f"{name}.yaml").read_text()
    if buy:
        text = re.sub(r"\nbuy:.*\n(  .*\n)*", "\n", text)
        text = re.sub(r"  availability: .*\n", "", text)
        text += f"\nbuy: {{{buy}}}\n"
    if promise:
        text = text.replace("sla:\n", f"sla:\n  availability: {promise}\n")
    return text


@pytest.fixture(scope="module")
def planned(catalog: Catalog) -> Callable[[str], Plan]:
    """Plans of blueprints as they are, each made once."""
    return cache(lambda name: plan_of(catalog, text_of(name)))


def cloud_of(catalog: Catalog, cloud: str) -> Catalog:
    return only(catalog, lambda offer: offer.provider == cloud)


def mean_rate(plan: Plan) -> Reclaims:
    """How often machines of a plan are taken back in the mean."""
    [pool] = plan.solution.pools
    return reclaims(pool.provider, pool.instance_type, "monthly")


def end_rate(plan: Plan, catalog: Catalog, end: str) -> Reclaims:
    """The lowest or the highest rate that is published of the machines of a plan."""
    [pool] = plan.solution.pools
    rate = reclaims(pool.provider, pool.instance_type, end)
    key = (pool.provider, pool.instance_type, pool.region, "spot")
    [band] = [o.reclaim_band for o in catalog.offers if o.key == key]
    if band is not None:
        share = band.low_share if end == "low" else band.high_share
        rate = rate._replace(monthly_share=share)
    return rate._replace(is_open=end == "high" and rate.monthly_share == 1)


def played_jobs(plan: Plan) -> Outcomes:
    [pool] = plan.solution.pools
    ways = {part.purchase for part in pool.purchases}
    rate = mean_rate(plan) if "spot" in ways else None
    play = played_runs if plan.solution.run else played_batches
    return play(plan, rate, JOBS, SEED)


def played_bills(plan: Plan) -> Life:
    [pool] = plan.solution.pools
    return played_life(plan, machines_of(pool), mean_rate(plan), BILLS, SEED)


def difference(plan: Plan) -> float:
    """What a plan costs when it is played over what it says, less one."""
    is_job = plan.workload.kind in ("batch", "training")
    usd = played_jobs(plan).usd if is_job else played_bills(plan).usd
    error = usd.std(ddof=1) / math.sqrt(len(usd))
    assert error < ERROR_SHARE * usd.mean()
    return float(usd.mean()) / float(plan.cost.total) - 1


@pytest.mark.parametrize("name", [path.stem for path in BLUEPRINTS])
def test_a_blueprint_costs_what_its_plan_says(planned, name: str) -> None:
    assert abs(difference(planned(name))) < COST_SHARE


@pytest.mark.parametrize("name", of_kind("Inference"))
def test_clients_send_and_get_what_a_plan_counts(planned, name: str) -> None:
    """Traffic costs so little that the sum of a bill does not show it."""
    plan = planned(name)
    told_gb = float(present(balancer_line(plan)).quantity)
    assert played_bills(plan).gb.mean() == pytest.approx(
        told_gb, rel=COST_SHARE
    )


@pytest.mark.parametrize(("name", "buy"), WAYS)
def test_a_service_costs_what_its_plan_says_however_it_is_bought(
    catalog, name: str, buy: str
) -> None:
    plan = plan_of(cloud_of(catalog, "aws"), text_of(name, buy))
    assert abs(difference(plan)) < COST_SHARE


@pytest.mark.parametrize("buy", [SPOT, "on_demand_base: 50%"])
@pytest.mark.parametrize("cloud", ["gcp", "azure"])
def test_a_service_is_not_billed_for_machines_that_are_taken_back(
    catalog, cloud: str, buy: str
) -> None:
    """There machines on spot are away for a percent of the month, and cost nothing meanwhile."""
    plan = plan_of(cloud_of(catalog, cloud), text_of("chat-405b", buy))
    assert abs(difference(plan)) < AWAY_SHARE


@pytest.mark.parametrize(("name", "cloud"), SPOT_RUNS)
def test_a_run_on_spot_costs_and_takes_what_its_plan_says(
    catalog, name: str, cloud: str
) -> None:
    plan = plan_of(cloud_of(catalog, cloud), text_of(name, SPOT))
    assert abs(difference(plan)) < COST_SHARE
    assert_as_late_as_told(plan, played_jobs(plan))


@pytest.mark.parametrize(("name", "cloud", "base"), BASES)
def test_a_job_with_a_base_costs_and_takes_what_its_plan_says(
    catalog, name: str, cloud: str, base: str
) -> None:
    buy = f"on_demand_base: {base}"
    plan = plan_of(cloud_of(catalog, cloud), text_of(name, buy))
    [pool] = plan.solution.pools
    assert {p.purchase for p in pool.purchases} == {"on_demand", "spot"}
    assert abs(difference(plan)) < COST_SHARE
    if plan.solution.run is not None:
        assert_as_late_as_told(plan, played_jobs(plan))


@pytest.mark.parametrize("name", of_kind("Training"))
def test_one_run_in_ten_takes_longer_than_nine_in_ten_do(
    planned, name: str
) -> None:
    plan = planned(name)
    assert_as_late_as_told(plan, played_jobs(plan))


def assert_as_late_as_told(plan: Plan, played: Outcomes) -> None:
    """A tenth of the runs is later than the plan says of nine in ten, and the deadline is kept."""
    told_h = float(present(plan.solution.run).hours_p90)
    # Both are samples.
    half_width = NORMAL_999 * math.sqrt(
        LATE_SHARE * (1 - LATE_SHARE) * (1 / JOBS + 1 / PLAN_RUNS)
    )
    later = np.mean(played.end_h > told_h * (1 + DIGITS))
    earlier = np.mean(played.end_h < told_h * (1 - DIGITS))
    # Where most runs are never stopped they all take the same time.
    assert later < LATE_SHARE + half_width
    assert earlier < 1 - LATE_SHARE + half_width
    train = plan.spec.normalized["train"]
    assert np.mean(played.end_h * 3600 > float(train["deadline"])) < LATE_SHARE


@pytest.mark.parametrize("name", of_kind("Batch"))
def test_a_batch_is_in_time_although_machines_go(planned, name: str) -> None:
    plan = planned(name)
    deadline_h = float(plan.spec.normalized["deadline"]) / 3600
    assert np.mean(played_jobs(plan).end_h > deadline_h) < LATE_SHARE


def short_time(plan: Plan, machines: Machines, rate: Reclaims) -> Share:
    return played_life(plan, machines, rate, MONTHS, SEED).short


@pytest.mark.parametrize(("name", "promise", "cloud", "buy"), PROMISES)
def test_enough_machines_are_up_as_often_as_a_plan_on_spot_says(
    catalog, name: str, promise: str, cloud: str, buy: str
) -> None:
    """At the lowest and at the highest published rate of reclaims."""
    offers = fresh(cloud_of(catalog, cloud))
    plan = plan_of(offers, text_of(name, buy, promise))
    [told] = [
        warning.reason.values
        for warning in plan.warnings
        if warning.code == "spot-promise"
    ]
    machines = machines_of(plan.solution.pools[0])
    for end in ("low", "high"):
        short = short_time(plan, machines, end_rate(plan, offers, end))
        assert short.has(1 - float(told[f"{end}_rate_share"])), end
        promised = float(promise.rstrip("%")) / 100
        assert short.mean - short.half_width <= 1 - promised


@pytest.mark.parametrize("name", ["chat-70b", "rag-prefix-cache"])
def test_a_blueprint_is_short_no_longer_than_it_promises(
    planned, name: str
) -> None:
    """And with spare machines in fewer hours it would be."""
    plan = planned(name)
    promised = float(plan.spec.normalized["sla"]["availability"])
    machines = machines_of(plan.solution.pools[0])
    rate = mean_rate(plan)
    short = short_time(plan, machines, rate)
    assert short.mean - short.half_width <= 1 - promised
    if not machines.spare_groups:
        return
    load = load_of(plan)
    busiest = np.sort(load)[::-1]
    least_spared = busiest[machines.spare_hours - 1]
    fewer = machines._replace(spare_hours=int(np.sum(load > least_spared)))
    short = short_time(plan, fewer, rate)
    assert short.mean > 1 - promised

"""A service on two machine types: what it promises, costs and builds."""

from __future__ import annotations

import itertools
import math
import random
from decimal import Decimal
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from planner.errors import SpecError
from planner.perf.serving.monte_carlo import (
    RequestStream,
    RoutedReplicas,
)
from planner.perf.serving.replica_table import tabulate_replica
from planner.perf.serving.simulation import NEVER, Request, request_times
from planner.sentence import describe
from planner.solve.serving.mixed_search import MixedSearch
from planner.solve.serving.requirement import serving_requirement
from planner.solve.serving.search import ServingSearch
from planner.solve.settings import SolveSettings
from planner.spec.model import Inference
from planner.workload.solver import what_if
from providers.simulated import world
from stacks.build import build_stack
from stacks.engine.simulated import SimulatedEngine
from stacks.spec.table import unsupported_reason
from tests.conftest import chat, find, only, present, solve, spec_of
from tests.stacks.engine.test_simulated import (
    EVERYTHING,
    objects,
    plan_of,
    quiet,
)
from tests.stacks.test_build import check

if TYPE_CHECKING:
    from pathlib import Path

    from planner.market.offer import Catalog
    from planner.solve.serving.bill import BilledPool

# A strong machine and a weak one of each cloud, with prices that make one of each the cheapest.
TYPES = {
    "aws": {"g6e.xlarge": "2.00", "g6.xlarge": "0.40"},
    "gcp": {"a2-highgpu-1g": "3.00", "g2-standard-4": "0.60"},
    "azure": {
        "Standard_NC40ads_H100_v5": "4.00",
        "Standard_NC24ads_A100_v4": "2.50",
    },
}
# Just above what whole strong machines carry, requests/s.
RATES = {"aws": 4.2, "gcp": 5.7, "azure": 19}
LIMITS_S = {"ttft": 2.0, "tpot": 0.08}


def two_types(cloud: str, machine_types: int = 2, more: str = "") -> str:
    return chat(
        precision="bf16",
        traffic=f"peak_rps: {RATES[cloud]}",
        extra=f"where: {{clouds: [{cloud}]}}\n"
        f"buy: {{spot: never, machine_types: {machine_types}{more}}}",
    )


def repriced(catalog: Catalog, cloud: str) -> Catalog:
    return with_prices(catalog, cloud, TYPES[cloud])


def with_prices(
    catalog: Catalog, cloud: str, prices: dict[str, str]
) -> Catalog:
    """Some machine types of a cloud on demand, each at one price in all regions."""
    few = only(
        catalog,
        lambda offer: (
            offer.provider == cloud
            and offer.purchase == "on_demand"
            and offer.instance.instance_type in prices
        ),
    )
    return replace(
        few,
        offers=tuple(
            replace(
                offer, usd_hour=Decimal(prices[offer.instance.instance_type])
            )
            for offer in few.offers
        ),
    )


@pytest.mark.parametrize("cloud", TYPES)
def test_it_costs_less_than_one_type_and_is_built(
    catalog: Catalog, cloud: str, here: Path
) -> None:
    """On each cloud: two groups that carry all, applied and destroyed."""
    few = repriced(catalog, cloud)
    alone = present(find(few, two_types(cloud, 1)).bill)
    text = two_types(cloud)
    solution = find(few, text)
    bill = present(solution.bill)
    assert bill.total < alone.total
    assert sum(line.usd or 0 for line in bill.lines) == bill.total
    assert [pool.name for pool in solution.pools] == ["serve", "serve-2"]
    assert len({pool.region for pool in solution.pools}) == 1
    assert solution.predictions["requests_per_s"].value == pytest.approx(
        RATES[cloud]
    )
    graph = build_stack(spec_of(text), solution, "chat").graph
    check(graph)
    engine = SimulatedEngine(world.default_world(), here / "clouds")
    plan = plan_of(few, text)
    assert plan.solution.pools[0].weight > plan.solution.pools[1].weight > 0
    engine.apply(plan, quiet)
    assert len(objects(engine)) == len(plan.graph.resources)
    engine.destroy("chat", quiet, EVERYTHING)
    assert objects(engine) == {}


def test_all_requests_together_keep_the_limits(catalog: Catalog) -> None:
    """One stream of requests, drawn anew and shared by weight, played on all machines."""
    few = repriced(catalog, "aws")
    spec = spec_of(two_types("aws"))
    assert isinstance(spec, Inference)
    requirement = serving_requirement(spec, lambda _: b"")
    search = ServingSearch(few.price_book)
    fleet = present(
        MixedSearch(requirement, search).cheapest(few.offers, math.inf)
    )
    machines = [
        (pool, weight)
        for pool, weight in zip(fleet.pools, fleet.weights, strict=True)
        for _ in range(pool.sizing.peak_groups)
    ]
    draw = random.Random(3)
    stream = RequestStream(requirement.load, seed=11)
    sent: list[list[Request]] = [[] for _ in machines]
    for request in itertools.islice(stream.requests(1.0, 5.0), 6000):
        [index] = draw.choices(
            range(len(machines)), [weight for _, weight in machines]
        )
        sent[index].append(request)
    times = [
        played(pool, requests)
        for (pool, _), requests in zip(machines, sent, strict=True)
    ]
    for metric, limit_s in LIMITS_S.items():
        values = sorted(value for machine in times for value in machine[metric])
        assert values[int(0.95 * len(values))] <= limit_s


def played(pool: BilledPool, requests: list[Request]) -> dict[str, list[float]]:
    table = tabulate_replica(pool.sizing.replica)
    replicas = RoutedReplicas(table, pool.sizing.replicas_per_group, "random")
    for request in requests:
        replicas.send(request)
    replicas.advance(NEVER)
    return {
        metric: list(values)
        for metric, values in request_times(table, requests).items()
    }


def test_more_traffic_is_planned_on_two_types_too(catalog: Catalog) -> None:
    few = repriced(catalog, "aws")
    half = two_types("aws").replace("peak_rps: 4.2", "peak_rps: 2.1")
    settings = SolveSettings(
        catalog=few,
        unbuilt_reason=unsupported_reason,
        read_file=lambda _: b"",
    )
    twice = what_if(spec_of(half), settings, 2.0)
    solution = find(few, two_types("aws"))
    assert len(solution.pools) == 2
    assert twice.fleet == solution.summary
    assert twice.usd == present(solution.bill).total


@pytest.mark.parametrize(
    "change",
    [
        "elastic: {least: 0.5, most: 2}",
        "update: recreate\nbuy: {machine_types: 2, reserve: true}",
    ],
)
def test_what_excludes_two_types_is_refused_by_name(
    catalog: Catalog, change: str
) -> None:
    text = chat(extra=change)
    if "buy" not in change:
        text += "\nbuy: {machine_types: 2}"
    with pytest.raises(SpecError) as refused:
        find(catalog, text)
    assert "machine_types" in refused.value.problems[0].message


def test_each_pool_is_up_often_enough_for_both(catalog: Catalog) -> None:
    """Two pools at the square root of what is asked for are both up as often as asked."""
    spec = spec_of(
        chat(sla="ttft_p95: 2s, availability: 99.9%", traffic="peak_rps: 8")
    )
    assert isinstance(spec, Inference)
    part = serving_requirement(spec, lambda _: b"").with_share(0.25)
    assert present(part.availability) ** 2 == pytest.approx(Decimal("0.999"))
    assert part.load.rate_per_s == 2
    assert part.traffic_share == 0.25


def test_what_a_wish_saves_is_what_the_spec_without_it_saves(
    catalog: Catalog,
) -> None:
    """Wishes are left out with two types allowed, as a plan without them has it."""
    few = repriced(catalog, "aws")
    text = two_types("aws")
    solution = solve(few, text)
    total = present(solution.bill).total
    told = {binding.constraint: binding for binding in solution.bindings}
    without = {
        "tpot_p95": text.replace(
            "tpot_p95: 80ms",
            f"tpot_p95: {describe(told['tpot_p95'].relax_to)}".replace(
                " ms", "ms"
            ),
        ),
    }
    # Two types take random shares, so another router is no wish of theirs.
    assert set(told) == set(without)
    for constraint, changed in without.items():
        assert changed != text
        again = find(few, changed)
        usd = present(again.bill).total
        assert told[constraint].usd == usd
        assert told[constraint].saves_usd == total - usd > 0
        assert told[constraint].fleet == again.summary


def test_what_one_type_would_save_is_not_told_where_two_cost_less(
    catalog: Catalog,
) -> None:
    """A slower limit saves no less with two types, and nothing is saved by less than nothing."""
    few = repriced(catalog, "gcp")
    solution = solve(few, two_types("gcp"))
    alone = solve(few, two_types("gcp", 1))
    total, alone_total = (
        present(each.bill).total for each in (solution, alone)
    )
    assert total < alone_total
    apart = {binding.constraint: binding for binding in alone.bindings}
    for binding in solution.bindings:
        assert present(binding.saves_usd) > 0
        assert present(binding.usd) <= present(apart[binding.constraint].usd)


def test_a_budget_that_two_types_exceed_names_what_they_cost(
    catalog: Catalog,
) -> None:
    few = repriced(catalog, "aws")
    total = present(find(few, two_types("aws")).bill).total
    below = solve(few, two_types("aws", more=", budget: 100/month"))
    assert below.status == "infeasible"
    [budget] = [
        binding
        for binding in below.bindings
        if binding.constraint == "buy.budget"
    ]
    assert budget.usd == total


def test_a_region_that_both_types_are_cheaper_in_is_a_wish(
    catalog: Catalog,
) -> None:
    """What another region saves is what two types cost there, and not one."""
    few = repriced(catalog, "aws")
    half = replace(
        few,
        offers=tuple(
            replace(offer, usd_hour=offer.usd_hour / 2)
            if offer.region == "us-east-1"
            else offer
            for offer in few.offers
        ),
    )
    free = two_types("aws")
    bound = free.replace("clouds: [aws]", "clouds: [aws], regions: [us-west-2]")
    solution = solve(half, bound)
    [wish] = [
        binding
        for binding in solution.bindings
        if binding.constraint == "where.regions"
    ]
    again = find(half, free)
    assert len(solution.pools) == len(again.pools) == 2
    assert wish.usd == present(again.bill).total
    assert wish.fleet == again.summary

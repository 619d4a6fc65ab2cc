"""A base on demand and spot above it: the cheapest such fleet, billed as it runs, and built."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from planner.errors import SpecError
from planner.facts.cloud import clouds
from planner.market.mix import may_be_mixed
from planner.perf.reliability.spot_pool import billed_share
from planner.units import SECONDS_PER_DAY
from providers.simulated.bill import metered_lines
from providers.simulated.clock import advance
from stacks.build import build_stack
from stacks.engine.simulated import SimulatedEngine
from tests.conftest import chat, find, only, present, spec_of
from tests.oracles.standing import WEEK_MINUTES, standing_nodes
from tests.planner.spec.test_reservation_made import LARGE
from tests.stacks.engine.test_simulated import (
    EVERYTHING,
    objects,
    plan_of,
    quiet,
    world_of,
)
from tests.stacks.test_build import check

WEEKS = 2


def mixed(
    cloud: str, base: str = "40%", profile: str = "business-hours"
) -> str:
    return chat(
        traffic=f"peak_rps: 20\n  profile: {profile}",
        extra=f"buy: {{on_demand_base: {base}}}\nwhere: {{clouds: [{cloud}]}}",
    )


def total(catalog: Any, text: str) -> Decimal:
    return present(find(catalog, text, keep=0).bill).total


def test_no_region_has_a_cheaper_one(catalog) -> None:
    """Against a plan of each region by itself: the cheapest spot is in another one."""
    machine = "g2-standard-4"
    few = only(catalog, lambda offer: offer.instance.instance_type == machine)
    cheapest = total(few, mixed("gcp"))
    spot_usd = {
        offer.region: offer.usd_hour
        for offer in few.offers
        if offer.purchase == "spot"
    }
    alone = {
        region: total(
            only(few, lambda offer, region=region: offer.region == region),  # type: ignore[misc]
            mixed("gcp"),
        )
        for region in spot_usd
    }
    assert len(alone) > 5
    assert cheapest == min(alone.values())
    assert alone[min(spot_usd, key=lambda name: spot_usd[name])] > cheapest


@pytest.mark.parametrize("cloud", clouds())
def test_machines_on_demand_serve_first(catalog, cloud: str) -> None:
    solution = find(catalog, mixed(cloud), keep=0)
    [pool] = solution.pools
    base, spot = pool.purchases
    assert (base.purchase, spot.purchase) == ("on_demand", "spot")
    # As many as the share, rounded up.
    assert base.nodes - 1 < Decimal("0.4") * pool.nodes <= base.nodes
    minutes = standing_nodes(solution, pool)
    month = Decimal(730) / WEEK_MINUTES
    lines = [
        line
        for line in present(solution.bill).lines
        if line.kind == "accelerators"
    ]
    # Those on spot are not there all the time, and are paid for while they are.
    there = billed_share(cloud, pool.instance.family, pool.startup_s)
    hours = [
        sum(min(nodes, base.nodes) for nodes in minutes) * month,
        sum(max(0, nodes - base.nodes) for nodes in minutes)
        * month
        * Decimal(there),
    ]
    assert 0.98 < there <= 1
    assert [line.quantity for line in lines] == [
        pytest.approx(found, abs=Decimal("0.0001")) for found in hours
    ]
    assert [line.unit_price for line in lines] == [
        base.usd_hour,
        spot.usd_hour,
    ]


@pytest.mark.parametrize("cloud", clouds())
def test_a_larger_base_never_costs_less(catalog, cloud: str) -> None:
    costs = [
        total(catalog, mixed(cloud, base)) for base in ("5%", "50%", "95%")
    ]
    assert costs == sorted(costs)
    only_base = mixed(cloud).replace("on_demand_base: 40%", "spot: never")
    assert costs[-1] <= total(catalog, only_base)


@pytest.mark.parametrize("cloud", clouds())
def test_what_is_built_costs_what_was_planned(
    catalog, here: Path, cloud: str
) -> None:
    """Weeks pass in the simulated cloud, and machines follow the hours of both groups."""
    text = mixed(cloud)
    plan = plan_of(catalog, text)
    spec = spec_of(text)
    check(build_stack(spec, find(catalog, text, keep=0), spec.name).graph)
    engine = SimulatedEngine(world_of("project: mine"), here / "clouds")
    engine.apply(plan, quiet)
    world = engine.shared_world
    # Groups begin with all of their machines; the hours of the week follow.
    advance(world, 7 * SECONDS_PER_DAY)
    begin = world.view().memory.seconds
    advance(world, WEEKS * 7 * SECONDS_PER_DAY)
    memory = world.view().memory
    groups = {
        history.sizes[-1].group.offer_key[3]
        for history in memory.history.values()
        if history.sizes
    }
    assert groups == {"on_demand", "spot"}
    [machines] = [
        line
        for line in metered_lines(memory, catalog, begin, memory.seconds)
        if line.kind == "accelerators"
    ]
    planned = sum(
        present(line.usd)
        for line in plan.cost.lines
        if line.kind == "accelerators"
    )
    month = Decimal(730) / (WEEKS * 168)
    assert float(machines.usd * month) == pytest.approx(
        float(planned), rel=0.01
    )
    engine.destroy("chat", quiet, EVERYTHING)
    assert objects(engine) == {}


def test_replicas_over_machines_are_bought_whole(catalog) -> None:
    text = (
        LARGE.replace("CLOUD", "aws")
        .replace("reserve: true", "on_demand_base: 10%")
        .replace("h100-sxm", "l40s")
        .replace("rps: 1,", "rps: 2,")
    )
    [pool] = find(catalog, text, keep=0).pools
    assert pool.nodes_per_group > 1
    assert [part.purchase for part in pool.purchases] == ["on_demand", "spot"]
    assert all(
        part.nodes % pool.nodes_per_group == 0 for part in pool.purchases
    )


def test_machines_on_one_fabric_of_azure_are_not_mixed(catalog) -> None:
    refused = {
        offer.provider
        for offer in catalog.offers
        if not may_be_mixed(offer.instance)
    }
    assert refused == {"azure"}
    [pool] = find(catalog, mixed("azure"), keep=0).pools
    assert may_be_mixed(pool.instance)


def test_a_plan_says_how_many_machines_stay(catalog) -> None:
    plan = plan_of(catalog, mixed("aws"))
    [pool] = plan.solution.pools
    base = pool.purchases[0].nodes
    assert any(
        f"{base} of {pool.nodes} machines stay" in warning.message
        for warning in plan.warnings
    )


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (mixed("aws").replace("buy: {", "buy: {spot: only, "), "excludes"),
        (mixed("aws").replace("buy: {", "buy: {spot: never, "), "excludes"),
        (mixed("aws").replace("buy: {", "buy: {commit: 1y, "), "no none"),
        (mixed("aws") + "elastic: {least: 0.5}\n", "elastic"),
        (mixed("aws", "0%"), "on_demand_base"),
        (mixed("aws", "100%"), "on_demand_base"),
    ],
)
def test_other_ways_to_buy_are_refused(text: str, told: str) -> None:
    with pytest.raises(SpecError, match=told):
        spec_of(text)

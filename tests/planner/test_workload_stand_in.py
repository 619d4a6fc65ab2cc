"""What a group starts where there is none of its type: no less of anything, within a price."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from planner.errors import CapacityError
from providers.simulated.bill import usd_hour_now
from stacks.build import build_stack
from stacks.engine.simulated import SimulatedEngine
from tests.conftest import chat, find, only, present, solve, spec_of
from tests.planner.cli.conftest import Command
from tests.stacks.engine.test_simulated import plan_of, quiet, world_of
from tests.stacks.test_build import check
from tests.stacks.told import inputs_of


def service(
    fallback: str = "50%",
    cloud: str = "aws",
    spot: str = "never",
    machine: str = "l4",
) -> str:
    return chat(
        traffic="peak_rps: 14",
        extra=f"buy: {{fallback: {fallback}, spot: {spot}}}\n"
        f"where: {{clouds: [{cloud}], regions: ['us-*', 'eastus*'], "
        f"accelerators: {{allow: [{machine}]}}}}",
    )


def stand_ins(catalog: Any, text: str) -> dict[str, Decimal]:
    [pool] = find(catalog, text, keep=0).pools
    return {other.instance_type: other.usd_hour for other in pool.stand_ins}


@pytest.mark.parametrize("fallback", ["10%", "25%", "50%", "100%"])
def test_they_are_all_sizes_with_the_same_accelerators_within_the_price(
    catalog, fallback: str
) -> None:
    """Against a reading of the whole catalog, in the order of their prices."""
    [pool] = find(catalog, service(fallback), keep=0).pools
    own = pool.instance
    share = 1 + Decimal(fallback.rstrip("%")) / 100
    expected = sorted(
        (offer.usd_hour, offer.instance.instance_type)
        for offer in catalog.offers
        if (offer.provider, offer.region) == ("aws", pool.region)
        and offer.purchase == "on_demand"
        and offer.instance.accelerator == own.accelerator
        and offer.instance.accelerators == own.accelerators
        and offer.instance.fraction == own.fraction
        and offer.instance.instance_type != own.instance_type
        and offer.usd_hour <= pool.usd_hour * share
        and offer.instance.vcpu >= own.vcpu
        and offer.instance.ram_gib >= own.ram_gib
        and offer.instance.nvme_gb >= own.nvme_gb
    )
    found = [(o.usd_hour, o.instance_type) for o in pool.stand_ins]
    assert found == expected
    assert bool(found) == (fallback != "10%")


@pytest.mark.parametrize(
    "text",
    [
        service().replace("fallback: 50%, ", ""),
        # Groups of these clouds are of one type.
        service(cloud="gcp"),
        service(cloud="azure", machine="t4"),
        # The interfaces of a fabric are those of one type.
        service(machine="h100-sxm", fallback="100%"),
        service().replace("buy: {", "buy: {commit: 1y, "),
    ],
)
def test_others_have_none(catalog, text: str) -> None:
    assert stand_ins(catalog, text) == {}


def test_a_budget_holds_whichever_machines_come(catalog) -> None:
    bill = present(find(catalog, service(), keep=0).bill)
    [price] = stand_ins(catalog, service()).values()
    [pool] = find(catalog, service(), keep=0).pools
    dearest = bill.total + 730 * pool.nodes * (price - pool.usd_hour)

    def within(usd: Decimal) -> str:
        budget = f"{usd:.2f}/month"
        return service().replace("buy: {", f"buy: {{budget: {budget}, ")

    assert stand_ins(catalog, within(dearest + 1)) == {"g6.2xlarge": price}
    assert stand_ins(catalog, within(dearest - 1)) == {}


def test_a_limit_of_an_hour_holds_whichever_machines_come(
    catalog, tonnage: Command, here: Path
) -> None:
    plan = plan_of(catalog, service())
    assert plan.most_usd_hour > plan.cost.usd_hour
    (here / "s.yaml").write_text(service())
    tonnage("plan", "s.yaml", "-o", "p.json")
    limit = f"{plan.cost.usd_hour + Decimal('0.01'):.2f}"
    exit_code, _, said = tonnage(
        "apply", "p.json", "--simulate", "--max-cost-per-hour", limit
    )
    assert exit_code == 5
    assert "costs up to" in said


def group_of(catalog: Any, text: str) -> Any:
    plan = plan_of(catalog, text)
    spec = spec_of(text)
    check(build_stack(spec, solve(catalog, text, keep=0), spec.name).graph)
    [group] = inputs_of(plan.graph, "Group").values()
    return group


@pytest.mark.parametrize("spot", ["never", "only"])
def test_a_group_takes_its_own_type_first(catalog, spot: str) -> None:
    text = service("100%", spot=spot)
    policy = group_of(catalog, text)["mixedInstancesPolicy"]
    [pool] = find(catalog, text, keep=0).pools
    types = [
        override["instanceType"]
        for override in policy["launchTemplate"]["overrides"]
    ]
    others = [other.instance_type for other in pool.stand_ins]
    assert types == [pool.instance.instance_type, *others]
    distribution = policy["instancesDistribution"]
    if spot == "never":
        assert distribution["onDemandPercentageAboveBaseCapacity"] == 100
        assert distribution["onDemandAllocationStrategy"] == "prioritized"
    else:
        assert distribution["onDemandPercentageAboveBaseCapacity"] == 0
        assert (
            distribution["spotAllocationStrategy"]
            == "capacity-optimized-prioritized"
        )


def test_a_cloud_without_the_type_gives_the_next(catalog, here: Path) -> None:
    text = service()
    plan = plan_of(catalog, text)
    [pool] = plan.solution.pools
    [other] = pool.stand_ins
    none_of_it = f"{{instance_type: {pool.instance_type}, nodes: 0}}"
    engine = SimulatedEngine(
        world_of(f"capacity: [{none_of_it}]\nproject: mine"), here / "one"
    )
    engine.apply(plan, quiet)
    memory = engine.shared_world.view().memory
    [group] = [h.sizes[-1].group for h in memory.history.values() if h.sizes]
    assert group.offer_key[2] == other.instance_type
    assert group.node_count == pool.nodes
    assert usd_hour_now(memory, catalog) > pool.nodes * other.usd_per_hour
    of_both = (
        f"{none_of_it}, {{instance_type: {other.instance_type}, nodes: 1}}"
    )
    engine = SimulatedEngine(
        world_of(f"capacity: [{of_both}]\nproject: mine"), here / "two"
    )
    alone = only(
        catalog,
        lambda offer: (
            offer.instance.instance_type
            in (pool.instance_type, other.instance_type)
            and offer.provider == "aws"
            and offer.region == pool.region
        ),
    )
    with pytest.raises(CapacityError):
        engine.apply(plan_of(alone, text), quiet)


def test_the_page_says_what_may_come(tonnage: Command, here: Path) -> None:
    (here / "s.yaml").write_text(service())
    page = tonnage("plan", "s.yaml", "--full")[1]
    assert "while there is no g6.xlarge, its group starts g6.2xlarge" in page
    assert "+21% an hour" in page

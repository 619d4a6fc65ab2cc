"""A stack of three pools: two roles, two machine types, and machines bought in two ways."""

from __future__ import annotations

from decimal import Decimal
from functools import cache

import pytest
from msgspec.structs import replace

from planner.cost.bill import sum_bill
from planner.cost.weekly_load import NO_SPARES
from planner.errors import SpecError
from planner.market.bought import PoolPurchase
from planner.market.offer import Catalog
from planner.plan.canonical import dump_plan, parse_plan
from planner.plan.diff import compare_plans
from planner.plan.document import PlannedStack, SpecSource, assemble
from planner.plan.types import Plan
from planner.render import text
from planner.render.plan import plan_page
from planner.solve.capacity import capacity_changes
from planner.solve.solution import SizedPool, Solution
from planner.units import MINUTES_PER_WEEK
from providers.catalog.load import load_catalog
from providers.simulated import world
from stacks.build import build_stack, planned_stack
from stacks.engine.simulated import SimulatedEngine
from stacks.graph import Graph, Resource, ref
from stacks.runtime.vm.serving import serving_work
from stacks.spec.stack import derive_stack
from tests.conftest import TODAY, chat, find, only, present, spec_of
from tests.stacks.engine.test_simulated import (
    EVERYTHING,
    assert_nothing_to_do,
    objects,
    quiet,
)
from tests.stacks.test_build import check

TEXT = chat(
    model="llama-3.1-8b",
    traffic="peak_rps: 4\n  profile: business-hours",
    extra="shutdown: {idle: 30m, ttl: 72h}",
)
# Of each cloud two machine types that hold the model on one node.
TYPES = {
    "aws": ("p5.48xlarge", "g6e.xlarge"),
    "gcp": ("a3-highgpu-8g", "g2-standard-8"),
    "azure": ("Standard_ND96isr_H100_v5", "Standard_NC24ads_A100_v4"),
}
CLOUDS = pytest.mark.parametrize("cloud", sorted(TYPES))


@cache
def solved() -> Solution:
    """The solution of the spec, whose pools others take the place of."""
    return find(load_catalog(), TEXT, keep=0)


@cache
def sized(machine: str, region: str = "") -> SizedPool:
    """The pool of the spec when one machine type is for sale, in one region or in any."""
    choice = only(
        load_catalog(),
        lambda o: (
            o.instance.instance_type == machine
            and o.purchase == "on_demand"
            and region in ("", o.region)
        ),
    )
    [pool] = find(choice, TEXT, keep=0).pools
    return pool


def bought(pool: SizedPool, **nodes: int) -> SizedPool:
    """A pool with so many nodes of each purchase, in groups of one node."""
    [part] = pool.purchases
    purchases = tuple(
        PoolPurchase(purchase, count, part.usd_hour)
        for purchase, count in nodes.items()
    )
    return replace(pool, purchases=purchases, spares=NO_SPARES, min_nodes=1)


@pytest.fixture
def pools(cloud: str) -> dict[str, SizedPool]:
    return three_pools(cloud)


def three_pools(cloud: str) -> dict[str, SizedPool]:
    """Two pools that serve, one of them bought in two ways, and one for people."""
    large_type, small_type = TYPES[cloud]
    # Both types are sold in the region of the first.
    large = sized(large_type)
    small = sized(small_type, large.region)
    return {
        "large": replace(bought(large, on_demand=1), name="large"),
        "small": replace(bought(small, on_demand=2, spot=1), name="small"),
        "notebooks": replace(
            bought(small, on_demand=2),
            name="notebooks",
            role="workspace",
            layout=None,
        ),
    }


def plan_of_pools(catalog: Catalog, *pools: SizedPool) -> Plan:
    """The plan of a solution that is made by hand, written and read back."""
    spec = spec_of(TEXT)
    machines = next(line for line in present(solved().bill).lines if line.pool)
    lines = [
        replace(
            machines, name=f"machines of {pool.name}", pool=pool.name, usd=usd
        )
        for pool in pools
        for usd in [730 * pool.nodes * pool.usd_hour]
    ]
    hourly = sum(pool.nodes * pool.usd_hour for pool in pools)
    solution: Solution = replace(
        solved(),
        pools=pools,
        bill=sum_bill(lines, Decimal(hourly), "month"),
    )
    plan = assemble(
        spec,
        solution,
        catalog,
        source=SpecSource("spec.yaml", "0" * 64),
        stack=planned_stack(spec, solution, PlannedStack(name=spec.name)),
    )
    return parse_plan(dump_plan(plan).encode(), "p.json")


def graph_of(*pools: SizedPool) -> Graph:
    solution = replace(solved(), pools=pools)
    return build_stack(spec_of(TEXT), solution, "chat").graph


@CLOUDS
def test_three_pools_are_built_applied_compared_and_destroyed(
    catalog, here, pools
) -> None:
    engine = SimulatedEngine(world.default_world(), here / "clouds")
    first = plan_of_pools(catalog, *pools.values())
    engine.apply(first, quiet)
    assert len(objects(engine)) == len(first.graph.resources)
    assert_nothing_to_do(engine, first)
    grown_pool = bought_more(pools["small"], 7)
    second = plan_of_pools(
        catalog, pools["large"], grown_pool, pools["notebooks"]
    )
    [change] = compare_plans(first, second).changes
    assert (change.mark, change.name) == ("~", "small")
    assert change.usd_after - change.usd_before == 730 * 7 * sum(
        {part.usd_hour for part in grown_pool.purchases}
    )
    steps = engine.apply(second, quiet).steps
    actions = {step.name: step.action for step in steps}
    assert actions["small-nodes"] == "update"
    assert all(name.startswith("small-") for name in actions)
    third = plan_of_pools(catalog, pools["large"], grown_pool)
    steps = engine.apply(third, quiet).steps
    gone = {step.name for step in steps if step.action == "delete"}
    assert "notebooks-nodes" in gone
    assert all(name.startswith("notebooks-") for name in gone)
    assert_nothing_to_do(engine, third)
    engine.destroy("chat", quiet, EVERYTHING)
    assert objects(engine) == {}


def bought_more(pool: SizedPool, more: int) -> SizedPool:
    """A pool with more nodes of the first of its purchases."""
    first, *others = pool.purchases
    grown = replace(first, nodes=first.nodes + more)
    return replace(pool, purchases=(grown, *others))


@CLOUDS
def test_the_graph_of_three_pools_is_valid(catalog, pools) -> None:
    check(graph_of(*pools.values()))


@CLOUDS
def test_a_pool_keeps_its_resources_when_others_come(catalog, pools) -> None:
    """What is named after one pool does not depend on the others."""
    together = graph_of(*pools.values())
    everything = {r.name: r.inputs for r in together.resources}
    for pool in pools.values():
        alone = {r.name: r.inputs for r in graph_of(pool).resources}
        own = [name for name in alone if name.startswith(f"{pool.name}-")]
        assert own
        # Zones have subnets of their own, whoever else is there.
        own += [name for name in alone if name.startswith("private-")]
        for name in own:
            assert alone[name] == everything[name]


@CLOUDS
def test_the_screen_names_every_pool_and_how_it_is_bought(
    catalog, pools
) -> None:
    shown = text.render(
        plan_page(plan_of_pools(catalog, *pools.values()), today=TODAY)
    )
    for pool in pools.values():
        assert f"{pool.nodes} x {pool.instance.instance_type}" in shown
    assert "2 on demand + 1 spot" in shown


@pytest.mark.parametrize("cloud", ["aws"])
def test_one_stack_is_in_one_region(catalog, pools) -> None:
    elsewhere = replace(pools["large"], name="far", region="eu-west-1")
    solution = replace(solved(), pools=(pools["small"], elsewhere))
    with pytest.raises(SpecError, match="a stack is in one region"):
        derive_stack(spec_of(TEXT), solution, "chat")


def test_a_replica_that_serves_finds_machines_of_its_own_purchase(
    catalog,
) -> None:
    """One that is taken back must not end replicas on machines that stay; a job uses all."""
    small = three_pools("aws")["small"]
    solution = replace(solved(), pools=(small,))
    stack = derive_stack(spec_of(TEXT), solution, "chat")
    pools = [
        serving_work(stack, fleet, group, present(fleet.layout))["pool"]
        for fleet, group in stack.scaling_groups
    ]
    assert pools == ["small", "small-spot"]
    job = replace(small, name="job", role="train")
    two_jobs = replace(solution, pools=(job, replace(job, name="job-2")))
    with pytest.raises(SpecError, match="runs one training job"):
        derive_stack(spec_of(TEXT), two_jobs, "chat")


def test_infiniband_is_bought_in_one_way(catalog) -> None:
    large = three_pools("azure")["large"]
    mixed = replace(bought(large, on_demand=2, spot=2), nodes_per_group=2)
    with pytest.raises(SpecError, match="bought in two ways"):
        graph_of(mixed)


@pytest.mark.parametrize("committed", [0, 1, 3])
@pytest.mark.parametrize("steady", [0, 2])
@pytest.mark.parametrize("spot", [0, 2])
def test_purchases_together_are_what_a_pool_wants_at_every_minute(
    committed: int, steady: int, spot: int
) -> None:
    """Committed machines run all the time; then those on demand run, and spot machines last."""
    purchases = (
        PoolPurchase("reserved_1y", committed, Decimal(1)),
        PoolPurchase("on_demand", steady, Decimal(1)),
        PoolPurchase("spot", spot, Decimal(1)),
    )
    most = committed + steady + spot
    wanted = tuple(
        minute // 60 % (most + 1) for minute in range(MINUTES_PER_WEEK)
    )
    running = [
        played(capacity_changes(wanted, purchases, of_spot=of_spot), wanted)
        for of_spot in (False, True)
    ]
    for minute in range(0, MINUTES_PER_WEEK, 30):
        if running[0]:
            assert running[0][minute] == max(
                committed, min(wanted[minute], committed + steady)
            )
        if running[1]:
            assert running[1][minute] == max(
                0, wanted[minute] - committed - steady
            )


def played(changes, wanted) -> list[int]:
    """The number of nodes at each minute when changes are carried out; empty without any."""
    if not changes:
        return []
    starts = {
        weekday * 1440 + change.minute_of_day: change.nodes
        for change in changes
        for weekday in change.weekdays
    }
    # The last change of a week holds until the first of the next.
    nodes = starts[max(starts)]
    running = []
    for minute in range(len(wanted)):
        nodes = starts.get(minute, nodes)
        running.append(nodes)
    return running


@pytest.mark.parametrize(
    ("resources", "says"),
    [
        (["a", "a"], "2 resources are named a"),
        (["a", "b:a", "c:nobody"], "c refers to nobody"),
    ],
)
def test_a_wrong_name_in_a_graph_is_refused_when_it_is_built(
    resources: list[str], says: str
) -> None:
    parts = [each.partition(":") for each in resources]
    with pytest.raises(ValueError, match=says):
        Graph(
            provider="aws",
            region="us-east-1",
            resources=tuple(
                Resource(
                    type="aws:ec2/vpc:Vpc",
                    name=name,
                    inputs={"id": ref(target)} if target else {},
                )
                for name, _, target in parts
            ),
        )

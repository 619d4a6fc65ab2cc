"""The machine of a benchmark and its limits: the layout of the plan, at the least cost."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest

from planner.cli.bench_plan import PlannedBench, plan_bench, stack_plan
from planner.cli.compose import PlanningOptions, read_spec
from planner.cost.lifetime import release_time
from planner.errors import InfeasibleError, PolicyError
from planner.estimate.benchmark_run import RunCost, benchmark_name, run_cost
from planner.spec.model import OWN_RANGE
from planner.spec.stack_name import LONGEST_NAME, STACK_NAME
from providers.catalog.load import load_catalog
from tests.conftest import chat, find, only, present

SMALL = chat(extra="labels: {team: a, env: prod}")
# Two accelerators for a replica, by what TPOT asks for.
SHARDED = chat(
    model="llama-3.3-70b",
    precision="fp8",
    sla="tpot_p95: 40ms",
    traffic="peak_rps: 4",
    extra="where: {accelerators: {allow: [h100-sxm]}}",
)


def planned(
    here: Path, text: str, most_usd: Decimal | None = None
) -> PlannedBench:
    (here / "s.yaml").write_text(text)
    return plan_bench(
        read_spec("s.yaml"), load_catalog(), PlanningOptions(), most_usd
    )


@pytest.mark.parametrize("text", [SMALL, SHARDED])
def test_one_replica_as_the_plan_has_it_on_the_cheapest_machine(
    here: Path, text: str
) -> None:
    service = find(load_catalog(), text).pools[0]
    bench = planned(here, text)
    assert bench.pool.layout == service.layout
    assert bench.pool.nodes == bench.pool.nodes_per_group
    assert [part.purchase for part in bench.pool.purchases] == ["on_demand"]
    assert bench.pool.max_batch == service.max_batch
    assert bench.pool.token_budget == service.token_budget
    # Nothing cheaper with that accelerator has room for the replica.
    accelerator = service.instance.accelerator
    needed = present(service.layout).accelerators
    cheapest = min(
        offer.usd_hour
        for offer in load_catalog().offers
        if offer.purchase == "on_demand"
        and offer.instance.accelerator == accelerator
        and offer.instance.accelerators >= needed
        # A part of an accelerator has its name, and not its memory.
        and offer.instance.fraction == service.instance.fraction
        and offer.provider in ("aws", "gcp", "azure")
    )
    machine_usd = bench.pool.purchases[0].usd_hour
    # Disks and networks are paid for too, so a cent less for the machine may be no less.
    assert cheapest <= machine_usd <= cheapest * Decimal("1.1")


def test_nobody_depends_on_it_and_nothing_of_it_stays(here: Path) -> None:
    bench = planned(here, SMALL)
    assert bench.spec.labels == {"team": "a"}
    assert bench.spec.protect is False
    plan = stack_plan(bench, PlanningOptions(), OWN_RANGE)
    kinds = {resource.type for resource in plan.graph.resources}
    assert not any(
        "LoadBalancer" in kind or "Forwarding" in kind for kind in kinds
    )
    ttl_s = present(plan.shutdown.ttl)
    assert float(ttl_s) + float(release_time("bench_reserve_s")) <= (
        bench.allowed_s
    )


def test_a_limit_of_cost_is_a_limit_of_time_and_never_exceeded(
    here: Path,
) -> None:
    usual = planned(here, SMALL)
    least = usual.cost.most_usd(usual.time.expected_s)
    tight = planned(here, SMALL, least + Decimal("0.01"))
    # Seconds are binary fractions: they say nothing below a billionth of a dollar.
    assert round(tight.most_usd, 9) <= round(least + Decimal("0.01"), 9)
    assert tight.time.expected_s <= tight.allowed_s < usual.allowed_s
    assert present(tight.spec.shutdown.ttl) < present(usual.spec.shutdown.ttl)
    # More than it may ever take is not spent.
    assert planned(here, SMALL, Decimal(1000)).most_usd == usual.most_usd
    with pytest.raises(PolicyError, match="--max-cost"):
        planned(here, SMALL, least - Decimal("0.01"))


@pytest.mark.parametrize("seconds", [1.0, 3600.0, 86_400.0])
def test_what_seconds_cost_pays_for_these_seconds(seconds: float) -> None:
    cost = RunCost(
        usd_hour=Decimal("0.74"),
        left_usd_hour=Decimal("0.04"),
        start_usd=Decimal("2.53"),
    )
    assert cost.seconds_for(cost.most_usd(seconds)) == pytest.approx(seconds)
    assert cost.seconds_for(Decimal(1)) == 0


def test_its_cost_is_that_of_all_lines_of_its_bill(here: Path) -> None:
    bench = planned(here, SMALL)
    plan = stack_plan(bench, PlanningOptions(), OWN_RANGE)
    cost = present(run_cost(plan, bench.solution))
    hours = Decimal(present(plan.cost.life).hours)
    bill_usd = sum(
        line.quantity * present(line.unit_price) for line in plan.cost.lines
    )
    assert cost.usd_hour * hours == pytest.approx(bill_usd, rel=Decimal("0.01"))
    machine = bench.pool.purchases[0].usd_hour
    assert cost.usd_hour - cost.left_usd_hour == machine
    # The image of 12 GB and weights of 16 bit come through a gateway, twice.
    [fetched_usd] = [
        present(line.unit_price)
        for line in plan.cost.lines
        if line.kind == "nat_data"
    ]
    assert 2 * 12 * fetched_usd < cost.start_usd < 2 * 40 * fetched_usd


def test_a_machine_that_nobody_sells_on_demand_is_told(here: Path) -> None:
    (here / "s.yaml").write_text(SMALL + "buy: {spot: only}\n")
    spot = only(load_catalog(), lambda offer: offer.purchase == "spot")
    with pytest.raises(InfeasibleError, match="on demand"):
        plan_bench(read_spec("s.yaml"), spot, PlanningOptions(), None)


@pytest.mark.parametrize(
    "name", ["a", "chat", "x" * 40, f"{'x' * 33}-{'y' * 6}"]
)
def test_its_name_is_one_that_a_stack_may_have(name: str) -> None:
    found = benchmark_name(name)
    assert STACK_NAME.fullmatch(found)
    assert len(found) <= LONGEST_NAME
    assert found.endswith("-bench")

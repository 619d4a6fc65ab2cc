"""What a stack costs whose plan counts on machines that a person has bought beside it."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from planner.cost.bill_line import MACHINE_KIND
from planner.facts.cloud import clouds
from planner.market.term import TERM_PURCHASES
from planner.plan.prepaid import prepaid_machines
from planner.plan.status import StackFacts
from planner.units import (
    HOURS_PER_MONTH,
    HOURS_PER_WEEK,
    SECONDS_PER_DAY,
    SECONDS_PER_HOUR,
)
from providers.simulated.bill import metered_lines
from providers.simulated.clock import advance
from providers.simulated.shared import SharedWorld
from stacks.engine.simulated import SimulatedEngine
from stacks.operate.account import account_of, counted
from tests.conftest import chat, present
from tests.stacks.engine.test_simulated import (
    plan_of,
    quiet,
    world_of,
)
from tests.stacks.operate.test_account import PLANNED

if TYPE_CHECKING:
    from pathlib import Path

    from planner.plan.types import Plan

WEEKS = 4
ALL_OF_3_YEARS = "3y"
A_BASE = "[none, 1y, 3y]"


def committed_plan(
    catalog: Any, cloud: str, commit: str, extra: str = ""
) -> Plan:
    return plan_of(
        catalog,
        chat(
            traffic="peak_rps: 40\n  profile: diurnal",
            extra=f"buy: {{commit: {commit}{extra}}}\n"
            f"where: {{clouds: [{cloud}]}}\n",
        ),
    )


@pytest.mark.parametrize("cloud", clouds())
@pytest.mark.parametrize("commit", [A_BASE, ALL_OF_3_YEARS])
def test_weeks_of_a_commitment_cost_what_the_plan_says(
    here: Path, catalog, cloud: str, commit: str
) -> None:
    plan = committed_plan(catalog, cloud, commit)
    engine = SimulatedEngine(world_of("project: mine"), here / "clouds")
    engine.apply(plan, quiet)
    world = engine.shared_world
    advance(world, SECONDS_PER_DAY)
    begin = world.view().memory.seconds
    advance(world, WEEKS * 7 * SECONDS_PER_DAY)
    memory = world.view().memory
    prepaid = prepaid_machines(plan.solution.pools)
    assert {part.purchase for part in prepaid} <= set(TERM_PURCHASES)
    assert prepaid
    [machines] = [
        line.usd
        for line in metered_lines(
            memory, catalog, begin, memory.seconds, prepaid=prepaid
        )
        if line.kind == MACHINE_KIND
    ]
    planned = sum(
        present(line.usd)
        for line in plan.cost.lines
        if line.kind == MACHINE_KIND
    )
    month = HOURS_PER_MONTH / (WEEKS * HOURS_PER_WEEK)
    assert float(machines * month) == pytest.approx(float(planned), rel=0.005)


@pytest.mark.parametrize("cloud", clouds())
def test_a_commitment_is_paid_while_no_machine_runs(
    here: Path, catalog, cloud: str
) -> None:
    plan = committed_plan(catalog, cloud, ALL_OF_3_YEARS)
    engine = SimulatedEngine(world_of("project: mine"), here / "clouds")
    engine.apply(plan, quiet)
    [part] = prepaid_machines(plan.solution.pools)
    [price] = [
        offer.usd_hour
        for offer in catalog.offers
        if offer.key
        == (part.provider, part.instance_type, part.region, "on_demand")
    ]

    def saved_usd(world: SharedWorld) -> float:
        status = present(engine.stack_status("chat"))
        found = account_of(status, world, catalog, world.now())
        assert found.prepaid == (part,)
        saved = present(found.unbought_usd_hour) - present(found.usd_hour)
        return float(saved)

    bought_usd = float(part.usd_hour)
    all_usd = float(part.nodes * price)
    world = engine.shared_world
    assert saved_usd(world) == pytest.approx(all_usd - bought_usd)
    none_left = world_of(
        "capacity: [{nodes: 0}]\nlosses: [{purchase: on_demand, per_day: 9}]"
    )
    empty = SharedWorld(none_left, engine.folder)
    advance(empty, 20 * SECONDS_PER_DAY)
    assert saved_usd(empty) == pytest.approx(-bought_usd)


def test_what_is_owned_costs_nothing_further_and_the_rest_as_planned(
    catalog,
) -> None:
    """Of real machines: those that live beyond the prepaid ones are bought."""
    facts = StackFacts.of(committed_plan(catalog, "aws", A_BASE))
    [pool] = facts.pools
    base, above = pool.purchases
    owned = replace(base, purchase="owned", usd_per_hour=Decimal(0), nodes=1)
    committed = replace(base, usd_per_hour=Decimal(2), nodes=2)
    above = replace(above, usd_per_hour=Decimal(5), nodes=3)
    pools = (replace(pool, purchases=(owned, committed, above)),)
    facts = replace(facts, pools=pools, standing_usd_month=None)
    stack = replace(PLANNED, prepaid=prepaid_machines(pools))
    hours = Decimal(PLANNED.age_s or 0) / SECONDS_PER_HOUR

    def usd_hour(alive: int) -> Decimal | None:
        return counted(stack, facts, {pool.name: alive}, {}).usd_hour

    assert [usd_hour(alive) for alive in (0, 1, 3, 4, 6)] == [4, 4, 4, 9, 19]
    lived = counted(stack, facts, {}, {pool.name: 6.0 * float(hours)})
    assert lived.spent_usd == hours * (2 * 2 + 3 * 5)

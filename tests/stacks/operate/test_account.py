"""What a real stack costs now: the machines that live, at their prices."""

from __future__ import annotations

from decimal import Decimal

import pytest
from msgspec.structs import replace

from planner.plan.account import StackAccount
from planner.plan.status import StackFacts
from planner.units import HOURS_PER_MONTH
from stacks.operate.account import counted
from tests.stacks.engine.test_simulated import TEXT, plan_of

PLANNED = StackAccount(
    age_s=3600.0,
    usd_hour=Decimal(9),
    spent_usd=Decimal(9),
    planned_usd=Decimal(9),
    nodes=None,
    left_s=None,
    basis="plan",
    spent_basis="plan",
)


@pytest.mark.parametrize("alive", [0, 1, 5])
def test_machines_are_counted_and_not_those_of_the_plan(
    catalog, alive: int
) -> None:
    plan = plan_of(catalog, TEXT.replace("CLOUD", "aws"))
    facts = StackFacts.of(plan)
    [pool] = facts.pools
    found = counted(PLANNED, facts, {"serve": alive} if alive else {}, {})
    standing = (facts.standing_usd_month or Decimal(0)) / HOURS_PER_MONTH
    assert found.usd_hour == alive * pool.usd_per_hour + standing
    assert (found.nodes, found.basis) == (alive, "machines")
    # Of agents that do not say it, what it has cost so far is known by the plan alone.
    assert found.spent_usd == PLANNED.spent_usd
    assert found.spent_basis == "plan"


def test_what_it_has_cost_so_far_is_that_of_the_machines_that_lived(
    catalog,
) -> None:
    plan = plan_of(catalog, TEXT.replace("CLOUD", "aws"))
    facts = StackFacts.of(plan)
    [pool] = facts.pools
    found = counted(PLANNED, facts, {}, {"serve": 10.5, "other": 7.0})
    standing = (facts.standing_usd_month or Decimal(0)) / HOURS_PER_MONTH
    assert found.spent_usd == Decimal("10.5") * pool.usd_per_hour + standing
    assert found.spent_basis == "machines"


def test_machines_on_spot_have_their_own_price(catalog) -> None:
    plan = plan_of(catalog, TEXT.replace("CLOUD", "aws"))
    facts = StackFacts.of(plan)
    [pool] = facts.pools
    [part] = pool.purchases
    mixed = replace(
        pool,
        purchases=(
            replace(part, usd_per_hour=Decimal(3)),
            replace(part, purchase="spot", usd_per_hour=Decimal(1)),
        ),
    )
    facts = replace(facts, pools=(mixed,), standing_usd_month=None)
    found = counted(
        PLANNED, facts, {"serve": 2, "serve-spot": 4, "other": 7}, {}
    )
    assert found.usd_hour == 2 * 3 + 4 * 1

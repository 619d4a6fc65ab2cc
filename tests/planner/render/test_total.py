"""Several plans together: a row for each, and totals that are of one period each."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from planner.render import text
from planner.render.total import total_page
from tests.stacks.engine.test_simulated import plan_of

if TYPE_CHECKING:
    from planner.plan.types import Plan

NOTEBOOK = (
    "apiVersion: tonnage/v1\nkind: Workspace\nname: notebook\n"
    "accelerator: {memory: 24GiB, count: 1}\n"
    "where: {clouds: [gcp], regions: [us-central1]}\n"
)


@pytest.fixture(scope="module")
def plan(catalog) -> Plan:
    return plan_of(catalog, NOTEBOOK)


def of_total(plan: Plan, usd: str, period: str = "month") -> Plan:
    cost = replace(plan.cost, total=Decimal(usd), period=period)
    return replace(plan, cost=cost)


def test_each_period_has_a_total_of_its_own(plan: Plan) -> None:
    page = text.render(
        total_page(
            [
                of_total(plan, "100.10"),
                of_total(plan, "200.20"),
                of_total(plan, "7", "run"),
                of_total(plan, "8", "run"),
                of_total(plan, "9", "life"),
            ]
        )
    )
    assert "total a month" in page
    assert "$300.30/mo" in page
    assert "$15.00/run" in page
    assert page.count("$9.00/life") == 2


def test_an_unknown_price_makes_the_total_a_lower_bound(plan: Plan) -> None:
    first, *others = plan.cost.lines
    hole = replace(first, usd=None, price_found=False)
    partial = replace(plan, cost=replace(plan.cost, lines=(hole, *others)))
    rows = text.render(
        total_page([of_total(partial, "5"), of_total(plan, "6")])
    ).splitlines()
    assert sum(">= $5.00/mo" in row for row in rows) == 1
    assert sum(">= $11.00/mo" in row for row in rows) == 1


def test_plans_of_many_specs_end_with_their_total(tonnage, here) -> None:
    for name in ("a", "b"):
        spec = NOTEBOOK.replace("notebook", name)
        (here / f"{name}.yaml").write_text(spec)
    (here / "c.yaml").write_text(f"{NOTEBOOK}buy: {{budget: 1/month}}\n")
    code, out, _ = tonnage("plan", "a.yaml", "b.yaml", "c.yaml")
    assert code == 10
    together = out[out.index("3 specs together") :]
    assert "nothing meets it" in together
    assert "total a month" in together
    assert "specs together" not in tonnage("plan", "a.yaml")[1]
    code, out, _ = tonnage("plan", "a.yaml", "b.yaml", "-f", "markdown")
    assert "| total a month |" in out

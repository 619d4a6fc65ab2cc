"""What an apply refuses of a plan by its flags."""

from __future__ import annotations

from datetime import date, timedelta

import pytest
from msgspec.structs import replace

from planner.cli import option
from planner.cli.refusal import refuse_old_prices
from planner.errors import CatalogError
from planner.market.offer import Catalog
from planner.plan.types import Plan
from tests.conftest import chat
from tests.stacks.engine.test_simulated import plan_of

MOST_DAYS = 30


def dated(plan: Plan, as_of: str | None) -> Plan:
    """A plan whose machines have a price of another date."""
    lines = tuple(
        replace(line, price_as_of=as_of) if line.pool is not None else line
        for line in plan.cost.lines
    )
    return replace(plan, cost=replace(plan.cost, lines=lines))


def days_ago(days: int) -> str:
    return str(date.fromisoformat(option.today()) - timedelta(days=days))


@pytest.mark.parametrize(
    ("as_of", "told"),
    [
        (MOST_DAYS + 1, "is 31 days old"),
        ("2020", "up to "),
        # Nobody knows how old it is.
        ("unknown", "is of an unknown date"),
    ],
)
def test_a_price_that_may_be_older_than_asked_is_refused(
    catalog: Catalog, as_of: str | int, told: str
) -> None:
    if isinstance(as_of, int):
        as_of = days_ago(as_of)
    with pytest.raises(CatalogError, match=told):
        refuse_old_prices(dated(plan_of(catalog, chat()), as_of), MOST_DAYS)


def test_a_fresh_price_and_one_of_a_contract_are_not(catalog: Catalog) -> None:
    for as_of in (days_ago(MOST_DAYS), days_ago(0), None):
        refuse_old_prices(dated(plan_of(catalog, chat()), as_of), MOST_DAYS)

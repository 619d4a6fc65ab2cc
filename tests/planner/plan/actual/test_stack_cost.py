"""What a stack has cost: lines and days add up to the rows of the files, in every format."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from planner.plan.actual.charge import read_charges
from planner.plan.actual.ledger import spread_cents
from planner.plan.actual.stack_cost import StackCost, stack_cost
from planner.plan.actual.token_counter import CountedTokens
from tests.planner.plan.actual.conftest import (
    TAGS,
    charges_of,
    export,
    export_row,
)
from tests.planner.plan.actual.test_review import ROWS


def of_file(plan, name: str) -> StackCost:
    return stack_cost(plan, read_charges(export(name), TAGS), None)


def costs(spent: StackCost) -> dict[str, str]:
    return {line.name: str(line.usd) for line in spent.lines}


def test_focus_of_aws(plan) -> None:
    spent = of_file(plan, "focus_aws.csv")
    assert costs(spent) == {
        "machines of serve": "50.45",  # 50.4444: cents add up to the total
        "disks": "0.67",
        "NAT gateway": "2.16",
        "unknown: Amazon Quantum Ledger": "0.45",
        "tax": "1.34",
        "unused commitment": "2.50",
    }
    assert str(spent.total_usd) == "57.57"
    # The neighbour, and what has no tag, are not ours; a machine ran 24 + 24 + 12 hours.
    machines = spent.lines[0]
    assert (str(machines.quantity), machines.unit) == ("60.0000", "hours")
    commitments = spent.commitments
    assert commitments is not None
    assert str(commitments.used_usd) == "15.25"
    assert str(commitments.unused_usd) == "2.50"
    assert spent.time.hours == 48


def test_costs_of_azure(plan) -> None:
    spent = of_file(plan, "azure.csv")
    assert costs(spent) == {
        "machines of serve": "670.08",
        "disks": "0.63",
        "public address": "0.24",
        "adjustments": "0.00",
    }
    assert str(spent.total_usd) == "670.95"
    assert spent.lines[0].quantity == 48


@pytest.mark.parametrize("name", ["bigquery.csv", "bigquery.jsonl"])
def test_bigquery_of_google_cloud(plan, name: str) -> None:
    """Cores, memory and accelerators of a machine are one line, after credits."""
    spent = of_file(plan, name)
    assert costs(spent) == {
        "machines of serve": "8.42",
        "disks": "0.42",
        "NAT gateway": "0.02",
        "adjustments": "0.00",
    }
    assert str(spent.total_usd) == "8.86"
    assert spent.lines[0].quantity == 12
    assert [str(day.usd) for day in spent.days] == ["8.42", "0.44"]


def test_both_forms_of_bigquery_say_the_same(plan) -> None:
    assert of_file(plan, "bigquery.csv") == of_file(plan, "bigquery.jsonl")


@settings(
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(rows=ROWS)
def test_lines_and_days_add_up_to_the_file(plan, rows) -> None:
    spent = stack_cost(plan, charges_of(rows), None)
    exact = sum((Decimal(row["EffectiveCost"]) for row in rows), Decimal(0))
    for parts in (spent.lines, spent.days):
        total = sum((part.usd for part in parts), Decimal(0))
        assert total == spent.total_usd
        assert abs(total - exact) <= Decimal("0.005")


@settings(deadline=None)
@given(
    amounts=st.dictionaries(
        st.text(max_size=3), st.decimals(-(10**6), 10**6, places=9), max_size=20
    )
)
def test_cents_are_near_and_add_up(amounts) -> None:
    cents = spread_cents(amounts)
    exact = sum(amounts.values(), Decimal(0))
    assert abs(sum(cents.values(), Decimal(0)) - exact) <= Decimal("0.005")
    for key, usd in amounts.items():
        assert abs(cents[key] - usd) < Decimal("0.01")


def test_days_have_no_gaps_and_the_rate_is_of_730_hours(plan) -> None:
    spent = stack_cost(
        plan,
        charges_of(
            [
                export_row(EffectiveCost="10"),
                export_row(
                    EffectiveCost="20",
                    ChargePeriodStart="2026-10-10T00:00:00Z",
                    ChargePeriodEnd="2026-10-11T00:00:00Z",
                ),
            ]
        ),
        None,
    )
    assert len(spent.days) == 10
    assert spent.usd_month == Decimal("91.25")  # 30 / 240 * 730


def test_a_tax_of_a_month_does_not_stretch_the_time(plan) -> None:
    spent = stack_cost(
        plan,
        charges_of(
            [
                export_row(),
                export_row(
                    ChargeCategory="Tax",
                    ChargePeriodEnd="2026-11-01T00:00:00Z",
                ),
            ]
        ),
        None,
    )
    assert spent.time.hours == 24


def test_a_million_tokens(plan) -> None:
    charges = charges_of([export_row(EffectiveCost="12")])
    tokens = CountedTokens(Decimal(6_000_000), Decimal(2_000_000))
    found = stack_cost(plan, charges, tokens).tokens
    assert found is not None
    assert found.usd_per_million_output == 6
    assert found.usd_per_million == Decimal("1.5")
    none = CountedTokens(Decimal(0), Decimal(0))
    idle = stack_cost(plan, charges, none).tokens
    assert idle is not None
    assert idle.usd_per_million_output is None

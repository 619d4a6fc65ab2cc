"""What a commitment loses in other futures: against a ledger that is written month by month."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from planner.market.regret import Future, comes_after, scenarios
from planner.render.regret import regret_text
from tests.planner.cli.conftest import Command
from tests.planner.market.test_mix_committed import few, text_of
from tests.stacks.engine.test_simulated import plan_of

USD = st.decimals("1", "100000", places=2)
SHARE = st.decimals("0.1", "1", places=2)
MONTHS_OF = {"reserved_1y": 12, "reserved_3y": 36}


@given(
    USD,
    USD,
    st.sampled_from([12, 36]),
    st.one_of(st.none(), st.decimals("0.5", "48", places=2)),
    SHARE,
    st.integers(0, 40),
)
def test_a_regret_is_the_difference_of_two_ledgers(
    committed_usd: Decimal,
    on_demand_usd: Decimal,
    term: int,
    months: Decimal | None,
    price_share: Decimal,
    after: int,
) -> None:
    scenario = Future(
        scenario="x",
        months=months,
        load_share=Decimal(1),
        price_share=price_share,
        price_after_months=after,
        meaning="x",
    )
    ledger = Decimal(0)
    for month in range(term):
        lasted = Decimal(1) if months is None else months - month
        ledger += (
            max(Decimal(0), min(Decimal(1), lasted))
            * on_demand_usd
            * (price_share if month >= after else 1)
        )
    found = scenario.regret_usd(committed_usd, on_demand_usd, term)
    assert abs(found - max(Decimal(0), committed_usd - ledger)) <= Decimal(
        "0.01"
    )


@pytest.mark.parametrize("profile", ["business-hours", "flat"])
def test_a_plan_says_what_its_commitment_may_lose(
    catalog, profile: str
) -> None:
    plan = plan_of(
        few(catalog, "g6e.xlarge", "us-east-1"),
        text_of("aws", "[none, 1y, 3y]", profile),
    )
    for option in plan.cost.commitments:
        regrets = {found.scenario: found.usd for found in option.regrets}
        assert regrets.keys() == {found.scenario for found in scenarios()}
        # Four months of on demand are less than a year of the commitment.
        months = MONTHS_OF[option.purchase[: len("reserved_1y")]]
        month_usd = option.committed_usd / months
        on_demand = month_usd + option.saved_usd_month
        assert abs(
            regrets["ends"] - (option.committed_usd - 4 * on_demand)
        ) <= Decimal("0.05")
        # Less traffic needs the base for as many hours or fewer, so it never loses less than none.
        assert 0 <= regrets["traffic"] <= option.committed_usd
        assert (regrets["price"] == 0) == (
            option.committed_usd <= on_demand * (12 if months == 12 else 24)
        )


def test_a_workload_may_end_when_its_owner_says(
    tonnage: Command, here: Path
) -> None:
    """Each month that it runs longer, a commitment loses less by what on demand would cost."""
    (here / "s.yaml").write_text(text_of("aws", "[none, 1y, 3y]"))

    def planned(span: str) -> dict[str, Any]:
        flags = ("--stops-after", span, "-f", "json")
        found: dict[str, Any] = json.loads(tonnage("plan", "s.yaml", *flags)[1])
        return found

    def lost(plan: dict[str, Any]) -> list[Decimal]:
        return [
            Decimal(regret["usd"])
            for option in plan["cost"]["commitments"]
            for regret in option["regrets"]
            if regret["scenario"] == "ends"
        ]

    early, late = planned("2 months"), planned("5 months")
    assert early["inputs"]["stops_after_months"] == "2.00"
    assert early["cost"]["total"] == late["cost"]["total"]
    for option, early_usd, late_usd in zip(
        early["cost"]["commitments"], lost(early), lost(late), strict=True
    ):
        term = MONTHS_OF[option["purchase"][: len("reserved_1y")]]
        on_demand_usd = Decimal(option["committed_usd"]) / term + Decimal(
            option["saved_usd_month"]
        )
        assert abs(early_usd - late_usd - 3 * on_demand_usd) <= Decimal("0.05")
    page = tonnage("plan", "s.yaml", "--stops-after", "2 months")[1]
    assert "where the workload ends after 2 months: $" in page
    assert tonnage("plan", "s.yaml", "--stops-after", "2 moons")[0] == 2


def test_a_plan_is_bound_to_when_its_workload_may_end(
    tonnage: Command, here: Path
) -> None:
    (here / "s.yaml").write_text(text_of("aws", "[none]"))
    flags = ("--stops-after", "4 months", "-o", "p.json")
    assert tonnage("plan", "s.yaml", *flags)[0] == 0
    assert tonnage("apply", "p.json", "--simulate", "--yes")[0] == 0


@pytest.mark.parametrize("months", [12, 36])
def test_what_comes_after_a_term_loses_nothing_whatever_it_is(
    months: int,
) -> None:
    late = {
        future.scenario
        for future in scenarios()
        if comes_after(future.scenario, months)
    }
    # Prices that fall after a year are of no use to who is bound for a year.
    assert late == ({"price"} if months == 12 else set())
    # Such a future has the bills of the planned one: a commitment that pays then loses nothing.
    for future in scenarios():
        if future.scenario in late:
            planned = replace(future, price_share=Decimal(1))
            usd = Decimal(1000)
            assert future.regret_usd(usd, usd / 9, months) == (
                planned.regret_usd(usd, usd / 9, months)
            )
    words = regret_text(Decimal(0), "price", f"reserved_{months // 12}y")
    assert words == (
        "nothing: its term ends first" if months == 12 else "nothing"
    )
    assert regret_text(Decimal(7), "price", "reserved_1y") == "$7.00"


def test_both_pages_say_which_future_comes_too_late(
    tonnage: Command, here: Path
) -> None:
    (here / "s.yaml").write_text(text_of("aws", "[none, 1y, 3y]", "flat"))
    ways = tonnage("explain", "s.yaml", "--ways", "-f", "markdown")[1]
    assert ways.count("nothing: its term ends first") == 1
    page = tonnage("plan", "s.yaml", "--full", "-f", "markdown")[1]
    lines = [
        line
        for line in page.splitlines()
        if "nothing: its term ends first" in line
    ]
    # A full page has all three ways to pay a year.
    assert len(lines) == 3
    assert all(
        "for a year" in line
        and "where the price on demand is half after a year" in line
        for line in lines
    )

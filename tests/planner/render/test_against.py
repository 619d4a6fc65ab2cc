"""Differences from a bill with an unknown price say what of them is known."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from planner.plan.amount import CostAmount, cost_delta
from planner.plan.document import PlannedStack, SpecSource, assemble
from planner.render.diff.wording import delta_text
from planner.render.explain import (
    reasons_page,
    rejections_page,
    scaling_page,
)
from planner.render.text import render
from planner.solve.settings import SolveSettings
from planner.workload.solver import solve, what_if, why_not
from stacks.build import planned_stack
from stacks.spec.table import unsupported_reason
from tests.conftest import chat, spec_of

if TYPE_CHECKING:
    from planner.market.offer import Catalog
    from planner.plan.types import Plan

TEXT = chat(extra="where: {clouds: [aws]}")
USD = st.decimals("0", "1000", places=2)
# A mark, a sign, and an amount.
AMOUNT = re.compile(r"(>= |<= )?([+-]?)\$([0-9,.]+)")


def settings_of(catalog: Catalog, *, is_known: bool) -> SolveSettings:
    """Settings in which nobody knows what a balancer costs, unless it is known."""
    book = catalog.price_book
    prices = {
        key: price
        for key, price in book.prices.items()
        if is_known or "load_balancer" not in key
    }
    return SolveSettings(
        catalog=replace(catalog, price_book=replace(book, prices=prices)),
        unbuilt_reason=unsupported_reason,
        read_file=lambda _: b"",
    )


def plan_with(settings: SolveSettings) -> Plan:
    spec = spec_of(TEXT)
    solution = solve(spec, settings)
    return assemble(
        spec,
        solution,
        settings.catalog,
        source=SpecSource("spec.yaml", "0" * 64),
        stack=planned_stack(spec, solution, PlannedStack(name=spec.name)),
    )


@pytest.mark.parametrize("is_known", [True, False])
def test_amounts_of_a_page_are_marked_where_a_price_is_unknown(
    catalog: Catalog, is_known: bool
) -> None:
    settings = settings_of(catalog, is_known=is_known)
    plan = plan_with(settings)
    assert plan.cost.is_partial != is_known
    spec = spec_of(TEXT)
    asked = render(
        (
            *rejections_page(plan, why_not(spec, settings, "g*.xlarge")),
            *scaling_page(plan, 8, what_if(spec, settings, 8)),
        ),
        width=200,
    )
    found = AMOUNT.findall(asked)
    assert len(found) > 4
    assert {bool(mark) for mark, *_ in found} == {not is_known}
    # Nobody knows either side, so nobody knows the difference.
    assert ("price: ? a month" in asked) != is_known
    reasons = render(reasons_page(plan), width=200)
    table = reasons.partition("not chosen")[2]
    rivals = AMOUNT.findall(table.partition("binding")[0])
    assert rivals
    assert {bool(mark) for mark, *_ in rivals} == {not is_known}


@given(USD, USD, USD, USD)
def test_what_a_mark_claims_holds_whatever_the_unknown_prices_are(
    plan_usd: Decimal,
    other_usd: Decimal,
    plan_unknown: Decimal,
    other_unknown: Decimal,
) -> None:
    before = CostAmount(usd=plan_usd, is_complete=not plan_unknown)
    after = CostAmount(usd=other_usd, is_complete=not other_unknown)
    truth = other_usd + other_unknown - plan_usd - plan_unknown
    text = delta_text(cost_delta(before, after))
    match = AMOUNT.fullmatch(text)
    if match is None:
        assert text == "?"
        assert plan_unknown
        assert other_unknown
        return
    mark, sign, number = match.groups()
    told = Decimal(number.replace(",", "")) * (-1 if sign == "-" else 1)
    assert {">= ": truth >= told, "<= ": truth <= told}.get(mark, truth == told)

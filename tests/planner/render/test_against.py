"""Differences from a bill with an unknown price say what of them is known."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from planner import figures
from planner.errors import Place
from planner.plan.amount import CostAmount, cost_delta
from planner.plan.budget import Budget, Spending, judge
from planner.plan.diff_report import plans_document
from planner.plan.document import PlannedStack, SpecSource, assemble
from planner.render.diff.wording import delta_text, relaxation_text
from planner.render.explain import (
    reasons_page,
    rejections_page,
    scaling_page,
)
from planner.render.html.report import PlanView, plan_report
from planner.render.infeasible import infeasible_blocks
from planner.render.text import render
from planner.solve.settings import SolveSettings
from planner.workload.solver import solve, what_if, why_not
from stacks.build import planned_stack
from stacks.spec.table import unsupported_reason
from tests.conftest import chat, present, spec_of
from tests.planner.render.html.reading import read_html, words

if TYPE_CHECKING:
    from planner.market.offer import Catalog
    from planner.plan.types import Plan

TEXT = chat(extra="where: {clouds: [aws]}")
USD = st.decimals("0", "1000", places=2)
# A mark, a sign, and an amount.
AMOUNT = re.compile(r"(>= |<= )?([+-]?)\$([0-9,.]+)")


def settings_of(
    catalog: Catalog, *, is_known: bool = False, cloud: str = ""
) -> SolveSettings:
    """Settings in which nobody knows what a balancer costs, unless it is known.

    With a cloud nobody knows it there, and it is known elsewhere.
    """
    book = catalog.price_book
    prices = {
        key: price
        for key, price in book.prices.items()
        if is_known or "load_balancer" not in key or (cloud and key[0] != cloud)
    }
    return SolveSettings(
        catalog=replace(catalog, price_book=replace(book, prices=prices)),
        unbuilt_reason=unsupported_reason,
        read_file=lambda _: b"",
    )


def plan_with(settings: SolveSettings, text: str = TEXT) -> Plan:
    spec = spec_of(text)
    solution = solve(spec, settings)
    stack = PlannedStack(name=spec.name)
    if solution.pools:
        stack = planned_stack(spec, solution, stack)
    return assemble(
        spec,
        solution,
        settings.catalog,
        source=SpecSource("spec.yaml", "0" * 64),
        stack=stack,
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
    # What was ruled out before it had a bill costs so much at least.
    assert [bool(mark) for mark, *_ in rivals] == [
        not is_known or rival.is_bound for rival in plan.alternatives
    ]
    assert rivals


@pytest.mark.parametrize("cloud", ["aws", "gcp"])
def test_each_fleet_says_which_of_its_own_prices_nobody_knows(
    catalog: Catalog, cloud: str
) -> None:
    """Every service has a balancer, so it is unknown of those on one cloud, and of no others."""
    plan = plan_with(settings_of(catalog, cloud=cloud), chat())
    true_plan = plan_with(settings_of(catalog, is_known=True), chat())
    true_usd = {
        alternative.pools: alternative.usd_month
        for alternative in true_plan.alternatives
    }
    unknown = ("load balancer",)
    billed = [rival for rival in plan.alternatives if not rival.is_bound]
    for rival in billed:
        is_there = rival.pools[0].provider == cloud
        assert rival.unpriced == (unknown if is_there else ())
        # The least that it costs, and exactly that where all is known.
        assert (rival.usd_month < true_usd[rival.pools]) == is_there
        assert rival.usd_month <= true_usd[rival.pools]
    assert {bool(rival.unpriced) for rival in billed} == {True, False}
    assert {
        rival.unpriced for rival in plan.alternatives if rival.is_bound
    } == {()}
    for limit in plan.solution.binding:
        is_there = present(limit.fleet).provider == cloud
        assert limit.unpriced == (unknown if is_there else ())
    # The plan says of itself what others say of themselves.
    assert bool(plan.cost.unpriced) == (
        plan.solution.pools[0].provider == cloud
    )


@pytest.mark.parametrize("cloud", ["aws", "gcp"])
def test_pages_mark_what_the_document_says_is_partial(
    catalog: Catalog, cloud: str
) -> None:
    plan = plan_with(settings_of(catalog, cloud=cloud), chat())
    fleets, _, wishes = (
        render(reasons_page(plan), width=200)
        .partition("not chosen")[2]
        .partition("binding")
    )
    marks = [mark for mark, *_ in AMOUNT.findall(fleets)]
    assert marks == [
        ">= " if rival.is_partial else "" for rival in plan.alternatives
    ]
    rows = [
        next(line for line in wishes.splitlines() if limit.relax_to in line)
        for limit in plan.solution.binding
    ]
    expected = [
        {
            (False, False): figures.dollars(limit.saves_usd_month),
            # More is known to be saved, at most, or nothing is known of it.
            (True, False): f">= {figures.dollars(limit.saves_usd_month)}",
            (False, True): f"<= {figures.dollars(limit.saves_usd_month)}",
            (True, True): "?",
        }[plan.cost.is_partial, bool(limit.unpriced)]
        for limit in plan.solution.binding
    ]
    assert len(set(expected)) == len(expected) > 1
    for row, saving in zip(rows, expected, strict=True):
        assert f" {saving} " in row
    # The report and the comment of a change read the same.
    report = words(read_html(plan_report(PlanView(plan))))
    for rival in plan.alternatives:
        mark = ">= " if rival.is_partial else ""
        assert f"{mark}{figures.dollars(rival.usd_month)}" in report
    for saving in expected:
        assert f"saves {saving}" in report
    [spec] = plans_document(("a", "b"), (plan, plan)).specs
    best = max(
        plan.solution.binding,
        key=lambda limit: present(limit.saves_usd_month),
    )
    saved = present(best.saves_usd_month)
    mark = expected[plan.solution.binding.index(best)].partition("$")[0]
    text = "?" if mark == "?" else f"{mark}{figures.dollars(saved, cents=True)}"
    assert relaxation_text(spec).startswith(f"cheaper by {text}/mo with")


def test_the_nearest_that_would_do_is_marked_too(catalog: Catalog) -> None:
    text = chat(extra="buy: {budget: 9}\nwhere: {clouds: [aws]}")
    for is_known in (True, False):
        plan = plan_with(settings_of(catalog, is_known=is_known), text)
        assert not plan.is_feasible
        page = render(tuple(infeasible_blocks(plan)), width=200)
        found = AMOUNT.findall(page.partition("changing one thing")[2])
        priced = [limit for limit in plan.solution.binding if limit.usd_month]
        assert priced
        assert {bool(limit.unpriced) for limit in priced} == {not is_known}
        assert {bool(mark) for mark, *_ in found} >= {not is_known}


def test_a_fleet_with_an_unknown_price_is_no_way_below_a_budget(
    catalog: Catalog,
) -> None:
    plan = plan_with(settings_of(catalog, cloud="aws"), chat())
    limits = plan.solution.binding
    exact = [limit for limit in limits if not limit.unpriced]
    partial = [limit for limit in limits if limit.unpriced]
    least = min(present(limit.saves_usd_month) for limit in exact)
    most = max(present(limit.saves_usd_month) for limit in partial)
    assert least < most
    for saved_usd, named in ((least, exact[0].constraint), (most, "")):
        budget = Budget(
            place=Place("b.yaml", 1, 1),
            name=None,
            labels={},
            limit=plan.cost.total - saved_usd,
            warn=Decimal(1),
        )
        [problem], _ = judge([budget], [Spending.of_plan(plan)])
        assert (f"loosen {named} of" in problem.next_step) == bool(named)
        assert ("loosen" in problem.next_step) == bool(named)


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

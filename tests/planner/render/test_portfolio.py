"""Services that buy together where a price is unknown, or a proof is missing."""

from __future__ import annotations

from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Literal

import pytest
from msgspec.structs import replace

from planner.cli.portfolio import minutes_ahead
from planner.market.live import QuotaKey
from planner.plan.portfolio import NOT_MOVED, portfolio_document
from planner.render.diff.wording import amount_text
from planner.render.html.sharing import sharing_report
from planner.render.portfolio import portfolio_page
from planner.render.text import render
from planner.workload.portfolio import share
from planner.workload.quota_share import QuotaNeed, SharedChoice
from planner.workload.sharing import member_of
from planner.workload.solver import solve
from tests.conftest import present, spec_of
from tests.planner.render.html.conftest import two_coasts
from tests.planner.render.html.reading import by_name, read_html, words
from tests.planner.render.test_against import TEXT, plan_with, settings_of

if TYPE_CHECKING:
    from planner.market.offer import Catalog
    from planner.plan.portfolio_document import PortfolioDocument
    from planner.plan.types import Plan

NEED = QuotaNeed(QuotaKey("aws", "us-east-1", "on_demand", "L-1"), 48.0, 40.0)


def remedy(need: QuotaNeed) -> str:
    return f"ask for {need.units:g}"


def alike(
    plan: Plan, name: str, status: Literal["optimal", "feasible"] = "optimal"
) -> Plan:
    return replace(
        plan,
        workload=replace(plan.workload, name=name),
        solution=replace(plan.solution, status=status),
    )


def document_of(
    catalog: Catalog,
    *,
    is_known: bool = True,
    chosen: SharedChoice | None = None,
) -> PortfolioDocument:
    """Two services that are alike but for their names."""
    settings = settings_of(catalog, is_known=is_known)
    plan = plan_with(settings)
    spec = spec_of(TEXT)
    member = present(
        member_of(spec, solve(spec, settings), lambda _: b"", "/specs")
    )
    portfolio = share(
        [replace(member, name=name) for name in ("one", "two")],
        settings.catalog,
        partial(minutes_ahead, 2026),
    )
    return portfolio_document(
        [alike(plan, name) for name in ("one", "two")],
        portfolio,
        chosen=chosen,
        remedy=remedy,
        moves=NOT_MOVED,
    )


@pytest.mark.parametrize("is_known", [True, False])
def test_bills_with_an_unknown_price_are_marked_and_its_lines_are_named(
    catalog: Catalog, is_known: bool
) -> None:
    document = document_of(catalog, is_known=is_known)
    amounts = [
        document.total.alone,
        document.total.together,
        *(
            present(amount)
            for own in document.workloads
            for amount in (own.alone, own.together)
        ),
    ]
    assert {amount.is_complete for amount in amounts} == {is_known}
    unpriced = {name for own in document.workloads for name in own.unpriced}
    assert bool(unpriced) != is_known
    page = render(portfolio_page(document))
    rows = [
        line
        for line in page.splitlines()
        if line.strip().startswith(("one ", "two ", "all "))
    ]
    assert len(rows) == 3
    for row in rows:
        assert row.count(">= $") == (0 if is_known else row.count("$"))
    assert ("no price is known of" in page) != is_known
    report = words(read_html(sharing_report(document)))
    for name in unpriced:
        assert name in page
        assert name in report
    assert (">= $" in report) != is_known


def choice(usd: int, bound_usd: int, needs: tuple[QuotaNeed, ...]):
    return SharedChoice(
        caps=((), ()),
        usd=Decimal(usd),
        bound_usd=Decimal(bound_usd),
        usd_alone=Decimal(1000),
        needs=needs,
    )


@pytest.mark.parametrize(
    ("chosen", "status", "gap", "said"),
    [
        (None, "optimal", 0, ()),
        (choice(1000, 1000, ()), "optimal", 0, ()),
        (choice(1100, 1100, (NEED,)), "optimal", 0, ("cost $100 more",)),
        (
            choice(1100, 1040, (NEED,)),
            "feasible",
            60,
            ("cost $100 more", "up to $60 less"),
        ),
    ],
)
def test_a_choice_without_a_proof_says_how_far_off_it_may_be(
    catalog: Catalog,
    chosen: SharedChoice | None,
    status: str,
    gap: int,
    said: tuple[str, ...],
) -> None:
    document = document_of(catalog, chosen=chosen)
    assert document.status == status
    assert document.gap_usd == gap
    assert (document.quotas is None) == (chosen is None)
    page = " ".join(render(portfolio_page(document)).split())
    report = words(read_html(sharing_report(document)))
    for text in (page, report):
        for phrase in said:
            assert phrase in text
        is_short = bool(said)
        assert ("need 48 of the quota L-1" in text) == is_short
        assert ("to raise it: ask for 48" in text) == is_short
        assert ("ended before a proof" in text) == (gap > 0)
        assert ("do not allow all of the cheapest" in text) == is_short


def test_a_plan_that_is_not_proved_leaves_the_gap_unknown(
    catalog: Catalog,
) -> None:
    plan = plan_with(settings_of(catalog, is_known=True))
    document = portfolio_document(
        [alike(plan, "one"), alike(plan, "two", "feasible")],
        share([], catalog, partial(minutes_ahead, 2026)),
        chosen=None,
        remedy=remedy,
        moves=NOT_MOVED,
    )
    assert (document.status, document.gap_usd) == ("feasible", None)
    # Nobody shares anything: nothing costs anything.
    assert document.total.together.usd == document.total.saved_usd == 0


def test_pictures_show_each_bill_and_the_machines_of_each_place() -> None:
    document = two_coasts()
    tree = read_html(sharing_report(document))
    bills, places = by_name(tree, "svg")[-2:]
    for own in document.workloads:
        for side, amount in (("alone", own.alone), ("together", own.together)):
            assert f"{own.name} {side}" in words(bills)
            assert amount_text(amount) in words(bills)
    [place] = document.places
    assert f"{place.peak_nodes} at once" in words(places)
    styles = {
        element.attrib.get("class", "").removeprefix("bar ")
        for element in places.iter()
        if element.attrib.get("class", "").startswith("bar ")
    }
    # Nothing is owned: a base that is committed to, and the rest on demand.
    assert styles == {"second", "main"}

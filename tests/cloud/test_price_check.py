"""Prices of the catalog are held against those that a cloud tells, which is a service here."""

from __future__ import annotations

from decimal import Decimal

import pytest

from planner.market.offer import Catalog
from planner.market.price_row import PriceRow, read_price_rows
from planner.market.price_update import AskedScope, price_questions
from providers.catalog.manifest import CATALOG_FOLDER
from providers.live.price import ask_prices
from tests.cloud.price_check import PriceReport, compare_prices
from tests.loopback import Cloud, cloud
from tests.planner.market.price_rows import answered, price_row
from tests.providers.shapes import answer_of
from tests.providers.shapes.service import refuse, serve

__all__ = ["cloud"]
TODAY = "2026-11-27"


def compare(row_usd: str, prices: dict[str, str] | None) -> PriceReport:
    return compare_prices([price_row(row_usd)], [answered(prices)], {}, TODAY)


@pytest.mark.parametrize(
    ("row_usd", "live_usd", "line", "is_implausible"),
    [
        ("98.32", "98.320", "", False),
        ("98.32", "90", "98.32 in the catalog, 90 now (-8.5 %)", False),
        ("98.32", None, "98.32 in the catalog, no price now", False),
        ("98.32", "0.9832", "0.9832 now (-99.0 %)", True),
        ("1", "5", "5 now (+400.0 %)", True),
    ],
)
def test_each_difference_is_a_line(
    row_usd: str, live_usd: str | None, line: str, is_implausible: bool
) -> None:
    report = compare(row_usd, {"p5.48xlarge": live_usd} if live_usd else {})
    head, *lines = report.lines()
    assert head == f"1 prices compared, {bool(line):d} differ"
    assert len(lines) == bool(line)
    assert all(line in found for found in lines)
    assert bool(report.implausible) is is_implausible


def test_what_nobody_answers_is_told_and_no_difference() -> None:
    report = compare("98.32", None)
    assert (report.compared, report.differences) == (0, [])
    assert report.lines()[1:] == ["aws us-east-1 on_demand: busy"]


def embedded_rows() -> list[PriceRow]:
    """What the catalog has of a region of Azure."""
    text = (CATALOG_FOLDER / "prices.csv").read_text(encoding="utf-8")
    scope = AskedScope(clouds=("azure",), regions=("eastus",))
    return [row for row in read_price_rows(text) if scope.has(row)]


def ask(rows: list[PriceRow]) -> PriceReport:
    questions = price_questions(rows, AskedScope())
    return compare_prices(rows, ask_prices(questions, 20), {}, TODAY)


@pytest.mark.enable_socket
def test_embedded_rows_are_compared_with_what_a_cloud_answers(
    cloud: Cloud, catalog: Catalog
) -> None:
    """All rows of a region, both ways to buy; those at the price of the file do not differ."""
    serve(cloud)
    rows = embedded_rows()
    listed = answer_of("azure/RetailPrices_List")["Items"]
    live = {
        (
            row["armSkuName"],
            "spot" if "Spot" in row["skuName"] else "on_demand",
        ): Decimal(str(row["retailPrice"]))
        for row in listed
    }
    expected = {
        row.key
        for row in rows
        if live.get((row.instance_type, row.purchase)) != row.usd
    }
    report = ask(rows)
    assert report.compared == len(rows) > 0
    differing = {found.key for found in report.differences}
    assert differing & {row.key for row in rows} == expected
    told = "\n".join(report.lines())
    assert all(f"\n{' '.join(key)}: " in told for key in expected)


@pytest.mark.enable_socket
def test_a_cloud_that_refuses_tells_no_price(cloud: Cloud) -> None:
    refuse(cloud, "broken")
    report = ask(embedded_rows())
    assert (report.compared, report.differences) == (0, [])
    assert len(report.unanswered) == 2

"""From each dollar of a bill to the row of a table that has its price, and to what says so."""

from __future__ import annotations

import csv
import json
import re
from decimal import Decimal
from typing import TYPE_CHECKING, Final

import pytest

from planner.facts.small_cloud import small_cloud_machines
from planner.market.catalog_source import CatalogSource, named_sources
from planner.market.own_prices import read_own_prices
from planner.render import text
from planner.render.explain import reasons_page
from providers.catalog.manifest import CATALOG_FOLDER
from tests.conftest import BLUEPRINTS, ROOT, chat, present
from tests.planner.cli.conftest import Command
from tests.stacks.engine.test_simulated import plan_of

if TYPE_CHECKING:
    from pathlib import Path

    from planner.market.offer import Catalog

UPPER_END: Final = r"upper end of (?P<usd>\S+) USD an hour by (?P<source>.+)"
KEYS: Final = {
    "prices.csv": ("provider", "instance_type", "region", "purchase"),
    "services.csv": ("provider", "region", "item"),
}


def rows_of(price_row: str) -> list[tuple[Decimal, str, str]]:
    """Return price, date and source of the rows that a line names, as the file has them."""
    file_name, _, key = price_row.partition(": ")
    price_column = "usd_hour" if file_name == "prices.csv" else "usd"
    with (CATALOG_FOLDER / file_name).open(newline="") as file:
        return [
            (Decimal(row[price_column]), row["as_of"], row["source"])
            for row in csv.DictReader(file)
            if " ".join(row[column] for column in KEYS[file_name]) == key
        ]


@pytest.mark.parametrize("path", BLUEPRINTS, ids=lambda path: path.stem)
def test_each_line_leads_to_a_row_and_to_what_says_so(
    catalog: Catalog, path: Path
) -> None:
    plan = plan_of(catalog, path.read_text())
    with (CATALOG_FOLDER / "sources.csv").open(newline="") as file:
        described = {row["source"]: row for row in csv.DictReader(file)}
    told = {origin.name: origin for origin in plan.cost.sources}
    for line in plan.cost.lines:
        if not line.price_found:
            continue
        assert line.price_row is not None
        usd, source = line.unit_price, line.price_source or ""
        if upper := re.fullmatch(UPPER_END, source):
            # An old price of spot counts as more: the row has what was found.
            assert present(usd) > Decimal(upper["usd"])
            usd, source = Decimal(upper["usd"]), upper["source"]
        price = (usd, line.price_as_of, source)
        assert price in rows_of(line.price_row), line.name
        origin = told[source]
        assert origin.what == described[origin.name]["what"]
        assert (origin.url or "") == described[origin.name]["url"]
    for fleet in plan.cost.elsewhere:
        assert told[fleet.price_source].url


def test_a_discounted_price_names_its_file_and_its_list_price(
    catalog: Catalog,
) -> None:
    terms = (
        "discounts:\n"
        "  - {cloud: aws, purchase: on_demand, percent: 10%}\n"
        "rates:\n"
        "  - {cloud: azure, type: Standard_NC40ads_H100_v5, usd_hour: 0.1}\n"
    )
    priced = read_own_prices(terms.encode(), "p.yaml").applied(catalog)
    plan = plan_of(
        priced, chat(extra="where: {clouds: [aws]}\nbuy: {spot: never}")
    )
    machines = plan.cost.lines[0]
    assert (machines.price_source or "").startswith("p.yaml:2: 10 % off ")
    [[listed, *_]] = rows_of(machines.price_row or "")
    assert machines.unit_price == listed * Decimal("0.9")
    # A rate of a contract stands in no row of the catalog.
    plan = plan_of(
        priced, chat(extra="where: {clouds: [azure]}\nbuy: {spot: never}")
    )
    machines = plan.cost.lines[0]
    assert (machines.price_source, machines.price_row) == ("p.yaml:4", None)


def test_machines_of_a_small_cloud_have_a_row_of_their_own_table(
    tonnage: Command, here: Path
) -> None:
    (here / "s.yaml").write_text(chat(extra="where: {clouds: [lambda, verda]}"))
    code, document, _ = tonnage("plan", "s.yaml", "-f", "json")
    assert code == 0
    cost = json.loads(document)["cost"]
    machines, *others = cost["lines"]
    table, _, key = machines["price_row"].partition(": ")
    assert table == "small_clouds.csv"
    [row] = [
        machine
        for machine in small_cloud_machines()
        if f"{machine.cloud} {machine.machine}" == key
    ]
    assert row.usd_hour == Decimal(machines["unit_price"])
    assert (row.as_of, row.source) == (
        machines["price_as_of"],
        machines["price_source"],
    )
    assert cost["sources"][0]["name"] == row.source
    assert cost["sources"][0]["url"].startswith("https://")
    assert all(line["price_row"] is None for line in others)


def test_explain_shows_each_line_with_its_row_and_the_address(
    catalog: Catalog,
) -> None:
    plan = plan_of(catalog, chat())
    page = text.render(reasons_page(plan))
    told = page[page.index("Where each price is from") :]
    for line in plan.cost.lines:
        assert line.price_row is not None
        assert any(
            shown.strip().startswith(line.name) and line.price_row in shown
            for shown in told.splitlines()
        )
    for origin in plan.cost.sources:
        assert f"  {origin.name} " in told
        assert origin.url is None or origin.url in told


def test_explain_shows_the_prices_of_what_a_bill_is_compared_with(
    catalog: Catalog,
) -> None:
    """A reader follows what an API and a small cloud would cost as far as a line of the bill."""
    spec = (ROOT / "blueprints" / "chat-70b.yaml").read_text()
    plan = plan_of(catalog, spec)
    told = text.render(reasons_page(plan)).splitlines()
    assert plan.cost.hosted
    assert plan.cost.elsewhere
    for hosted in plan.cost.hosted:
        prices = (hosted.input_usd, hosted.output_usd)
        for what, usd in zip(("prompts", "answers"), prices, strict=True):
            [line] = [
                row for row in told if f"{what} at {hosted.provider} " in row
            ]
            assert hosted.price_source in line
            assert f"{usd:.2f}" in line
    for fleet in plan.cost.elsewhere:
        [line] = [row for row in told if f"a machine at {fleet.cloud} " in row]
        assert fleet.price_source in line
        assert fleet.price_as_of in line


def test_a_name_of_several_words_is_read_before_its_words() -> None:
    def source(name: str) -> CatalogSource:
        return CatalogSource(name=name, what="", as_of="", url="")

    sources = [source("lists of a"), source("a"), source("b")]
    assert named_sources("lists of a", sources) == (sources[0],)
    assert named_sources("f.yaml:1: 5 % off b, a", sources) == (
        sources[2],
        sources[1],
    )
    assert named_sources("ab", sources) == ()

"""What tables of prices say of their sources: each is described, and recalled ones are listed."""

from __future__ import annotations

import csv
from importlib.resources import files
from pathlib import Path

import pytest

from providers.catalog.manifest import CATALOG_FOLDER

DOCS = Path(__file__).parents[3] / "docs"
SMALL_CLOUDS = Path(str(files("planner.facts"))) / "data" / "small_clouds.csv"


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize(
    "path",
    [
        CATALOG_FOLDER / "prices.csv",
        CATALOG_FOLDER / "services.csv",
        SMALL_CLOUDS,
    ],
    ids=lambda path: path.name,
)
def test_each_source_of_a_price_is_described(path: Path) -> None:
    described = {row["source"] for row in rows(CATALOG_FOLDER / "sources.csv")}
    assert {row["source"] for row in rows(path)} <= described


def test_each_source_is_of_some_row() -> None:
    named = {
        row["source"]
        for path in (*CATALOG_FOLDER.glob("*.csv"), SMALL_CLOUDS)
        if path.name != "sources.csv"
        for row in rows(path)
    }
    described = {row["source"] for row in rows(CATALOG_FOLDER / "sources.csv")}
    assert described <= named


def test_prices_that_nobody_looked_up_are_listed() -> None:
    """Those that a bill may have: services with a role, and machines."""
    recalled = {
        f"{row['provider']} {row['item']}, {row['usd']}"
        for row in rows(CATALOG_FOLDER / "services.csv")
        if row["role"] and row["source"] == "memory"
    } | {
        f"{row['provider']} {row['instance_type']}, {row['usd_hour']}"
        for row in rows(CATALOG_FOLDER / "prices.csv")
        if row["source"] == "memory"
    }
    page = (DOCS / "catalog.md").read_text()
    section = page.split("## Prices that nobody has looked up\n")[1]
    listed = {
        line.split("`")[1]
        for line in section.split("\n## ")[0].splitlines()
        if line.startswith("| `")
    }
    assert listed == recalled

"""Where a price stands in an answer is a row, and a wrong row is refused by its place."""

from __future__ import annotations

import pytest

from planner.errors import CatalogError
from planner.facts import price_endpoint, table
from planner.facts.price_endpoint import (
    PathStep,
    listed_machines,
    price_endpoints,
)
from planner.facts.small_cloud import small_clouds

HEADER = (
    "cloud,url,entries,next_page,cursor,name,expected,unsold,price,per,"
    "source,as_of\n"
)
GOOD = "OCI,https://x,items,next,,id,unit=hour,,a[b=c].d,machine,page,2026-11"


def test_the_clouds_are_small_ones_over_https() -> None:
    assert price_endpoints().keys() <= small_clouds().keys()
    assert price_endpoints().keys() == listed_machines().keys()
    for endpoint in price_endpoints().values():
        assert endpoint.url.startswith("https://")
        # A cursor is appended to the parameters of the URL.
        assert not endpoint.cursor or "?" in endpoint.url


@pytest.mark.parametrize(
    ("cell", "worse", "column"),
    [
        ("a[b=c].d", "a[b].d", "price"),
        ("a[b=c].d", "a..d", "price"),
        ("unit=hour", "unit", "expected"),
        ("machine", "month", "per"),
        ("https://x", "", "url"),
    ],
)
def test_a_wrong_row_is_refused(
    monkeypatch: pytest.MonkeyPatch, cell: str, worse: str, column: str
) -> None:
    def read(row: str) -> dict[str, price_endpoint.PriceEndpoint]:
        monkeypatch.setattr(table, "data_text", lambda *_: HEADER + row)
        return price_endpoints.__wrapped__()

    steps = read(GOOD)["oci"].price
    assert steps == (PathStep("a", "b", "c"), PathStep("d"))
    with pytest.raises(CatalogError) as refused:
        read(GOOD.replace(cell, worse, 1))
    [problem] = refused.value.problems
    assert problem.place is not None
    assert (problem.place.path, problem.place.line) == (
        "price_endpoints.csv",
        2,
    )
    assert problem.message.startswith(f"{column}: ")

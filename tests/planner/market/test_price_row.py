"""A table of prices is written as it was read, and a price that is none is refused."""

from __future__ import annotations

import pytest

from planner.errors import CatalogError
from planner.market.price_row import price_table, read_price_rows
from providers.catalog.manifest import CATALOG_FOLDER
from tests.planner.market.price_rows import price_row


def test_the_embedded_table_is_written_as_it_was_read() -> None:
    text = (CATALOG_FOLDER / "prices.csv").read_text()
    rows = read_price_rows(text)
    assert price_table(rows) == text
    # A price has one key, so that two tables can be compared.
    assert len({row.key for row in rows}) == len(rows) > 7000


@pytest.mark.parametrize("usd", ["0", "-1", "NaN", "Infinity", "much", ""])
def test_what_nothing_may_cost_is_refused(usd: str) -> None:
    with pytest.raises(CatalogError) as found:
        read_price_rows(price_table([price_row("1"), price_row(usd)]))
    [problem] = found.value.problems
    assert str(problem.place) == "prices.csv:3:1"

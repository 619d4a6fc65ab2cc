"""The page and the table of a difference: unknown prices on their side, periods apart."""

from __future__ import annotations

import csv
import io

from msgspec.structs import replace

from planner.render import text
from planner.render.diff.page import DIFF_WIDTH, diff_page
from planner.render.diff.table import diff_table
from tests.planner.render.differences import amount, document, line, spec


def shown(*specs) -> str:
    return text.render(diff_page(document(*specs)))


def test_an_unknown_price_is_marked_on_the_side_that_has_it() -> None:
    page = shown(spec("a.yaml", amount(5), amount(7, is_complete=False)))
    assert "$5.00/mo" in page
    assert ">= $7.00/mo" in page
    assert ">= +$2.00" in page
    assert ">= $5.00" not in page
    page = shown(spec("a.yaml", amount(5, is_complete=False), amount(7)))
    assert ">= $5.00/mo" in page
    assert "<= +$2.00" in page
    assert ">= $7.00" not in page
    page = shown(
        spec("a.yaml", amount(None, is_complete=False), amount(7)),
        spec("b.yaml", amount(7), amount(None, is_complete=False)),
    )
    assert "?/mo" in page


def test_an_unknown_line_is_no_zero() -> None:
    unknown = line("load balancer", 3, None)
    told = spec("a.yaml", amount(5), amount(2, is_complete=False))
    told = replace(told, changes=(unknown,))
    [row] = [row for row in shown(told).splitlines() if "load balancer" in row]
    assert row.split()[-3:] == ["?", ">=", "-$3.00"]
    assert "$0.00" not in row
    rows = csv.DictReader(io.StringIO(diff_table(document(told))))
    [cell] = [row for row in rows if row["name"] == "load balancer"]
    assert (cell["usd_after"], cell["complete_after"]) == ("", "no")


def test_no_line_is_wider_than_the_log_of_a_pipeline() -> None:
    name = "a rather long folder name/with another one in it/spec file.yaml"
    page = shown(
        spec(name, amount(5), amount(70_000), value="x" * 400),
        spec(f"other {name}", amount(5), None),
    )
    assert max(map(len, page.splitlines())) <= DIFF_WIDTH


def test_cells_are_no_formulas() -> None:
    told = document(spec("=cmd()", amount(1), amount(2)))
    rows = list(csv.DictReader(io.StringIO(diff_table(told))))
    assert {row["path"] for row in rows} == {"'=cmd()", ""}

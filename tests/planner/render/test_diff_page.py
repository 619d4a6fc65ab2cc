"""The page and the table of a difference: unknown prices on their side, periods apart."""

from __future__ import annotations

import csv
import io
import re
from decimal import Decimal

from msgspec.structs import replace

from planner.plan.amount import CostAmount, cost_delta
from planner.plan.diff_document import MetricChange
from planner.plan.prediction import MetricLimit, Prediction
from planner.render import text
from planner.render.diff.overview import DIFF_WIDTH, overview_table
from planner.render.diff.page import diff_page
from planner.render.diff.table import diff_table
from planner.render.diff.wording import limits_text
from planner.sentence import SENTENCES
from tests.planner.render.differences import amount, document, line, side, spec

# A screen, the log of a pipeline, and no screen at all.
WIDTHS = (100, 120, None)


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


def usd(dollars: str, *, is_complete: bool = True) -> CostAmount:
    return CostAmount(usd=Decimal(dollars), is_complete=is_complete)


SIX_SPECS = tuple(
    replace(
        spec(path, usd(old), usd(new, is_complete=is_complete)),
        keys=tuple(
            replace(key, key="traffic.requests_per_day", before="400k")
            for key in spec(path, None, None).keys * key_count
        ),
    )
    for path, old, new, is_complete, key_count in (
        ("summarize-batch.yaml", "27068.17", "9811101.60", True, 1),
        ("rag-prefix-cache.yaml", "290.92", "27068.17", False, 2),
        ("chat-8b.yaml", "1994.15", "2811.80", True, 3),
        ("code-assistant.yaml", "10155.64", "14541.44", False, 1),
        ("team/europe/classify-backlog.yaml", "34.12", "334.12", True, 1),
        ("translate-small.yaml", "615.92", "953.90", True, 1),
    )
)


def test_no_amount_and_no_file_name_is_broken() -> None:
    told = document(*SIX_SPECS)
    long_value = replace(SIX_SPECS[0].keys[0], after="9" * 50)
    hard = document(*SIX_SPECS[1:], replace(SIX_SPECS[0], keys=(long_value,)))
    long_name = document(
        *(
            replace(one, path=f"deploy/production/{one.path}")
            for one in SIX_SPECS
        )
    )
    for one in (told, hard, long_name):
        table = overview_table(one, one.specs)
        for width in WIDTHS:
            page = text.render(diff_page(one), width=width)
            assert max(map(len, page.splitlines())) <= DIFF_WIDTH
            for row in table.rows:
                [line] = [
                    line
                    for line in page.splitlines()
                    if re.match(rf"\s+~?\s+{re.escape(row[1])}(\s|$)", line)
                ]
                # Whole columns may go, and the new amount and the change never do.
                assert all(cell in line for cell in row[3:5]), line
    assert "traffic.requests" not in text.render((table,), width=100)


def test_a_table_with_room_says_all() -> None:
    page = shown(spec("a.yaml", amount(5), amount(7)))
    assert "traffic.peak_rps 1 -> 2" in page


def test_a_table_without_any_room_breaks_no_number() -> None:
    told = document(*SIX_SPECS)
    page = text.render((overview_table(told, told.specs),), width=20)
    for row in overview_table(told, told.specs).rows[:1]:
        assert row[1] in page
        assert row[3] in page


def metric(old: float, new: float) -> MetricChange:
    limits = MetricLimit(limit=500, headroom=0.2)
    predictions = [
        Prediction(
            value=value,
            low=value,
            high=value,
            basis="physics",
        )
        for value in (old, new)
    ]
    return MetricChange(
        name="ttft_p95_ms",
        before=predictions[0],
        after=predictions[1],
        limit_before=limits,
        limit_after=limits,
    )


def test_another_name_alone_has_no_table_of_predictions() -> None:
    one = replace(
        spec("new.yaml", amount(5), amount(5), line_count=0),
        state="renamed",
        keys=(),
        metrics=(metric(400, 400),),
    )
    told = replace(one, before=side("old.yaml", amount(5)))
    page = shown(told, spec("b.yaml", amount(1), amount(2)))
    assert "TTFT" not in page
    assert "~ new.yaml, was old.yaml" in page.splitlines()
    assert "TTFT" in shown(replace(told, metrics=(metric(400, 300),)))


def test_what_is_close_to_a_limit_meets_it() -> None:
    one = spec("a.yaml", amount(5), amount(7))
    near = replace(
        one,
        after=replace(side("a.yaml", amount(7)), verdict="undecided"),
        metrics=(metric(400, 490),),
    )
    assert limits_text(document(near)) == limits_text(document(one))
    assert limits_text(document(one)) == "every spec meets its limits"
    # It is a remark below the predictions, in the words of the plan.
    assert SENTENCES["edge"] in shown(near)
    assert SENTENCES["edge"] not in shown(one)
    invalid = spec("b.yaml", amount(5), None)
    assert "1 of 2 specs" in limits_text(document(near, invalid))


def test_what_tokens_cost_is_a_lower_bound_where_the_cost_is() -> None:
    costs = (amount(5), amount(7, is_complete=False))
    sides = [
        replace(side("a.yaml", cost), usd_per_million_output=Decimal(price))
        for cost, price in zip(costs, (3, 4), strict=True)
    ]
    told = replace(
        spec("a.yaml", *costs),
        before=sides[0],
        after=sides[1],
        delta=cost_delta(*costs),
    )
    [row] = [line for line in shown(told).splitlines() if "per million" in line]
    assert ">= $4.00" in row
    assert ">= $3.00" not in row

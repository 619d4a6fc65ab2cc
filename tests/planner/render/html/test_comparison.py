"""Reports of what differs: a review, and the change from one plan to another."""

from __future__ import annotations

from decimal import Decimal

from msgspec.structs import replace

from planner.plan.actual.review import review
from planner.plan.diff_report import plans_document
from planner.render.html.comparison import (
    diff_report,
    difference_figure,
    review_report,
)
from planner.render.page import PageTable
from planner.render.review import review_page
from tests.planner.plan.actual.conftest import (
    charges_of,
    planned_rows,
)
from tests.planner.render.html.conftest import blueprint_view
from tests.planner.render.html.reading import by_name, cells, read_html, words


def test_a_review_shows_each_line_as_its_page_does() -> None:
    plan = blueprint_view("chat-8b").plan
    # The stack whose tag the rows carry.
    plan = replace(plan, stack=replace(plan.stack, name="chat"))
    rows = planned_rows(plan)
    rows[0]["EffectiveCost"] = f"{Decimal(rows[0]['EffectiveCost']) * 2:f}"
    reviewed = review(plan, charges_of(rows))
    page = review_page(reviewed)
    html = read_html(review_report(reviewed, page))
    [picture] = by_name(html, "figure")
    [table] = by_name(picture, "table")
    [lines] = [block for block in page if isinstance(block, PageTable)]
    for row in lines.rows:
        assert set(filter(None, row)) <= set(cells(table))
    assert len(by_name(picture, "rect")) == len(reviewed.lines)
    assert words(by_name(html, "h1")[0]).startswith(reviewed.stack)


def test_a_change_leads_from_one_total_to_the_other() -> None:
    before, after = (
        blueprint_view(name).plan for name in ("chat-8b", "code-assistant")
    )
    document = plans_document(("a.yaml", "b.yaml"), (before, after))
    [spec] = document.specs
    html = read_html(diff_report(document))
    [picture] = by_name(html, "figure")
    boxes = by_name(picture, "rect")
    assert len(boxes) == len(spec.changes) + 2
    first, *_, last_change, last = boxes
    after_end = float(last.attrib["x"]) + float(last.attrib["width"])
    ends = [
        float(last_change.attrib["x"]),
        float(last_change.attrib["x"]) + float(last_change.attrib["width"]),
    ]
    # A bar has some width also where its change is next to nothing.
    assert min(abs(end - after_end) for end in ends) < 1.7
    assert first.attrib["x"] == last.attrib["x"]


def test_what_is_for_another_period_has_no_difference() -> None:
    before, after = (
        blueprint_view(name).plan for name in ("chat-8b", "pretrain-7b")
    )
    for other in (after, before):
        document = plans_document(("a.yaml", "b.yaml"), (before, other))
        assert difference_figure(document.specs[0], "change") is None

"""The report of a plan: one file that loads nothing, and says what the page says."""

from __future__ import annotations

import base64
import hashlib
import itertools
import re
from decimal import Decimal
from functools import cache

import pytest
from msgspec.structs import replace

from planner import figures
from planner.render.bill import total_text
from planner.render.html.blocks import LETTER_BAR
from planner.render.html.report import (
    PlanView,
    plan_report,
    portfolio_report,
)
from planner.render.page import PageTable
from planner.render.plan import plan_page
from planner.workload.outlook import Outlook
from tests.conftest import BLUEPRINTS, TODAY, chat
from tests.planner.render.html.conftest import blueprint_view, view_of
from tests.planner.render.html.reading import (
    SVG,
    Opened,
    by_name,
    cells,
    local,
    read_html,
    read_xml,
    words,
)
from tests.planner.render.html.test_markup import HOSTILE

NAMES = [path.stem for path in BLUEPRINTS]
EVERY = pytest.mark.parametrize("name", NAMES)
# One of each kind of workload.
KINDS = pytest.mark.parametrize(
    "name",
    ["chat-70b", "pretrain-70b", "summarize-batch", "workspace-night"],
)
MOST_BYTES = 300_000
MOST_BYTES_OF_20 = 1_000_000
INFEASIBLE = chat(model="llama-3.3-70b", extra="buy: {budget: 9}")


@cache
def report_of(name: str) -> str:
    return plan_report(blueprint_view(name))


@cache
def tree_of(name: str):
    """What the rules of HTML make of a report; that takes them a tenth of a second."""
    return read_html(report_of(name))


@EVERY
def test_both_readers_see_a_small_document(name: str) -> None:
    report = report_of(name)
    assert len(report.encode()) <= MOST_BYTES
    html = tree_of(name)
    assert words(html) == words(read_xml(report))
    assert len(by_name(html, "main")) == len(by_name(html, "h1")) == 1
    assert by_name(html, "html")[0].attrib["lang"] == "en"


@EVERY
def test_nothing_is_loaded_and_nothing_runs(name: str) -> None:
    for tag, attributes in Opened(report_of(name)).tags:
        assert tag not in {
            "script",
            "link",
            "img",
            "iframe",
            "object",
            "use",
            "image",
            "form",
            "base",
        }
        for key, content in attributes.items():
            assert not key.startswith("on")
            assert key not in {"style", "src", "srcset"}
            if key == "href":
                assert (content or "").startswith("#")
            if key != "xmlns":
                assert "//" not in (content or ""), (tag, key, content)


def test_the_policy_allows_the_style_by_its_digest_alone() -> None:
    html = tree_of("chat-70b")
    [style] = by_name(html, "style")
    [policy] = [
        meta.attrib["content"]
        for meta in by_name(html, "meta")
        if meta.attrib.get("http-equiv") == "Content-Security-Policy"
    ]
    digest = hashlib.sha256((style.text or "").encode()).digest()
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules.pop("style-src") == (
        f"'sha256-{base64.b64encode(digest).decode()}'"
    )
    assert set(rules.values()) == {"'none'"}
    assert "default-src" in rules
    # Styles fetch nothing either: what they refer to is in the document.
    keys = {element.attrib.get("id") for element in html.iter()}
    targets = re.findall(r"url\(([^)]*)\)", style.text or "")
    assert targets
    assert all(target.removeprefix("#") in keys for target in targets)
    assert "@import" not in (style.text or "")


@KINDS
def test_equal_plans_give_equal_bytes(name: str) -> None:
    view = blueprint_view(name)
    assert plan_report(view) == plan_report(PlanView(view.plan, view.outlook))


@EVERY
def test_a_reader_of_a_screen_finds_its_way(name: str) -> None:
    """Headings without a gap, names that are there, each picture with words."""
    html = tree_of(name)
    levels = [
        int(local(element)[1])
        for element in html.iter()
        if re.fullmatch("h[1-6]", local(element))
    ]
    assert levels[0] == 1
    assert all(
        after <= before + 1 for before, after in itertools.pairwise(levels)
    )
    keyed = [
        element.attrib["id"]
        for element in html.iter()
        if "id" in element.attrib
    ]
    assert len(keyed) == len(set(keyed))
    for element in html.iter():
        for key in element.attrib.get("aria-labelledby", "").split():
            assert key in keyed
        target = element.attrib.get("href", "")
        assert not target or target.removeprefix("#") in keyed
        if "tabindex" in element.attrib:
            assert element.attrib["tabindex"] == "0"
            assert element.attrib["aria-label"]
    for picture in by_name(html, "figure"):
        [svg] = picture.iter(f"{SVG}svg")
        assert svg.attrib["role"] == "img"
        assert len(svg.attrib["aria-labelledby"].split()) == 2
        for part in ("title", "desc"):
            assert all(words(text) for text in svg.iter(f"{SVG}{part}"))


@EVERY
def test_every_picture_has_its_numbers_in_a_table(name: str) -> None:
    for picture in by_name(tree_of(name), "figure"):
        [table] = by_name(picture, "table")
        listed = " | ".join(cells(table))
        amounts = [
            amount
            for text in by_name(picture, "text")
            if text.attrib.get("class") == "end strong"
            # Numbers with their units; the words around them differ.
            for amount in re.findall(r"\$[\d,.]+", words(text))
        ]
        for amount in amounts:
            assert amount.removesuffix(".") in listed, (amount, listed)


@EVERY
def test_it_says_what_the_page_says(name: str) -> None:
    """Each cell of each table of the full page, but the ages of prices: they need a clock."""
    view = blueprint_view(name)
    shown = words(tree_of(name))
    for block in plan_page(view.plan, today=TODAY, full=True):
        if not isinstance(block, PageTable):
            continue
        aged = [title == ">age of price" for title in block.columns]
        for row in block.rows:
            for cell, is_age in zip(row, aged, strict=True):
                if not is_age:
                    said = LETTER_BAR.sub("", cell)
                    assert " ".join(said.split()) in shown


def test_twenty_plans_are_one_small_document() -> None:
    views = [blueprint_view(name) for name in NAMES[:20]]
    report = portfolio_report(views)
    assert len(report.encode()) <= MOST_BYTES_OF_20
    html = read_xml(report)
    keyed = [
        element.attrib["id"]
        for element in html.iter()
        if "id" in element.attrib
    ]
    assert len(keyed) == len(set(keyed))
    table = by_name(html, "table")[0]
    assert len(by_name(table, "tr")) == 1 + len(views)
    for view in views:
        assert view.plan.workload.name in words(table)
        assert total_text(view.plan) in words(table)


def test_one_plan_of_several_is_the_report_of_one() -> None:
    view = blueprint_view("chat-8b")
    assert portfolio_report([view]) == plan_report(view)


def test_a_plan_that_nothing_meets_says_what_would_do() -> None:
    shown = words(read_html(plan_report(view_of(INFEASIBLE))))
    assert "INFEASIBLE" in shown
    assert "nearest, changing one thing" in shown


def test_a_saved_plan_has_the_pictures_of_its_document() -> None:
    """What only a solution knows is left out, and nothing else."""
    view = blueprint_view("chat-70b")
    whole, saved = (
        [
            element.attrib["id"]
            for element in by_name(read_html(plan_report(shown)), "h2")
        ]
        for shown in (view, PlanView(view.plan))
    )
    assert set(whole) - set(saved) == {"load", "week"}
    assert view.outlook != Outlook()


def bill_of(html):
    """The figure of the lines of a bill."""
    [bill] = [
        picture
        for picture in by_name(html, "figure")
        if words(by_name(picture, "figcaption")[0]).startswith(
            "From the machines"
        )
    ]
    return bill


def test_a_line_without_a_price_is_hatched_and_never_zero() -> None:
    view = blueprint_view("chat-70b")
    first, *others = view.plan.cost.lines
    unknown = replace(
        first, unit_price=None, usd=None, price_found=False, price_as_of=None
    )
    cost = replace(
        view.plan.cost,
        lines=(*others, unknown),
        total=view.plan.cost.total - (first.usd or Decimal(0)),
    )
    html = read_html(plan_report(PlanView(replace(view.plan, cost=cost))))
    bill = bill_of(html)
    hatched = [
        box
        for box in by_name(bill, "rect")
        if box.attrib["class"] == "bar unknown"
    ]
    assert len(hatched) == 1
    assert float(hatched[0].attrib["width"]) > 1
    assert "no price" in words(bill)
    assert f">= {figures.dollars(cost.total)}" in words(bill)


def test_the_bars_of_a_bill_begin_where_the_one_before_ends() -> None:
    html = tree_of("pretrain-70b")
    bill = bill_of(html)
    boxes = [
        (float(box.attrib["x"]), float(box.attrib["width"]))
        for box in by_name(bill, "rect")
    ]
    *lines, total = boxes
    assert lines[0][0] == total[0]
    for (x, width), (next_x, _) in itertools.pairwise(lines):
        # The least width of a bar is more than nothing.
        assert next_x == pytest.approx(x + width, abs=1.7)
    assert lines[-1][0] <= total[0] + total[1]


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_names_stay_text(text: str) -> None:
    """The same tags as with plain names, whatever stands in them."""

    [warning, *_] = blueprint_view("chat-70b").plan.warnings

    def named(name: str) -> PlanView:
        plan = blueprint_view("chat-8b").plan
        first = plan.cost.lines[0]
        resources = tuple(
            replace(resource, type=f"a:b:{name}")
            for resource in plan.graph.resources
        )
        return PlanView(
            replace(
                plan,
                workload=replace(plan.workload, name=name),
                spec=replace(plan.spec, path=name),
                cost=replace(
                    plan.cost,
                    lines=(
                        replace(first, name=name, price_source=name),
                        *plan.cost.lines[1:],
                    ),
                ),
                graph=replace(plan.graph, resources=resources),
                warnings=(replace(warning, message=name),),
                solution=replace(
                    plan.solution,
                    pools=tuple(
                        replace(pool, instance_type=name)
                        for pool in plan.solution.pools
                    ),
                ),
            )
        )

    report = plan_report(named(text))
    html = read_html(report)
    assert words(html) == words(read_xml(report))
    plain = plan_report(named("plain"))
    assert [local(element) for element in html.iter()] == [
        local(element) for element in read_xml(plain).iter()
    ]
    shown = text.strip()[:20] if text.isprintable() else "?"
    assert shown in "".join(html.itertext())

"""The plan document: the contract's shape, the same bytes every time, no edits."""

from __future__ import annotations

import json
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.errors import StaleError, UsageError
from planner.plan.canonical import digest, dump_document, parse_plan
from planner.plan.diff import compare_plans
from planner.plan.staleness import check_staleness
from planner.render import markdown, text
from planner.render.diff import diff_page
from planner.render.page import Heading, PageTable, Paragraph
from planner.render.plan import plan_page
from tests.conftest import BLUEPRINTS, chat
from tests.stacks.test_simulated import plan_of

CONTRACT = {
    "schema",
    "tool_version",
    "catalog",
    "spec",
    "workload",
    "solution",
    "alternatives",
    "cost",
    "graph",
    "shutdown",
    "warnings",
    "digest",
}
POOL = {
    "provider",
    "region",
    "zones",
    "instance_type",
    "accelerator",
    "accelerators_per_node",
    "nodes",
    "purchase",
    "role",
    "replicas",
    "layout",
    "usd_per_hour",
}
LINE = {
    "name",
    "kind",
    "unit",
    "quantity",
    "unit_price",
    "usd_month",
    "price_source",
    "price_as_of",
    "price_found",
}


@pytest.mark.parametrize("path", BLUEPRINTS, ids=lambda p: p.stem)
def test_plans_have_the_shape_of_the_contract(catalog, path) -> None:
    plan = plan_of(catalog, path.read_text())
    assert set(plan) >= CONTRACT
    assert plan["solution"]["status"] == "optimal"
    assert {"gap", "solve_ms", "pools", "predicted", "binding"} <= set(
        plan["solution"]
    )
    for pool in plan["solution"]["pools"]:
        assert set(pool) >= POOL
        assert pool["zones"] == sorted(pool["zones"])
    for line in plan["cost"]["lines"]:
        assert set(line) == LINE
    for found in plan["solution"]["predicted"].values():
        assert set(found) == {"value", "low", "high", "basis"}
    for resource in plan["graph"]["resources"]:
        assert set(resource) == {
            "type",
            "name",
            "inputs",
            "depends_on",
            "options",
        }
    assert set(plan["shutdown"]) == {"idle", "ttl", "schedule", "backstop"}
    known = [
        Decimal(x["usd_month"])
        for x in plan["cost"]["lines"]
        if x["price_found"]
    ]
    assert sum(known) == Decimal(plan["cost"]["usd_month"])


def test_equal_inputs_give_equal_bytes(catalog) -> None:
    text_ = chat(traffic="peak_rps: 3", extra="shutdown: {ttl: 72h}")
    assert dump_document(plan_of(catalog, text_)) == dump_document(
        plan_of(catalog, text_)
    )


def test_the_digest_leaves_out_how_long_solving_took(catalog) -> None:
    plan = plan_of(catalog, chat())
    slower = {**plan, "solution": {**plan["solution"], "solve_ms": 99}}
    assert digest(slower) == plan["digest"]
    assert digest({**plan, "tool_version": "9"}) != plan["digest"]


def test_any_edit_of_a_plan_is_refused(catalog) -> None:
    plan = plan_of(catalog, chat())
    plan["solution"]["pools"][0]["nodes"] += 1
    with pytest.raises(UsageError, match="digest differs"):
        parse_plan(dump_document(plan).encode(), "p.json")


@pytest.mark.parametrize(
    "raw", [b"", b"{", b"[]", b'{"schema": "tonnage.plan/9"}', b"{" * 100_000]
)
def test_what_is_no_plan_is_refused(raw: bytes) -> None:
    with pytest.raises(UsageError):
        parse_plan(raw, "p.json")


@settings(max_examples=60)
@given(st.data())
def test_no_byte_of_a_plan_can_be_flipped(data) -> None:
    raw = bytearray(SAMPLE)
    place = data.draw(st.integers(0, len(raw) - 1))
    raw[place] ^= 1 << data.draw(st.integers(0, 6))
    try:
        parse_plan(bytes(raw), "p.json")
    except UsageError:
        return
    assert json.loads(raw) == json.loads(SAMPLE)  # white space may change


def _sample() -> bytes:
    from providers.catalog.load import load_catalog

    return dump_document(plan_of(load_catalog(), chat())).encode()


SAMPLE = _sample()


def test_stale_plans_are_told_by_what_changed(catalog) -> None:
    plan = plan_of(catalog, chat())
    fine = {
        "spec_sha256": plan["spec"]["sha256"],
        "catalog_sha256": plan["catalog"]["sha256"],
        "state": {"sha256": None},
    }
    check_staleness(plan, **fine)
    check_staleness(plan, **{**fine, "spec_sha256": None})
    check_staleness(
        plan, **{**fine, "state": {"sha256": "x", "plan": plan["digest"]}}
    )
    for change in (
        {"spec_sha256": "x"},
        {"catalog_sha256": "x"},
        {"state": {"sha256": "x", "plan": "other"}},
    ):
        with pytest.raises(StaleError) as caught:
            check_staleness(plan, **{**fine, **change})
        assert caught.value.exit_code == 11


def test_a_plan_differs_from_itself_in_nothing(catalog) -> None:
    plan = plan_of(catalog, chat())
    found = compare_plans(plan, plan)
    assert found.changes == ()
    assert found.delta_usd == 0


def test_the_changes_of_a_diff_add_up_to_its_total(catalog) -> None:
    before = plan_of(catalog, chat())
    after = plan_of(catalog, chat(traffic="peak_rps: 20"))
    found = compare_plans(before, after)
    assert sum(c.delta_usd for c in found.changes) == found.delta_usd
    assert found.usd_after - found.usd_before == found.delta_usd
    back = compare_plans(after, before)
    assert back.delta_usd == -found.delta_usd
    assert {c.mark for c in found.changes} <= {"+", "~", "-"}
    assert "total" in text.render(diff_page((found,), ("a", "b")))


def test_text_shows_the_numbers_of_the_document(catalog) -> None:
    plan = plan_of(catalog, chat())
    shown = text.render(plan_page(plan, full=True))
    for line in plan["cost"]["lines"]:
        assert line["name"] in shown
    for resource in plan["graph"]["resources"]:
        assert resource["type"] in shown
    assert "\x1b" not in shown
    assert "\x1b" in text.render(plan_page(plan), color=True)


@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_no_line_is_wider_than_the_terminal(catalog, width: int) -> None:
    shown = text.render(plan_page(plan_of(catalog, chat())), width=width)
    assert max(len(line) for line in shown.splitlines()) <= width


def test_the_default_text_is_short(catalog) -> None:
    shown = text.render(plan_page(plan_of(catalog, chat())))
    assert len(shown.splitlines()) <= 60


def test_markdown_takes_the_meaning_from_what_users_write() -> None:
    evil = "<script>|`x`|*b*\n::set-output name=a::b @everyone [l](u)"
    shown = markdown.render(
        (Heading(evil), Paragraph(evil), PageTable((evil,), ((evil,),)))
    )
    assert "<script" not in shown
    assert not any(line.startswith("::") for line in shown.splitlines())
    assert "[l](u)" not in shown
    assert "\\|" in shown

"""The plan document: the contract's shape, the same bytes every time, no edits."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from planner.errors import StaleError, UsageError
from planner.plan.canonical import (
    digest,
    dump_document,
    dump_plan,
    parse_plan,
    plan_schema,
    to_document,
)
from planner.plan.diff import compare_plans
from planner.plan.diff_report import plans_document
from planner.plan.staleness import PresentInputs, check_staleness
from planner.plan.status import StackStatus
from planner.plan.types import PlanInputs
from planner.render import markdown, text
from planner.render.diff.page import diff_page
from planner.render.page import Heading, PageTable, Paragraph
from planner.render.plan import plan_page
from tests.conftest import BLUEPRINTS, TODAY, chat
from tests.stacks.engine.test_simulated import plan_of

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
    "usd",
    "price_source",
    "price_as_of",
    "price_found",
}


@pytest.mark.parametrize("path", BLUEPRINTS, ids=lambda p: p.stem)
def test_plans_have_the_shape_of_the_contract(catalog, path) -> None:
    document = json.loads(dump_plan(plan_of(catalog, path.read_text())))
    assert set(document) >= CONTRACT
    solution = document["solution"]
    # Optimal is claimed only of what the simulation could decide.
    verification = solution["verified"]
    is_decided = verification is None or verification["verdict"] == "holds"
    assert solution["status"] == ("optimal" if is_decided else "feasible")
    assert (solution["gap"] == "0") == is_decided
    assert {"gap", "solve_ms", "pools", "predicted", "binding"} <= set(solution)
    for pool in solution["pools"]:
        assert set(pool) >= POOL
        assert pool["zones"] == sorted(pool["zones"])
        assert pool["nodes"] == sum(p["nodes"] for p in pool["purchases"])
    for line in document["cost"]["lines"]:
        assert set(line) >= LINE
    for prediction in solution["predicted"].values():
        assert set(prediction) == {"value", "low", "high", "basis"}
    for resource in document["graph"]["resources"]:
        assert set(resource) == {
            "type",
            "name",
            "inputs",
            "depends_on",
            "options",
        }
    shutdown = document["shutdown"]
    assert set(shutdown) == {"idle", "ttl", "schedule", "backstop"}


@pytest.mark.parametrize("path", BLUEPRINTS, ids=lambda p: p.stem)
def test_lines_add_up_to_the_total_of_their_period(catalog, path) -> None:
    plan = plan_of(catalog, path.read_text())
    known = [line.usd for line in plan.cost.lines if line.usd is not None]
    assert sum(known) == plan.cost.total
    # What is done once ends; what is asked for every day, or has no end, is for a month.
    normalized = plan.spec.normalized
    is_run = plan.workload.kind == "training" or (
        "total_requests" in normalized.get("traffic", {})
    )
    has_end = "ttl" in normalized["shutdown"]
    assert plan.cost.period == (
        "run" if is_run else "life" if has_end else "month"
    )
    is_month = plan.cost.period == "month"
    assert plan.cost.usd_month == (plan.cost.total if is_month else None)
    pool_names = {pool.name for pool in plan.solution.pools}
    assert {line.pool for line in plan.cost.lines} == pool_names | {None}


def test_equal_inputs_give_equal_bytes(catalog) -> None:
    text_ = chat(traffic="peak_rps: 3", extra="shutdown: {ttl: 72h}")
    assert dump_plan(plan_of(catalog, text_)) == dump_plan(
        plan_of(catalog, text_)
    )


def test_the_digest_leaves_out_how_long_solving_took(catalog) -> None:
    plan = to_document(plan_of(catalog, chat()))
    slower = {**plan, "solution": {**plan["solution"], "solve_ms": 99}}
    assert digest(slower) == plan["digest"]
    assert digest({**plan, "tool_version": "9"}) != plan["digest"]


def test_any_edit_of_a_plan_is_refused(catalog) -> None:
    document = to_document(plan_of(catalog, chat()))
    document["solution"]["pools"][0]["nodes"] += 1
    with pytest.raises(UsageError, match="digest differs"):
        parse_plan(dump_document(document).encode(), "p.json")


@pytest.mark.parametrize(
    ("part", "change"),
    [
        ("solution", {"surprise": 1}),
        ("solution", {"status": "splendid"}),
        ("cost", {"total": "many"}),
        ("stack", {"name": 7}),
    ],
)
def test_a_document_of_other_types_is_refused(
    catalog, part: str, change: dict[str, object]
) -> None:
    """Also when its digest is right: somebody else's tool may have written it."""
    document = to_document(plan_of(catalog, chat()))
    document[part] |= change
    document["digest"] = digest(document)
    with pytest.raises(UsageError, match="not a plan"):
        parse_plan(dump_document(document).encode(), "p.json")


def test_plans_are_valid_by_their_published_schema(catalog) -> None:
    validator = jsonschema.Draft202012Validator(plan_schema())
    for blueprint in BLUEPRINTS:
        plan = plan_of(catalog, blueprint.read_text())
        validator.validate(json.loads(dump_plan(plan)))
    document = to_document(plan) | {"surprise": 1}
    assert not validator.is_valid(document)


@pytest.mark.parametrize(
    "raw", [b"", b"{", b"[]", b'{"schema": "tonnage.plan/9"}', b"{" * 100_000]
)
def test_what_is_no_plan_is_refused(raw: bytes) -> None:
    with pytest.raises(UsageError):
        parse_plan(raw, "p.json")


@settings(max_examples=60)
@given(st.data())
def test_no_byte_of_a_plan_can_be_flipped(data) -> None:
    raw = bytearray(_sample())
    place = data.draw(st.integers(0, len(raw) - 1))
    raw[place] ^= 1 << data.draw(st.integers(0, 6))
    try:
        parse_plan(bytes(raw), "p.json")
    except UsageError:
        return
    assert json.loads(raw) == json.loads(_sample())  # white space may change


@cache
def _sample() -> bytes:
    from providers.catalog.load import load_catalog

    return dump_plan(plan_of(load_catalog(), chat())).encode()


def test_stale_plans_are_told_by_what_changed(catalog) -> None:
    plan = plan_of(catalog, chat())
    plan = replace(
        plan,
        inputs=PlanInputs(
            files={"config.json": "a"},
            calibration="mine.json",
            calibration_sha256="b",
            plugins={"aws": "7.1.0"},
        ),
    )
    present = PresentInputs(
        normalized=plan.spec.normalized,
        files={"config.json": "a"},
        calibration_sha256="b",
        catalog_sha256=plan.catalog.sha256,
        plugins={"aws": "7.1.0"},
    )
    check_staleness(plan, present, None)
    check_staleness(plan, replace(present, normalized=None, files={}), None)
    check_staleness(plan, present, standing(plan_digest=plan.digest))
    changed_inputs: tuple[tuple[dict[str, Any], str], ...] = (
        ({"normalized": {}}, "spec.yaml has changed"),
        ({"files": {"config.json": "x"}}, "config.json has changed"),
        ({"files": {"config.json": None}}, "config.json has changed"),
        ({"calibration_sha256": None}, "mine.json has changed"),
        ({"catalog_sha256": "x"}, "the catalog has changed"),
        (
            {"plugins": {"aws": "8.0.0"}},
            "it was made for aws 7.1.0, this is 8.0.0",
        ),
    )
    for changed, reason in changed_inputs:
        with pytest.raises(StaleError) as caught:
            check_staleness(plan, replace(present, **changed), None)
        assert caught.value.exit_code == 11
        (problem,) = caught.value.problems
        assert problem.message == f"the plan is stale: {reason}"
    with pytest.raises(StaleError, match="stack chat has changed"):
        check_staleness(plan, present, standing(plan_digest="other"))


def standing(plan_digest: str) -> StackStatus:
    return StackStatus(
        stack="chat",
        plan=plan_digest,
        state_sha256="x",
        complete=True,
        operation="applied",
        resources=(),
        outputs={},
        facts=None,
    )


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
    document = plans_document(("a", "b"), (before, after))
    assert "total" in text.render(diff_page(document))


def test_a_month_and_a_life_have_no_difference(catalog) -> None:
    """Each amount is shown with what it is for, and nothing is subtracted."""
    before = plan_of(catalog, chat())
    after = plan_of(catalog, chat() + "shutdown: {ttl: 3d}\n")
    found = compare_plans(before, after)
    assert (found.period_before, found.period) == ("month", "life")
    assert found.changes
    assert found.delta_usd is None
    assert found.delta_percent is None
    document = plans_document(("a", "b"), (before, after))
    page = text.render(diff_page(document))
    assert "USD a month" in page
    assert "then, USD of a life" in page
    assert "+$" not in page
    assert "-$" not in page
    same = compare_plans(after, after)
    assert same.delta_usd == 0
    document = plans_document(("a", "b"), (after, after))
    assert "/mo" not in text.render(diff_page(document))
    assert "/mo" not in text.render(plan_page(after, today=TODAY))


def test_text_shows_the_numbers_of_the_document(catalog) -> None:
    plan = plan_of(catalog, chat())
    shown = text.render(plan_page(plan, full=True, today=TODAY))
    for line in plan.cost.lines:
        assert line.name in shown
    for resource in plan.graph.resources:
        assert resource.type in shown
    assert "\x1b" not in shown
    assert "\x1b" in text.render(plan_page(plan, today=TODAY), color=True)


@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_no_line_is_wider_than_the_terminal(catalog, width: int) -> None:
    shown = text.render(
        plan_page(plan_of(catalog, chat()), today=TODAY), width=width
    )
    assert max(len(line) for line in shown.splitlines()) <= width


def test_markdown_takes_the_meaning_from_what_users_write() -> None:
    evil = "<script>|`x`|*b*\n::set-output name=a::b @everyone [l](u)"
    shown = markdown.render(
        (Heading(evil), Paragraph(evil), PageTable((evil,), ((evil,),)))
    )
    assert "<script" not in shown
    assert not any(line.startswith("::") for line in shown.splitlines())
    assert "[l](u)" not in shown
    assert "\\|" in shown

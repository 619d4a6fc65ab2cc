"""The document of a difference: what is added up, what is left out, and what is not known."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import TYPE_CHECKING

import jsonschema
import pytest
from msgspec.structs import replace

from planner.api import plan as api_plan
from planner.errors import Place, Problem, SpecError
from planner.plan.diff import compare_plans
from planner.plan.diff_document import (
    DiffDocument,
    SideRef,
    diff_schema,
    dump_diff,
)
from planner.plan.diff_report import (
    ComparedSpec,
    EarlierPlan,
    FoundSide,
    PlannedStep,
    diff_document,
    plans_document,
)
from planner.plan.types import CatalogRef
from tests.stacks.engine.test_simulated import plan_of

if TYPE_CHECKING:
    from planner.plan.diff_document import SpecState
    from planner.plan.types import Plan

SIDES = (SideRef(name="main", commit="1" * 40), SideRef(name="working tree"))
NOTEBOOK = (
    "apiVersion: tonnage/v1\nkind: Workspace\nname: notebook\n"
    "accelerator: {memory: 24GiB, count: 1}\nwhere: {clouds: [gcp]}\n"
)


@pytest.fixture(scope="module")
def month(catalog) -> Plan:
    return plan_of(catalog, NOTEBOOK)


@pytest.fixture(scope="module")
def life(catalog) -> Plan:
    return plan_of(catalog, NOTEBOOK + "shutdown: {ttl: 3d}\n")


def dearer(plan: Plan, usd: str) -> Plan:
    """The plan with so many USD more on its last line."""
    *others, last = plan.cost.lines
    assert last.usd is not None
    last = replace(last, usd=last.usd + Decimal(usd))
    cost = replace(
        plan.cost,
        lines=(*others, last),
        total=plan.cost.total + Decimal(usd),
    )
    return replace(plan, cost=cost)


def unpriced(plan: Plan) -> Plan:
    """The plan without a price for its last line."""
    *others, last = plan.cost.lines
    assert last.usd is not None
    total = plan.cost.total - last.usd
    last = replace(last, usd=None, unit_price=None, price_found=False)
    return replace(
        plan, cost=replace(plan.cost, lines=(*others, last), total=total)
    )


def of_catalog(plan: Plan, sha256: str, as_of: str = "2026-01-01") -> Plan:
    return replace(plan, catalog=CatalogRef(sha256=sha256, as_of=as_of))


def compared(
    before: Plan | None, after: Plan | None, path: str = "a.yaml", **more
) -> ComparedSpec:
    state: SpecState = "changed"
    if before is None:
        state = "added"
    elif after is None:
        state = "removed"
    old, new = (
        FoundSide(path=path, name="n", plan=plan) if plan is not None else None
        for plan in (before, after)
    )
    return ComparedSpec(state=state, before=old, after=new, **more)


def broken(path: str = "a.yaml") -> FoundSide:
    problem = Problem(
        code="choice",
        message="kind: no",
        next_step="write another",
        place=Place(path, 3, 4),
    )
    return FoundSide(path=path, error=SpecError(problem))


def document(*specs: ComparedSpec, **more) -> DiffDocument:
    return diff_document(SIDES, specs, catalog=None, **more)


def test_months_and_lives_are_never_added_up(month, life) -> None:
    told = document(
        compared(None, month, "new.yaml"),
        compared(month, dearer(month, "5"), "b.yaml"),
        compared(life, None, "old.yaml"),
        compared(month, life, "other.yaml"),
    )
    by_period = {total.period: total for total in told.totals}
    assert set(by_period) == {"month", "life"}
    months, lives = by_period["month"], by_period["life"]
    assert months.before.usd == 2 * month.cost.total
    assert months.after.usd == 2 * month.cost.total + 5
    assert lives.before.usd == lives.after.usd == life.cost.total
    for total in told.totals:
        grown_usd = total.after.known_usd - total.before.known_usd
        assert total.delta.usd == grown_usd
    # A month and a life have no difference.
    assert told.specs[-1].delta is None


def test_an_unknown_price_is_on_the_side_that_has_it(month) -> None:
    hole = unpriced(month)
    told = plans_document(("a", "b"), (month, hole))
    [spec] = told.specs
    assert spec.before is not None
    assert spec.after is not None
    assert spec.before.cost is not None
    assert spec.before.cost.is_complete
    assert spec.after.cost is not None
    assert not spec.after.cost.is_complete
    assert spec.delta is not None
    assert spec.delta.bound == "at_least"
    [change] = spec.changes
    assert change.after is not None
    assert change.after.cost.usd is None
    back = plans_document(("a", "b"), (hole, month)).specs[0].delta
    assert back is not None
    assert back.bound == "at_most"
    # The same hole on both sides makes no difference.
    both = plans_document(("a", "b"), (hole, hole)).specs[0]
    assert both.changes == ()
    assert both.delta is not None
    assert (both.delta.usd, both.delta.bound) == (Decimal(0), "exact")


def test_a_side_that_is_wrong_is_in_no_total(month) -> None:
    wrong = ComparedSpec(
        state="changed",
        before=FoundSide(path="a.yaml", name="n", plan=month),
        after=broken(),
    )
    told = document(wrong, compared(month, dearer(month, "1"), "b.yaml"))
    assert told.left_out == ("a.yaml",)
    [total] = told.totals
    assert total.before.usd == month.cost.total
    [spec, _] = told.specs
    assert spec.after is not None
    assert spec.after.status == "invalid"
    assert (spec.delta, spec.changes) == (None, ())
    [problem] = spec.after.problems
    assert (problem.path, problem.line, problem.column) == ("a.yaml", 3, 4)


def test_an_infeasible_spec_costs_nothing_before_and_is_unknown_after(
    catalog, month
) -> None:
    cheap = f"{NOTEBOOK}buy: {{budget: 1/month}}\n".encode()
    impossible = api_plan(cheap, catalog=catalog)
    assert not impossible.is_feasible
    [spec] = document(compared(month, impossible)).specs
    assert spec.after is not None
    assert (spec.after.status, spec.after.cost) == ("infeasible", None)
    assert spec.delta is None
    repaired = document(compared(impossible, month))
    assert repaired.left_out == ()
    assert repaired.totals[0].delta.usd == month.cost.total


def test_the_parts_of_a_change_add_up_to_it(month) -> None:
    taxed = dearer(month, "10")
    after = dearer(taxed, "32")
    steps = (PlannedStep("price", taxed), PlannedStep("spec", after))
    told = document(
        compared(month, after, steps=steps), compared(None, month, "new.yaml")
    )
    [total] = told.totals
    parts = {part.origin: part.delta.usd for part in total.parts}
    assert parts == {"price": 10, "spec": 32 + month.cost.total}
    assert sum(p for p in parts.values() if p) == total.delta.usd
    # Specs alone need no division.
    assert document(compared(None, month)).totals[0].parts == ()


def test_saved_plans_say_what_they_differ_in(month) -> None:
    later = of_catalog(dearer(month, "7"), "f" * 64)
    [spec] = plans_document(("a", "b"), (month, later)).specs
    assert spec.differs == ("price",)
    assert [(p.origin, p.delta.usd) for p in spec.parts] == [
        ("price", Decimal(7))
    ]
    other = replace(later, tool_version="9")
    told = plans_document(("a", "b"), (month, other))
    assert told.catalog is None
    # Of two causes at once nobody can tell the parts.
    assert told.specs[0].differs == ("price", "model")
    assert told.specs[0].parts == ()


def test_what_a_catalog_did_is_in_no_total(month, life) -> None:
    was = of_catalog(dearer(month, "-3"), "0" * 64)
    told = document(
        compared(month, dearer(month, "5")),
        earlier=[
            EarlierPlan("a.yaml", was, month),
            EarlierPlan("b.yaml", was, month),
            # Another period, another spec, and the same catalog say nothing.
            EarlierPlan("c.yaml", of_catalog(life, "0" * 64), month),
            EarlierPlan("d.yaml", month, month),
        ],
    )
    [effect] = told.catalog_effects
    assert effect.origins == ("price",)
    assert effect.paths == ("a.yaml", "b.yaml")
    assert (effect.delta.usd, effect.since.as_of) == (Decimal(6), "2026-01-01")
    assert told.totals[0].delta.usd == 5


def test_the_document_is_valid_by_its_schema(month, life) -> None:
    told = document(
        compared(month, dearer(month, "5")),
        compared(None, unpriced(life), "b.yaml"),
        ComparedSpec(state="changed", before=broken("c"), after=broken("c")),
    )
    schema = diff_schema()
    validator = jsonschema.Draft202012Validator(schema)
    plain = json.loads(dump_diff(told))
    validator.validate(plain)
    assert not validator.is_valid(plain | {"surprise": 1})
    assert dump_diff(told) == dump_diff(told)
    for part_name, part in schema["$defs"].items():
        for name, field in part["properties"].items():
            assert "description" in field or "$ref" in field, (part_name, name)


def test_the_changes_of_pools_and_lines_add_up(catalog, month) -> None:
    bigger = plan_of(catalog, NOTEBOOK + "users: 3\n")
    found = compare_plans(month, bigger)
    assert found.delta is not None
    assert (
        sum(change.delta.usd or 0 for change in found.changes)
        == found.delta.usd
    )
    [pool] = [c for c in found.changes if c.subject == "pool"]
    assert pool.before is not None
    assert pool.after is not None
    assert [pool.before.quantity, pool.after.quantity] == [
        Decimal(1),
        Decimal(3),
    ]

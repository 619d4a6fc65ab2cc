"""The Python API gives what the commands give."""

from __future__ import annotations

from decimal import Decimal

import pytest

from planner import api
from planner.errors import SpecError
from planner.plan.canonical import dump_plan, parse_plan
from tests.conftest import ROOT, chat, present


def test_a_plan_is_that_of_the_command(tonnage, here) -> None:
    text = chat(extra="shutdown: {ttl: 72h}")
    (here / "chat.yaml").write_text(text)
    assert tonnage("plan", "chat.yaml", "-o", "chat.plan.json")[0] == 0
    saved = parse_plan((here / "chat.plan.json").read_bytes(), "p")
    made = api.plan(text.encode(), path="chat.yaml")
    assert dump_plan(made) == dump_plan(saved)


def test_a_plan_that_only_compares_is_that_of_the_command(
    tonnage, here
) -> None:
    text = chat(extra="where: {accelerators: {allow: [mi300x]}}")
    (here / "chat.yaml").write_text(text)
    assert tonnage("plan", "chat.yaml", "-o", "chat.plan.json")[0] == 0
    saved = parse_plan((here / "chat.plan.json").read_bytes(), "p")
    made = api.plan(text.encode(), path="chat.yaml")
    assert dump_plan(made) == dump_plan(saved)
    assert made.is_compared_only


def test_a_difference_is_that_of_the_totals(catalog) -> None:
    before = api.plan(chat().encode(), catalog=catalog)
    busier = chat(traffic="peak_rps: 40").encode()
    after = api.plan(busier, catalog=catalog, alternatives=0)
    assert len(after.alternatives) < len(api.plan(busier).alternatives)
    change = api.diff(before, after)
    assert change.delta_usd == after.cost.total - before.cost.total > Decimal(0)


def test_less_confidence_never_costs_more(catalog) -> None:
    spec = chat(traffic="peak_rps: 20").encode()
    sure, even = (
        api.plan(spec, catalog=catalog, confidence=level).cost.total
        for level in (0.95, 0.5)
    )
    assert even <= sure


def test_a_table_is_answered_row_by_row(here) -> None:
    table = (ROOT / "tests" / "data" / "truth" / "training.csv").read_text()
    head = "\n".join(table.splitlines()[:3]) + "\n"
    assert api.estimate(head).count("\n") == 3


def test_errors_are_typed_and_placed() -> None:
    with pytest.raises(SpecError) as caught:
        api.plan(b"kind: Inference\n", path="x.yaml")
    assert present(caught.value.problems[0].place).path == "x.yaml"

"""Kinds of workload keep their protocol, and a fifth one takes a module and a line."""

from __future__ import annotations

import pytest

from planner.cost.lifetime import Period
from planner.render import text
from planner.render.explain import scaling_page
from planner.render.plan import plan_page
from planner.solve.settings import SolveSettings
from planner.spec.kinds import SPEC_KINDS
from planner.workload.period import planned_period
from planner.workload.registry import WORKLOADS, workload_of, workload_of_kind
from planner.workload.solver import what_if, why_not
from stacks.spec.table import unsupported_reason
from tests.conftest import BLUEPRINTS, TODAY, spec_of
from tests.stacks.engine.test_simulated import plan_of

EVALUATION = """apiVersion: tonnage/v1
kind: Evaluation
name: grade
model: {name: llama-3.1-8b}
traffic:
  total_requests: 20000
  input_tokens: {mean: 900}
  output_tokens: {mean: 50}
deadline: 6h
"""
PERIODS: tuple[Period, ...] = ("month", "run", "life")


@pytest.mark.parametrize("kind", sorted(WORKLOADS))
def test_every_kind_keeps_its_protocol(catalog, kind: str) -> None:
    workload = workload_of_kind(kind)
    assert workload.kind == kind
    assert workload.period in PERIODS
    assert workload.spec_block is SPEC_KINDS[kind]
    blueprint = next(
        b for b in BLUEPRINTS if f"kind: {kind}\n" in b.read_text()
    )
    spec = spec_of(blueprint.read_text())
    assert workload_of(spec) is workload
    plan = plan_of(catalog, blueprint.read_text())
    assert plan.workload.kind == workload.name
    assert plan.cost.period == planned_period(spec)
    phrases = workload.request_phrases(plan.spec.normalized)
    assert phrases
    assert all(p in text.render(plan_page(plan, today=TODAY)) for p in phrases)
    settings = SolveSettings(
        catalog=catalog,
        unbuilt_reason=unsupported_reason,
        read_file=lambda _: b"",
    )
    chosen = plan.solution.pools[0].instance_type
    answers = {
        answer.fleet.instance_type: answer
        for answer in why_not(spec, settings, chosen)
        if answer.fleet is not None
    }
    assert answers[chosen].usd == plan.cost.total
    doubled = what_if(spec, settings, 2.0)
    assert workload.scaled_quantity in text.render(
        scaling_page(plan, 2.0, doubled)
    )


@pytest.fixture
def evaluation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Register the fifth kind: its line, and its fields."""
    where = "tests.planner.fifth_kind:EVALUATION"
    monkeypatch.setitem(WORKLOADS, "Evaluation", where)
    block = workload_of_kind("Evaluation").spec_block
    monkeypatch.setitem(SPEC_KINDS, "Evaluation", block)


@pytest.mark.usefixtures("evaluation")
def test_a_fifth_kind_is_planned_and_shown(catalog) -> None:
    plan = plan_of(catalog, EVALUATION)
    assert plan.workload.kind == "evaluation"
    assert plan.spec.normalized["kind"] == "Evaluation"
    assert plan.solution.pools
    assert plan.graph.resources
    shown = text.render(plan_page(plan, today=TODAY))
    assert "evaluation  ·  llama-3.1-8b  ·  20,000 prompts" in shown
    batch = plan_of(catalog, EVALUATION.replace("Evaluation", "Batch"))
    assert plan.cost.total == batch.cost.total
